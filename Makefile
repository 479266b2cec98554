# Each target does its own set-up: a fresh clone with Python and a C compiler is enough.
#
#   make serve          serve examples/models on port 8000             (MODELS=folder, FLAGS="--http-port 9000")
#   make test           the tests, some at a time                      (FLAGS="-x tests/wire" for some of them; AT_ONCE=0)
#   make test-debug     the fast tests on a build with bounds checks and assertions, beside this one (`make debug`)
#   make test-asan      tests of the codecs, the fronts and the whole server with all modules under AddressSanitizer and UBSan
#   make test-gpu       what needs a GPU: skipped where there is none
#   make test-c         the C code under AddressSanitizer, UBSan and ThreadSanitizer
#   make test-litmus    the words that processes share, under the memory models of C11 and arm64 (herd7)
#   make test-torch     PyTorch's models, with torch in an environment of its own (900 MB, half a minute)
#   make test-tensorflow TensorFlow's models, with tensorflow-cpu in an environment of its own (1.5 GB, minutes; not part of CI)
#   make test-onnx      all of the ONNX project's backend test data, and published weights from packages (42 MB)
#   make test-mlflow    models from the real MLflow server, in an environment of its own (1 GB, so not part of CI)
#   make test-clients   public clients, each in an environment of its own   (CLIENTS="kserve grpc_js" for some of them)
#   make test-triton-qa Triton's own QA tests that need no GPU, from a checkout beside this one (CHECKOUT=../server)
#   make test-oracle    the real Triton and tisfast answer the same requests alike   (-together and -alone: its two runs)
#   make test-install   archive, wheel and installation for every CPython found   (PYTHONS="python3.12 python3.13")
#   make test-newest    `make serve` and `make test` in a root of Debian unstable with CPython 3.14, as root (FAST=1: fast tests)
#   make test-arm64     a wheel for arm64, installed, serving and tested in a root of Debian arm64 under QEMU, as root
#   make test-wheels    the wheels of dist/ in empty roots of Debian 12, 13, unstable and one with musl, without a compiler, as root
#   make coverage       what of each package its own tests run, above a floor   (FLAGS="wire config" for some of them)
#   make wheel          a wheel in dist/ that has nghttp2 in it, for machines without   (PYTHONS="python3.12 python3.13")
#   make wheel-arm64    the same for arm64, cross-compiled in a root of Debian 13, as root
#   make lint types     ruff and import layers; mypy
#   make bench          the real Triton and tisfast side by side, about 35 minutes (FLAGS=--quick for 7)
#   make bench-backends TorchScript and ONNX beside themselves without a server, forests beside MLServer, 10 minutes
#   make bench-gpu      tensors on a GPU beside bare copies and a bare module, 2 minutes   (GPU_PYTHON=python3, which has torch)
#   make digits-backends the digits in files of seven frameworks: train, serve, one table of accuracy and latency
#   make digits         send handwritten digits to a running `make serve`, show what is read wrong
#   make clean
#
# VENV: where the virtual environment lies; PYTHON: what makes it; JOBS: of the build; AT_ONCE: files of tests that run at
# one time, of which many wait for servers; 0 for one after the other in one process.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?= python3
PYTHONS ?=
GPU_PYTHON ?= $(PY)
VENV ?= .venv
MODELS ?= examples/models
FLAGS ?=
CHECKOUT ?=
CLIENTS ?=
JOBS ?= $(shell nproc)
AT_ONCE ?= $(shell expr $(JOBS) \* 2)
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
# What was done lies where it was done: with the environment goes the knowledge of what is in it.
DONE := $(VENV)/.tisfast
SOURCES := $(shell find tisfast -name '*.pyx' -o -name '*.pxd' -o -name '*.proto') $(wildcard csrc/*.[ch]) setup.py \
	$(wildcard workers/tisfast_worker/*.p[xy][dx]) $(wildcard $(patsubst %.pxd,%.py,$(wildcard workers/tisfast_worker/*.pxd)))
PYTEST := $(PY) -m pytest -n $(AT_ONCE) --dist loadfile
# pytest's 5 says that no test is left; where somebody chose some, they may all be in the other of two runs.
NONE_CHOSEN = $(if $(FLAGS),[ $$? = 5 ],false)
BUILD := setup.py --quiet build_proto build_ext --inplace
DEBUG_TREE := build/debug
FAST_TESTS := $(addprefix tests/,native engine functions wire operations telemetry front processes models workers system/test_server_life.py)
DEBUG_TESTS ?= $(FAST_TESTS)
# Of these another Python, compiler or nghttp2 may make something else.
NEWEST_TESTS := $(FAST_TESTS) tests/environments tests/repo tests/install
ONNX_TESTS := $(shell grep -l 'make test-onnx' tests/*/test_*.py)
TORCH_TESTS := $(shell grep -l 'make test-torch' tests/*/test_*.py)
TENSORFLOW_TESTS := $(shell grep -l 'make test-tensorflow' tests/*/test_*.py)
FAST ?=
COVERAGE_TREE := build/coverage
ASAN_TREE := build/asan
ASAN_TESTS ?= tests/native tests/wire tests/codec tests/operations/grpc tests/front/grpc tests/front/test_connection.py \
	tests/front/test_promised_blocks.py tests/system/test_hostile_clients.py tests/system/test_server_life.py
