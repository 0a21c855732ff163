# make demo: the main job on FAMILY. make test: the whole suite. Both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow bench lint format clean

demo: $(VENV)/.demo
	$(BIN)/dihedral demo --out out/demo

test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.cpu

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("dihedral needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || { echo "making a virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
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
