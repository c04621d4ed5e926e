# `make demo` and `make test` need Python 3.11 and make; everything else lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test lint bench clean

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
	$(BIN)/pytest

bench: setup
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf .venv build dist src/*.egg-info
