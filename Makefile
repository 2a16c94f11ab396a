# `make help` lists everything. Nothing but Python 3.11+ and Java 17+ is needed: the rest is set up in .venv.
PYTHON ?= python3
VENV   ?= .venv
RUN    := env -u PYTHONDONTWRITEBYTECODE $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= 2
PYTEST := $(RUN)/python -m pytest
PARALLEL := -n $(JOBS) --dist loadscope --no-loadscope-reorder
export SEED

.DEFAULT_GOAL := help
.PHONY: help setup java classes demo demo-spark test test-unit test-browser test-long test-mutants bench check fmt constraints clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything that development needs

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found: install Python 3.11 or newer, or say PYTHON=/path/to/python."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is `$(PYTHON) --version 2>&1`: Python 3.11 or newer is needed; say PYTHON=/path/to/python."; exit 1; }
	@echo "Setting up $(VENV): about 200 packages are downloaded once (Spark is large: 500 MB)."
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) can not make virtual environments: install its venv package (python3-venv on Debian)."; exit 1; }
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	@$(RUN)/uv pip install --quiet --python $(VENV)/bin/python --constraint constraints.txt --editable '.[airflow,postgres,spark,delta,iceberg,hdfs,dev]'
	@touch $@

java:
	@found=`"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'`; \
	  test "$${found:-0}" -ge 17 || { echo "Spark needs Java 17 or newer, found: $${found:-none}. Install one (openjdk-17-jre-headless on Debian), or set JAVA_HOME to it."; exit 1; }

demo: setup java ## Airflow runs and checkpoints a Spark pipeline, which is killed with -9 and brought back
	@$(RUN)/python -m airflow_provider_ckpt.testing.demo

demo-spark: setup java ## the same without Airflow, by the ckpt command
	@$(RUN)/python -m airflow_provider_ckpt.testing.demo_spark

test: setup java classes ## all tests: real Spark, Airflow, PostgreSQL, S3, HDFS, a browser, kill -9; DURATIONS=file.md: what each took
	@$(PYTEST) $(PARALLEL) --durations 25 $(if $(DURATIONS),--durations-table $(DURATIONS)) $(ARGS)

test-unit: setup ## the quick tests, a minute
	@$(PYTEST) -n 3 --dist worksteal -m "not slow" tests/unit tests/behaviours $(ARGS)

test-browser: setup java classes ## the page in a real Chromium, against a real Airflow
	@$(PYTEST) -m browser $(ARGS)

test-long: setup java classes ## all that is random or exhaustive, SEED=… and those after it, for MINUTES=… (60)
	@$(RUN)/python -m tests.harness.long_run $(or $(MINUTES),60) $(PARALLEL) -o timeout=3600 $(ARGS)

test-mutants: setup java classes ## plant one bug after the other: the gate must find each
	@$(RUN)/python -m tests.mutants $(ARGS)

classes: setup java ## make Spark quick for tests, once for this .venv
	@$(RUN)/python -m tests.harness.quick_spark

bench: setup java ## speed and memory, as ratios against something real in the same run
	@$(RUN)/python -m tests.bench $(ARGS)

check: setup ## format, lint, types, bands, images
	@$(RUN)/ruff format --check .
	@$(RUN)/ruff check .
	@$(RUN)/mypy
	@$(RUN)/lint-imports
	@$(RUN)/check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml
	@$(RUN)/hadolint docker/Dockerfile

fmt: setup ## put the code into shape
	@$(RUN)/ruff format .
	@$(RUN)/ruff check --fix .

constraints: ## resolve the newest versions anew and pin them in constraints.txt
	@rm -rf .constraints-venv && $(PYTHON) -m venv .constraints-venv
	@.constraints-venv/bin/python -m pip install --quiet '.[airflow,postgres,spark,delta,iceberg,hdfs,dev]'
	@{ sed -n '/^#/p' constraints.txt; .constraints-venv/bin/python -m pip freeze --exclude airflow-provider-ckpt; } > constraints.new
	@mv constraints.new constraints.txt && rm -rf .constraints-venv && git diff --stat constraints.txt

clean: ## remove .venv and caches
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