export PYTHONPATH := $(CURDIR)
export TISFAST_JOBS := $(JOBS)
unexport TISFAST_DEBUG TISFAST_SANITIZE TISFAST_COVERAGE # what is built here is the release; `make debug` builds the other beside it
unexport PYTHONDONTWRITEBYTECODE # some thousands of processes read the same modules: one of them compiles each

.PHONY: help serve setup test test-debug debug test-asan asan test-gpu test-torch test-tensorflow test-onnx test-mlflow \
	test-clients test-triton-qa test-c test-oracle test-oracle-together test-oracle-alone test-install test-newest \
	test-litmus test-arm64 test-wheels coverage wheel wheel-arm64 lint types bench bench-backends bench-gpu digits digits-backends clean

help:
	@sed -n '2,/^$$/s/^# \?//p' Makefile

serve: $(DONE)/built
	@exec $(PY) -m tisfast serve --model-repository $(MODELS) $(FLAGS)

setup: $(DONE)/built

test: $(DONE)/built $(DONE)/test
	$(PYTEST) $(FLAGS)

lint: $(DONE)/lint
	$(PY) -m ruff check tisfast tests perf examples .ci setup.py backend.py
	$(PY) -m ruff check --config workers/ruff.toml workers
	$(VENV)/bin/lint-imports

types: $(DONE)/built $(DONE)/lint
	$(PY) -m mypy
	$(PY) -m mypy examples/typed_client.py examples/functions/typed.py
	@echo "stubs of compiled modules, beside what they are"
	@$(PY) -m mypy.stubtest --concise --ignore-disjoint-bases --ignore-missing-stub --allowlist tests/stubtest.txt \
	  --mypy-config-file pyproject.toml $(subst /,.,$(basename $(shell find tisfast -name '*.pyi')))

test-gpu: $(DONE)/built $(DONE)/test
	$(PY) -m pytest -rs tests/gpu $(FLAGS)

# Few files, of which one takes as long as all others: not file by file.
test-torch: $(DONE)/built $(DONE)/torch
	$(VENV)/torch/bin/python -m pytest -n $(AT_ONCE) --dist worksteal $(TORCH_TESTS) $(FLAGS)

test-tensorflow: $(DONE)/built $(DONE)/tensorflow
	$(VENV)/tensorflow/bin/python -m pytest -n $(AT_ONCE) --dist loadfile $(TENSORFLOW_TESTS) $(FLAGS)

test-onnx: $(DONE)/built $(DONE)/test $(DONE)/weights
	TISFAST_ONNX_WHOLE=1 TISFAST_PUBLISHED_WEIGHTS=$(abspath $(VENV))/weights $(PY) -m pytest -n $(AT_ONCE) $(ONNX_TESTS) $(FLAGS)

test-mlflow: $(DONE)/built $(DONE)/test $(DONE)/mlflow
	TISFAST_MLFLOW=$(abspath $(VENV))/mlflow/bin/mlflow $(PY) -m pytest tests/storage/test_mlflow_registry.py $(FLAGS)

# Environments that are there already are kept.  Each test waits for programs of its own: not file by file.
test-clients: $(DONE)/built $(DONE)/test
	$(PY) -m tests.clients.environments $(VENV)/clients $(CLIENTS)
	TISFAST_CLIENTS=$(abspath $(VENV))/clients $(PY) -m pytest -n $(AT_ONCE) tests/clients $(FLAGS)

