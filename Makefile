# Every target sets up what it needs: `make demo` and `make test` work on a fresh clone with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first used, and then kept: tests start many processes, and most modules never are.
PIP := $(BIN)/pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow pytest lint format clean

demo: $(VENV)/.demo
	$(BIN)/counterpath demo

# The checks run beside the tests, in which there are moments when nobody computes; if either fails, so does this.
test: $(VENV)/.dev
	+$(MAKE) --no-print-directory -j 2 lint pytest

# A file's tests share their fixtures, so they run in one process; models that many files need are fitted once. There is
# a process for each core, so each has one thread. Whole runs come first: tests/conftest.py says why.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

pytest: $(VENV)/.dev
	$(PYTEST) -m "not slow"

# What `make test` tries at a smaller size, at its full one; properties on all of their examples.
test-slow: $(VENV)/.dev
	COUNTERPATH_PROPERTIES=all $(PYTEST) -m "slow or hypothesis"

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) out

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e ".[flow]"
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e ".[all]"
# dice-ml asks for the XGBoost that comes with gigabytes of GPU libraries and does not import it here.
	$(PIP) --no-deps dice-ml raiutils
	touch $@
