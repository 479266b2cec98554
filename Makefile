# Each target does its own set-up: a fresh clone with Python and a C compiler is enough.
#   make serve | test | lint | types | test-c | test-oracle | bench | debug | clean
# VENV: where the virtual environment lies; PYTHON: what makes it; MODELS: what `make serve` serves; FLAGS: further
# arguments of serve, test, test-oracle and bench; JOBS: of the build.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?= python3
VENV ?= .venv
MODELS ?= examples/models
FLAGS ?=
JOBS ?= $(shell nproc)
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
BUILD := build/.stamps
SOURCES := $(shell find tisfast -name '*.pyx' -o -name '*.pxd' -o -name '*.proto') $(wildcard csrc/*.[ch]) setup.py
ifeq ($(TISFAST_DEBUG),1)
BUILT := $(BUILD)/debug
else
BUILT := $(BUILD)/release
endif
export PYTHONPATH := $(CURDIR)

.PHONY: serve test lint types test-c test-oracle bench debug clean setup

serve: $(BUILT)
	exec $(PY) -m tisfast serve --model-repository $(MODELS) $(FLAGS)

setup: $(BUILT)

test: $(BUILT) $(BUILD)/test
	$(PY) -m pytest $(FLAGS)

lint: $(BUILD)/lint
	$(PY) -m ruff check tisfast tests perf examples setup.py
	$(PY) -m ruff check --config workers/ruff.toml workers
	$(VENV)/bin/lint-imports

types: $(BUILD)/lint
	$(PY) -m mypy

test-c: $(BUILD)/tools
	csrc/test/run.sh

test-oracle: $(BUILT) $(BUILD)/test
	$(PY) -m pytest -m oracle tests/oracle $(FLAGS)

bench: $(BUILT) $(BUILD)/test
	$(PY) -m perf.bench $(FLAGS)

# The same build with counters and assertions on; run the tests on it with `make test TISFAST_DEBUG=1`.
debug:
	$(MAKE) TISFAST_DEBUG=1 setup

clean:
	rm -rf build .venv tisfast.egg-info workers/libtisfast_shm.so tisfast/wire/proto/triton.desc
	find tisfast -name '*.so' -delete -o -name '*.c' -delete
	find . -name __pycache__ -prune -exec rm -rf {} +

# ---- set-up, each step once

# A C compiler and Python's headers are all that the build needs from the system.
$(BUILD)/tools:
	@mkdir -p $(BUILD)
	@.ci/system-tools $(PYTHON)
	@touch $@

$(PY): | $(BUILD)/tools
	$(PYTHON) -m venv $(VENV)

$(BUILD)/dependencies: pyproject.toml | $(PY)
	$(PY) .ci/requirements.py build run > $(BUILD)/requirements.txt
	$(PIP) -r $(BUILD)/requirements.txt
	@touch $@

$(BUILD)/test: pyproject.toml | $(BUILD)/dependencies
	$(PY) .ci/requirements.py test examples > $(BUILD)/requirements-test.txt
	$(PIP) -r $(BUILD)/requirements-test.txt
	@touch $@

$(BUILD)/lint: pyproject.toml | $(BUILD)/dependencies
	$(PY) .ci/requirements.py lint > $(BUILD)/requirements-lint.txt
	$(PIP) -r $(BUILD)/requirements-lint.txt
	@touch $@

# In place: the tree is what runs, and an edited .py file needs no build.
$(BUILT): $(SOURCES) $(BUILD)/dependencies
	@rm -f $(BUILD)/release $(BUILD)/debug
	TISFAST_JOBS=$(JOBS) $(PY) setup.py --quiet build_proto build_ext --inplace --parallel $(JOBS) $(if $(TISFAST_DEBUG),--force)
	@touch $@
