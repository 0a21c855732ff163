# Development tasks: every target creates .venv when needed and installs what requirements/ lists, checked by hashes. torch
# is the one exception: it may be a local build, so it is installed by the version in constraints.txt. Nothing is installed
# outside .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

unexport PYTHONDONTWRITEBYTECODE  # modules that are compiled once start every other process faster

.PHONY: demo test test-all test-slow flaky coverage soak bench docs lint format clean

# Train and query a model of the FAMILY graph.
demo: $(VENV)/.demo
	$(BIN)/dihedral demo --out out/demo

# Browser tests are skipped when chromium is not installed.
test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow and not thorough"

# The same, then what it leaves out: pages of the documentation, notebooks, figures of the paper, faults, most browser
# tests, several processes; and properties again with more examples.
test-all: test
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n 2 -m "not slow and (thorough or hypothesis)"

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

# Every test that starts a browser, a process, a server, a timer or a thread, 30 times on busy cores.
flaky: $(VENV)/.dev
	$(BIN)/python -m tests.flaky --times 30

coverage: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not slow" --cov --cov-report=term --cov-report=html:out/coverage

# Kills, full disks, damaged and hostile files (half an hour), vanishing clients, then half an hour of traffic and
# attacks on a server.
soak: $(VENV)/.dev
	$(BIN)/python -m soak
	$(BIN)/python -m soak.vanishing
	$(BIN)/python -m benchmarks.hub --runs 1
	$(BIN)/python -m soak.review
	$(BIN)/python -m soak.server --minutes 30 --clients 16

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.cpu

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -n 2
	$(BIN)/lint-imports
	$(BIN)/python requirements/audit.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) out .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit("dihedral needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || { echo "creating a virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@touch $@

$(VENV)/.demo: $(VENV)/.venv requirements/demo.txt constraints.txt pyproject.toml
	@echo "installing packages (the first time takes a minute)"
	$(PIP) --no-deps --require-hashes -r requirements/demo.txt
	$(PIP) -c constraints.txt torch
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo requirements/dev.txt
	@echo "installing the development tools"
	$(PIP) --no-deps --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) -c constraints.txt -e '.[bench]'
	@touch $@