# Its tests want the ports 8000 to 8002, so it has a network of its own where that can be had.
test-triton-qa: $(DONE)/built $(DONE)/test
	@test -d "$(CHECKOUT)/qa" || { echo "name a checkout of triton-inference-server/server: CHECKOUT=folder" >&2; exit 2; }
	TISFAST_TRITON_CHECKOUT=$(abspath $(CHECKOUT)) .ci/own-network $(PY) -m pytest tests/triton_qa $(FLAGS)

test-c: $(DONE)/sanitizers
	csrc/test/run.sh

test-oracle: test-oracle-together test-oracle-alone

test-oracle-together: $(DONE)/built $(DONE)/test
	$(PYTEST) -m "oracle and not alone" tests/oracle $(FLAGS) || $(NONE_CHOSEN)

test-oracle-alone: $(DONE)/built $(DONE)/test
	$(PY) -m pytest -m "oracle and alone" tests/oracle $(FLAGS) || $(NONE_CHOSEN)

test-install: $(DONE)/dependencies
	$(PY) -m tests.install.smoke $(PYTHONS)

test-newest:
	@FLAGS="$(if $(FAST),$(NEWEST_TESTS)) $(FLAGS)" .ci/newest "python3.14 -m tests.install.made && make test"

test-litmus:
	@.ci/litmus

test-arm64:
	@.ci/arm64 test

test-wheels:
	@.ci/wheels

wheel-arm64:
	@.ci/arm64 wheel

wheel: $(DONE)/wheel
	$(PY) -m tests.install.wheel dist $(PYTHONS)

bench: $(DONE)/built $(DONE)/test
	$(PY) -m perf.bench $(FLAGS)

bench-backends: $(DONE)/built $(DONE)/torch $(DONE)/mlserver
	$(VENV)/torch/bin/python -m perf.macro.frameworks $(FLAGS)
	$(PY) -m perf.macro.forests --mlserver $(VENV)/mlserver/bin/mlserver $(FLAGS)

bench-gpu:
	$(GPU_PYTHON) -m perf.macro.gpu $(FLAGS)

digits-backends: $(DONE)/built $(DONE)/frameworks
	$(VENV)/frameworks/bin/python examples/digits_frameworks.py $(FLAGS)

digits: $(DONE)/test
	$(PY) examples/digits_client.py $(FLAGS)

# A tree of its own: this one stays what `make serve` serves.  Its compiled modules are kept, all else is copied anew.
define copied
	@mkdir -p $(1)
	@find $(1) \( -path $(1)/build -o -path $(1)/.cache \) -prune -o -type f ! -name '*.so' -exec rm -f {} +
	@tar -c --exclude='*.so' --exclude=__pycache__ tisfast workers csrc tests perf examples setup.py backend.py pyproject.toml \
		README.md | tar -x -C $(1)
endef

debug: $(DONE)/dependencies
	$(call copied,$(DEBUG_TREE))
	cd $(DEBUG_TREE) && TISFAST_DEBUG=1 $(abspath $(PY)) $(BUILD)

test-debug: debug $(DONE)/test
	cd $(DEBUG_TREE) && PYTHONPATH=$(CURDIR)/$(DEBUG_TREE) $(abspath $(PY)) -m pytest -n $(AT_ONCE) --dist loadfile $(DEBUG_TESTS) $(FLAGS)

# On two busy cores built in 3 to 5 minutes, and tested in 5 to 8: not part of CI.
asan: $(DONE)/dependencies $(DONE)/sanitizers
	$(call copied,$(ASAN_TREE))
	cd $(ASAN_TREE) && TISFAST_SANITIZE=1 TISFAST_DEBUG=1 $(abspath $(PY)) $(BUILD)

test-asan: asan $(DONE)/test
	cd $(ASAN_TREE) && PYTHONPATH=$(CURDIR)/$(ASAN_TREE) $(CURDIR)/.ci/sanitized $(CURDIR)/$(ASAN_TREE)/reports \
		$(abspath $(PY)) -m pytest -n $(AT_ONCE) --dist loadfile $(ASAN_TESTS) $(FLAGS)

coverage: $(DONE)/test $(DONE)/coverage
	$(call copied,$(COVERAGE_TREE))
	cd $(COVERAGE_TREE) && TISFAST_COVERAGE=1 $(abspath $(PY)) $(BUILD)
	cd $(COVERAGE_TREE) && PYTHONPATH=$(CURDIR)/$(COVERAGE_TREE) $(abspath $(PY)) -m tests.coverage.measure \
		--at-once $(if $(filter 0,$(AT_ONCE)),1,$(AT_ONCE)) $(FLAGS)

