# The everyday jobs. Each sets up what it needs, can be repeated, and is quick the second time.
# Needs Python >= 3.11 with venv and pip, make and a C++17 compiler; everything else comes through pip.

PYTHON ?= python3
# More words for pytest: make test ARGS="tests/test_tick.py -k monotone"
ARGS ?=
# What `make test` draws other tests with than those of every day: a number, or random (tests/drawing.py).
SEED ?=

VENV := .venv
BIN := $(VENV)/bin
MODEL := $(VENV)/models/all-MiniLM-L6-v2
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# What the installed package is made from, besides the Python files, which are used where they lie.
BUILD_INPUTS := pyproject.toml CMakeLists.txt python/rlx/version.py $(wildcard cmake/*.cmake lib/*)

.DEFAULT_GOAL := help
# Two set-ups at once would write into one environment.
.NOTPARALLEL:
.PHONY: help demo test test-ci test-all bench dialect lint format docs docs-site wheels clean
MAKEFLAGS += --no-print-directory
# The tests start hundreds of processes: without byte code, each compiles the whole package again.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## embed sentences with all-MiniLM-L6-v2 (fetches the model, 90 MB, once)
	@echo "demo: model"
	@$(BIN)/python tools/fetch_minilm.py --output $(MODEL)
	@echo "demo: examples/minilm.py"
	@$(BIN)/python examples/minilm.py --model $(MODEL)

# With worksteal a worker runs neighbouring tests, and so shares their fixtures, for as long as both are busy.
PYTEST = $(BIN)/python -m pytest -n 3 --dist worksteal --durations 15 $(if $(SEED),--seed=$(SEED))

test: $(VENV)/.installed ## run a sample of the tests, 10 minutes; SEED=… draws another, ARGS="…" goes to pytest
	@$(PYTEST) --quick $(ARGS)

test-ci: $(VENV)/.installed ## run the tests that CI runs: the sample, and all tests that are costly
	@$(PYTEST) $(ARGS)

test-all: $(VENV)/.installed ## run all tests
	@$(PYTEST) --full $(ARGS)

bench: tools/bench.py $(VENV)/.installed-bench ## measure against the other libraries
	@$(BIN)/python tools/bench.py $(ARGS)

dialect: $(VENV)/.installed ## regenerate what comes from dialect/*.td
	@$(BIN)/python -m tools.generate_dialect

docs: $(VENV)/.installed ## regenerate the tables in docs/ and the type stubs
	@$(BIN)/python -m tools.generate_docs
	@$(BIN)/python -m tools.generate_stubs

docs-site: $(VENV)/.installed-docs ## build docs/ and the pages of the Python API as a site in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "docs-site: build/site/index.html (to search, serve it: python3 -m http.server -d build/site)"

wheels: $(VENV)/.installed ## build the wheels of rlx and rlx-deploy in dist
	@mkdir -p dist
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@$(BIN)/python -m tools.deploy_wheel --output dist >/dev/null
	@ls dist/*.whl

lint: $(VENV)/.installed-dev ## ruff and pyright
	@echo "lint: ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "lint: ruff format"
	@$(BIN)/ruff format --check --quiet .
	@echo "lint: pyright"
	@$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.installed-dev ## rewrite the Python files as ruff wants them
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

clean: ## remove everything that was built or installed here
	@rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis python/rlx/_native.*
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: touched last, so that an interrupted set-up starts again.
.PRECIOUS: $(VENV)/.python $(VENV)/.installed $(VENV)/.installed-dev $(VENV)/.installed-bench $(VENV)/.installed-docs

$(VENV)/.python:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "setup: $(PYTHON) is not Python 3.11 or newer with venv and pip; try make PYTHON=python3.12" >&2; exit 1; }
	@echo "setup: $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.python $(BUILD_INPUTS)
	@echo "setup: pip install -e '.[test,text]' (some minutes the first time)"
	@$(PIP_INSTALL) -e '.[test,text]'
	@touch $@

$(VENV)/.installed-dev $(VENV)/.installed-bench $(VENV)/.installed-docs: $(VENV)/.installed-%: $(VENV)/.python $(BUILD_INPUTS)
	@echo "setup: pip install -e '.[$*,test,text]'"
	@$(PIP_INSTALL) -e '.[$*,test,text]'
	@touch $(VENV)/.installed $@
