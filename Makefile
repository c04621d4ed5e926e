# `make demo` and `make test` need Python 3.11 and make; everything else lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test lint bench docs clean

setup: $(READY)

# Runs again only when what is installed could have changed.
$(READY): pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt $$(grep '^torch==' constraints.txt)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: setup
	$(BIN)/hushgraph demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2 --dist loadfile

bench: setup
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

# The notice that is turned off says when the theme is no longer maintained; docs/dependencies.md says it too.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo The pages are in site/index.html

clean:
	rm -rf .venv build dist site src/*.egg-info
