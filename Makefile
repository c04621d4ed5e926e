# Everything is installed into .venv; only Python (3.11 or newer) and make are needed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Tests start many processes, which would all compile the same sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test thorough test-lowest coverage faults lint bench kernel-test spark-test store-test gpu-test docs wheel clean

# Prints every target with the sentence after its double hash.
help: ## List the targets, one sentence each.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Install hushgraph and its tools into .venv, with pinned versions.

# Runs again only when what is installed could have changed.
$(READY): pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt $$(grep '^torch==' constraints.txt)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: setup ## Compare five models on a generated graph and write a report to demo/.
	$(BIN)/hushgraph demo

lint: setup ## Check style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# How many processes run tests at once.
WORKERS ?= 2
# Types are checked beside the tests and shown behind them.
test: setup ## Check style and types, and run all tests.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "$(BIN)/mypy & $(BIN)/pytest -n $(WORKERS) --dist loadfile"; \
	$(BIN)/mypy > .venv/types.txt 2>&1 & types=$$!; \
	$(BIN)/pytest -n $(WORKERS) --dist loadfile; tests=$$?; \
	wait $$types; types=$$?; cat .venv/types.txt; test $$tests -eq 0 && test $$types -eq 0

# Hours: what `make test` tries a few hundred times, such as small graphs and kills, is tried many times.
thorough: setup ## Run all tests with many more random cases.
	HUSHGRAPH_THOROUGH=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile

# In an environment of its own, .lowest, so it needs no .venv.
test-lowest: ## Run the quick part of the tests with the oldest versions that are allowed.
	$(PYTHON) scripts/test_lowest.py

coverage: setup ## Measure what the tests run; writes the record and the figure in the README.
	$(BIN)/python scripts/measure_coverage.py --workers $(WORKERS)

faults: setup ## Plant faults in copies of the source and check that the tests see each.
	$(BIN)/python scripts/plant_faults.py

bench: setup ## Run the CPU benchmarks.
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

# With Triton and without a GPU, TRITON_INTERPRET=1 runs the kernels in Triton's interpreter.
GPU_DATA ?= $(wildcard ../shared/data/facebook_32_schools.npz ../shared/data/ogbn_arxiv_hints.npz)
# Triton is for GPUs, so torch for CPUs does not bring it; beside .venv, nothing else sees it.
kernel-test: setup ## Run the tests of the GPU kernels in Triton's interpreter, without a GPU.
	$(BIN)/pip install --quiet --no-deps --upgrade --target .triton -c constraints.txt triton
	TRITON_INTERPRET=1 PYTHONPATH=.triton $(BIN)/pytest tests/gradients/test_row_kernels_gpu.py \
	  tests/gradients/test_norms.py tests/gradients/test_sums.py tests/models/test_row_sums.py

# Spark, and what Spark Connect needs: pandas before version 3.
SPARK := pyspark py4j 'pandas<3' pyarrow pytz tzdata grpcio grpcio-status googleapis-common-protos protobuf zstandard
spark-test: setup ## Run the tests of Spark; Java is installed where it is missing and apt-get can.
	@command -v java > /dev/null || { timeout 60 apt-get -qq update && \
	  timeout 180 apt-get -qq -y install --no-install-recommends default-jre-headless; } \
	  > /dev/null 2>&1 || echo "spark-test: no Java here and none could be installed; the tests are skipped"
	@if command -v java > /dev/null; then \
	  if $(BIN)/pip install --quiet --no-deps --upgrade --target .spark -c constraints.txt $(SPARK); then \
	    PYTHONPATH=$(abspath .spark) $(BIN)/pytest tests/datasets/test_spark.py tests/inference/test_executors.py; \
	  else echo "spark-test: PySpark could not be installed; the tests are skipped"; fi; fi

# Beside .venv, because a server of S3 brings 60 packages that nothing else needs.
store-test: setup ## Run the tests of object stores against a server that speaks S3.
	@if $(BIN)/pip install --quiet --upgrade --target .store -c constraints.txt s3fs 'moto[server]' 2> /dev/null; then \
	  PYTHONPATH=.store $(BIN)/pytest tests/runs/test_store_s3.py; \
	else echo "store-test: s3fs and moto could not be installed; the tests are skipped"; fi

gpu-test: setup ## Run the tests and benchmarks of the GPU.
	$(BIN)/pytest -rs tests/gradients tests/models tests/noise tests/claims/test_norms.py tests/claims/test_rings.py \
	  tests/training/test_train.py tests/training/test_optimizers.py tests/training/test_distributed.py
	$(BIN)/python benchmarks/bench_gpu_rows.py $(GPU_DATA)
	! $(BIN)/python -c "import torch; assert torch.cuda.is_available()" 2> /dev/null || \
	  ($(BIN)/python benchmarks/bench_step.py --device cuda && $(BIN)/python benchmarks/bench_noise.py --device cuda)

# The notice that is turned off says when the theme is no longer maintained; docs/dependencies.md says it too.
docs: setup ## Build the documentation into site/.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo The pages are in site/index.html

wheel: setup ## Build the wheel, install it alone into an empty environment, run its demo.
	$(BIN)/python scripts/check_wheel.py

clean: ## Remove .venv, the built documentation and build outputs.
	rm -rf .venv .lowest .spark .store .triton .coverage build dist site src/*.egg-info
