# Development tasks: every target creates .venv when needed and installs the pinned versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow coverage soak bench docs lint format clean

# Train and query a model of the FAMILY graph.
demo: $(VENV)/.demo
	$(BIN)/dihedral demo --out out/demo

# Browser tests are skipped when chromium is not installed.
test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

coverage: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not slow" --cov --cov-report=term --cov-report=html:out/coverage

# Three minutes of kills, full disks and damaged files, then half an hour of traffic and attacks on a server.
soak: $(VENV)/.dev
	$(BIN)/python -m soak
	$(BIN)/python -m soak.server --minutes 30 --clients 16

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.cpu

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) out .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("dihedral needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || { echo "creating a virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing torch (the first time takes a minute)"
	$(PIP) torch
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(PIP) -e '.[plots]'
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	@echo "installing the development tools"
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.demo

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) -e '.[bench]'
	@touch $@
