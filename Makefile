# Every target sets up what it needs: `make demo`, `make test` and `make docs` work on a fresh clone with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first used, and then kept: tests start many processes, and most modules never are.
PIP := $(BIN)/pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-lower pytest lint format notebooks gallery docs docs-version dist sbom clean

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

# Every example in cells as a notebook, executed from a clean kernel; docs/gallery is what the site shows.
notebooks: $(VENV)/.dev
	$(BIN)/python tools/notebooks.py --check

gallery: $(VENV)/.dev
	$(BIN)/python tools/notebooks.py

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Into out/site, without a network. One thread: what is fitted for the reference is too small to share.
MKDOCS := NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(CURDIR)/$(BIN)/mkdocs

docs: $(VENV)/.docs
	$(MKDOCS) build --quiet
	@echo "the documents are in out/site/index.html"

# Onto the branch gh-pages, beside those of other versions: make docs-version VERSION=1.2
docs-version: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/mike deploy --update-aliases $(VERSION) latest

# Built twice and compared, each extra resolved alone, and tried in clean environments of every Python that is here.
dist: $(VENV)/.dev
	$(BIN)/python tools/dist.py --out dist --extras --smoke

# What is delivered with it, and under which licences: out/release.
sbom: $(VENV)/.dev
	$(BIN)/python tools/sbom.py --extras app,flow,mcp,mlflow,otel,ray

# A part of the tests with the oldest versions that pyproject.toml allows.
LOWER := tests/data/test_schema.py tests/data/test_infer.py tests/data/test_encoding_mixed.py tests/geometry/test_metric.py \
	tests/explainer/test_legal.py tests/explanation/test_io.py tests/explanation/test_result.py tests/fitting/test_persistence.py \
	tests/cli/test_fit.py tests/cli/test_explain.py tests/cli/test_doctor.py

test-lower: $(VENV)-lower/.lower
	OMP_NUM_THREADS=1 $(VENV)-lower/bin/python -m pytest -o addopts="-q --strict-markers" -p no:jaxtyping -m "not slow" $(LOWER)

clean:
	rm -rf $(VENV) $(VENV)-lower out dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e ".[flow]"
	touch $@

$(VENV)/.docs: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e ".[docs]"
	touch $@

$(VENV)-lower/.lower: pyproject.toml constraints-lower.txt
	$(PYTHON) -m venv $(VENV)-lower
	$(VENV)-lower/bin/pip install --no-compile --quiet --disable-pip-version-check -c constraints-lower.txt \
		-e ".[flow]" beartype hypothesis pytest pytest-timeout
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e ".[all]"
# dice-ml asks for the XGBoost that comes with gigabytes of GPU libraries and does not import it here.
	$(PIP) --no-deps dice-ml raiutils
	touch $@
