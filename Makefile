# make demo: the main job on FAMILY. make test: the whole suite. Both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow soak bench docs lint format chromium clean

demo: $(VENV)/.demo
	$(BIN)/dihedral demo --out out/demo

test: lint chromium
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

# three minutes of kills, full disks and damaged files, then half an hour of traffic and attacks on a server
soak: $(VENV)/.dev
	$(BIN)/python -m soak
	$(BIN)/python -m soak.server --minutes 30 --clients 16

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.cpu

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

# the tests of the explorer look at it in a real browser
chromium:
	@command -v chromium > /dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	    echo "installing chromium"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium > /dev/null; \
	  else echo "no chromium here: tests in a browser are skipped (Debian: apt-get install chromium)"; fi; }

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
