# Everything a developer does here. `make help` lists it.
SHELL := /bin/bash
PYTHON ?= python3
VENVS := .venvs
AIRFLOW := $(VENVS)/airflow/bin
KFP := $(VENVS)/kfp/bin
UV := $(shell command -v uv 2>/dev/null || echo $(VENVS)/uv/bin/uv)
INSTALL = $(UV) pip install --quiet --python
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/stepset

.DEFAULT_GOAL := help
.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-zA-Z_-]+:.*## / {printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- environments ---------------------------------------------------------------------------------------------------
# Two, because Airflow and KFP cannot share one (their requirements on `kubernetes` exclude each other). A third has the
# newest `kubernetes`, which neither takes yet.

$(VENVS)/uv/bin/uv:
	@echo "setting up uv"
	@$(PYTHON) -c 'import sys; sys.exit("stepset needs Python 3.11 or newer, this is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENVS)/uv && $(VENVS)/uv/bin/pip install --quiet --disable-pip-version-check uv

$(VENVS)/%/.done: locks/%.txt pyproject.toml | $(UV)
	@echo "setting up $(VENVS)/$*"
	@$(UV) venv --quiet --clear --python $(PYTHON) $(VENVS)/$*
	@$(INSTALL) $(VENVS)/$*/bin/python --require-hashes -r locks/$*.txt
	@$(INSTALL) $(VENVS)/$*/bin/python --no-deps -e .
	@cp tools/fewer_collections.pth $(VENVS)/$*/lib/python3.*/site-packages/
	@$(VENVS)/$*/bin/python tools/compile_used.py $(CACHE)/compiled 2>/dev/null
	@touch $@

.PHONY: setup
setup: $(VENVS)/airflow/.done ## Install the environment with Airflow and the frameworks

.PHONY: setup-kfp
setup-kfp: $(VENVS)/kfp/.done ## Install the environment with KFP
	@tools/kfp-specs $(UV)

.PHONY: setup-kubernetes
setup-kubernetes: $(VENVS)/kubernetes37/.done ## Install the environment with the newest kubernetes package

.PHONY: system
system: ## Install the Debian packages some tests use (Open MPI, MPICH), where this is Debian and you are root
	@$(PYTHON) tools/system_packages.py

.PHONY: lock
lock: | $(UV) ## Resolve the environments again
	@tools/lock $(UV)

# --- the demo -------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: setup ## Retrain a digits classifier through Airflow on 2 nodes x 2 processes, on this machine
	@$(AIRFLOW)/python tools/demo.py

.PHONY: demo-kfp
demo-kfp: setup-kfp ## The same through a Kubeflow pipeline, with KFP's local runner: no cluster, no Docker
	@$(KFP)/python -W ignore tools/demo_kfp.py

# --- checks ---------------------------------------------------------------------------------------------------------

.PHONY: test
test: system setup setup-kfp setup-kubernetes ## Run every test, the quick ones first (ONLY="airflow cluster": only these groups)
	@$(AIRFLOW)/python tools/suite.py $(ONLY)

.PHONY: quick
quick: setup ## Run the quick tests only (under two minutes)
	@$(AIRFLOW)/python -m pytest -q -m "not local and not frameworks and not airflow and not cluster"

.PHONY: cluster
cluster: ## Bring up a real Kubernetes cluster on this machine (root, Go, Debian; docs/testing/cluster.md)
	@$(PYTHON) -m tests.cluster.testbed up

.PHONY: cluster-build
cluster-build: ## Build its programs only: the first time that is some 10 minutes of two cores
	@$(PYTHON) -m tests.cluster.testbed build

.PHONY: cluster-down
cluster-down: ## Remove every trace of it
	@$(PYTHON) -m tests.cluster.testbed down

.PHONY: cluster-test
cluster-test: system setup setup-kfp setup-kubernetes ## Run the tests that need a cluster (`make cluster`, or any that KUBECONFIG names)
	@$(AIRFLOW)/python tools/suite.py cluster stack kfp-cluster kubernetes37-cluster faults

.PHONY: lint
lint: setup ## ruff, mypy and the import contracts
	@$(AIRFLOW)/ruff check .
	@$(AIRFLOW)/ruff format --check .
	@MYPY_CACHE_DIR=$(CACHE)/mypy $(AIRFLOW)/mypy
	@$(AIRFLOW)/lint-imports --no-cache

.PHONY: format
format: setup ## Format the code
	@$(AIRFLOW)/ruff check --fix --quiet . ; $(AIRFLOW)/ruff format .

.PHONY: golden
golden: setup ## Write the golden files beside examples/ anew
	@$(AIRFLOW)/python -m tests.targets.regenerate

.PHONY: docs
docs: setup ## Write docs/job-file.md from the models, the page of the example DAGs, the components' pages
	@$(AIRFLOW)/python tools/job_file_docs.py
	@$(AIRFLOW)/python tools/dag_docs.py
	@$(AIRFLOW)/python tools/kfp_readmes.py

.PHONY: screenshots
screenshots: system setup ## Take the pictures of docs/images/ anew, of a real training in a real Airflow
	@STEPSET_REQUIRE_ALL=1 STEPSET_SCREENSHOTS=docs/images $(AIRFLOW)/python -m pytest -q tests/airflow/page/test_browser.py

.PHONY: bench
bench: setup ## Measure the budgets side by side with what a user would pick instead
	@$(AIRFLOW)/python -m benchmarks

.PHONY: clean
clean: ## Remove the environments and caches
	@rm -rf $(VENVS) .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-out