clean:
	rm -rf build .venv $(DONE) tisfast.egg-info workers/libtisfast_shm.so tisfast/wire/proto/triton.desc
	find tisfast workers -name '*.so' -delete
	find . -name __pycache__ -prune -exec rm -rf {} +

# ---- set-up, each step once

$(DONE)/tools:
	@.ci/system-tools build $(PYTHON)
	@mkdir -p $(DONE)
	@touch $@

$(DONE)/sanitizers: $(DONE)/tools
	@.ci/system-tools sanitizers
	@touch $@

$(PY): | $(DONE)/tools
	$(PYTHON) -m venv $(VENV)

$(DONE)/dependencies: pyproject.toml | $(PY)
	$(PY) .ci/requirements.py build protoc run > $(DONE)/requirements.txt
	$(PIP) -r $(DONE)/requirements.txt
	@touch $@

$(DONE)/test: pyproject.toml | $(DONE)/dependencies
	@.ci/system-tools tests || echo "the tests that need it are skipped"
	$(PY) .ci/requirements.py test examples > $(DONE)/requirements-test.txt
	$(PIP) -r $(DONE)/requirements-test.txt
	@touch $@

# What is in the other environment is found from these, too: the framework is all that they have themselves.
$(DONE)/torch $(DONE)/tensorflow: $(DONE)/%: pyproject.toml | $(DONE)/test
	$(PYTHON) -m venv $(VENV)/$*
	$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $(DONE)/beside.pth
	cp $(DONE)/beside.pth $$($(VENV)/$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	$(PY) .ci/requirements.py $*-test > $(DONE)/requirements-$*.txt
	$(VENV)/$*/bin/python -m pip --disable-pip-version-check install --quiet -r $(DONE)/requirements-$*.txt
	@touch $@

# Nothing but the way to the others.
$(DONE)/frameworks: $(DONE)/torch $(DONE)/tensorflow
	$(PYTHON) -m venv --without-pip $(VENV)/frameworks
	for each in torch tensorflow; do $(VENV)/$$each/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; done \
	  | cat $(DONE)/beside.pth - > $$($(VENV)/frameworks/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth
	@touch $@

# Files of weights only: what the packages need to run is not installed.
$(DONE)/weights: pyproject.toml | $(PY)
	$(PY) .ci/requirements.py published-weights > $(DONE)/requirements-weights.txt
	$(PIP) --no-deps --upgrade --target $(VENV)/weights -r $(DONE)/requirements-weights.txt
	@touch $@

$(DONE)/mlflow: pyproject.toml | $(DONE)/tools
	$(PYTHON) -m venv $(VENV)/mlflow
	$(PY) .ci/requirements.py mlflow > $(DONE)/requirements-mlflow.txt
	$(VENV)/mlflow/bin/python -m pip --disable-pip-version-check install --quiet -r $(DONE)/requirements-mlflow.txt
	@touch $@

$(DONE)/mlserver: pyproject.toml | $(DONE)/tools
	$(PYTHON) -m venv $(VENV)/mlserver
	$(PY) .ci/requirements.py mlserver > $(DONE)/requirements-mlserver.txt
	$(VENV)/mlserver/bin/python -m pip --disable-pip-version-check install --quiet -r $(DONE)/requirements-mlserver.txt
	@touch $@

$(DONE)/coverage: pyproject.toml | $(DONE)/dependencies
	$(PY) .ci/requirements.py coverage > $(DONE)/requirements-coverage.txt
	$(PIP) -r $(DONE)/requirements-coverage.txt
	@touch $@

$(DONE)/lint: pyproject.toml | $(DONE)/dependencies
	$(PY) .ci/requirements.py lint > $(DONE)/requirements-lint.txt
	$(PIP) -r $(DONE)/requirements-lint.txt
	@touch $@

$(DONE)/wheel: pyproject.toml | $(DONE)/dependencies
	$(PY) .ci/requirements.py wheel > $(DONE)/requirements-wheel.txt
	$(PIP) -r $(DONE)/requirements-wheel.txt
	@touch $@

# In place: the tree is what runs, and an edited .py file needs no build, but for those of workers with a .pxd.
$(DONE)/built: $(SOURCES) $(DONE)/dependencies
	$(PY) $(BUILD)
	@touch $@
