# `make train` trains a model and `make test` runs every test, each from a machine that has nothing but
# Python 3.11, apt and pip. Whatever they set up is kept, so the second call starts at once.

VENV       ?= .venv
VENV215    ?= .venv-tf215
TENSORFLOW ?= tensorflow-cpu
PYTHON     ?= $(shell command -v python3.11 || echo python3)
DATA       ?= census
HET_MARCH  ?= default
JOBS       ?= 2

# Warnings and errors only: our own lines are to be seen.
export TF_CPP_MIN_LOG_LEVEL ?= 1

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:  # each stage uses both cores by itself

STAGE := tools/stage.sh
PY    := $(VENV)/bin/python
PY215 := $(VENV215)/bin/python

# A stamp's name carries the hash of what was installed: set-up happens again when a file changes.
REQUIREMENTS := requirements/build.txt requirements/tensorflow.txt requirements/dev.txt
hash      = $(shell (echo $(1) $(CURDIR); cat $(2)) | sha256sum | cut -c1-12)
STAMP    := $(VENV)/.het-$(call hash,$(TENSORFLOW),$(REQUIREMENTS) tools/make_venv.sh tools/install_horovod.sh)
STAMP215 := $(VENV215)/.het-$(call hash,,requirements/tf215.txt tools/make_venv.sh)

.PHONY: help
help: ## this list
	@echo "usage: make TARGET [VENV=.venv] [PYTHON=python3.11] [TENSORFLOW=tensorflow-cpu|tensorflow]"
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# --- set-up ---------------------------------------------------------------------------------------
.PHONY: setup system venv venv215
setup: system venv ## compilers, .venv with TensorFlow, Keras and Horovod; once

system:
	@$(STAGE) system "system packages (compiler, CMake, GoogleTest)" tools/system_packages.sh "$(PYTHON)"

venv: $(STAMP)
venv215: $(STAMP215)

$(STAMP): | system
	@mkdir -p build && sed 's/^tensorflow-cpu==/$(TENSORFLOW)==/' requirements/tensorflow.txt >build/tensorflow.txt
	@$(STAGE) venv "$(VENV): $(TENSORFLOW), Keras and tools (versions pinned in requirements/)" \
	  tools/make_venv.sh "$(PYTHON)" "$(VENV)" requirements/build.txt build/tensorflow.txt requirements/dev.txt
	@$(STAGE) horovod "Horovod (built once for this TensorFlow; 1-2 minutes)" \
	  tools/install_horovod.sh "$(VENV)"
	@touch $@

$(STAMP215): | system
	@$(STAGE) venv215 "$(VENV215): TensorFlow 2.15.1 with Keras 2.15 (compatibility tests)" \
	  tools/make_venv.sh "$(PYTHON)" "$(VENV215)" requirements/tf215.txt
	@touch $@

# --- build ----------------------------------------------------------------------------------------
.PHONY: build plugin
CMAKE_ARGS = -DPython3_EXECUTABLE="$(abspath $(PY))" -DHET_MARCH="$(HET_MARCH)"
# $(call cmake,PRESET,TARGET,MORE_ARGUMENTS)
cmake = bash -c 'cmake --preset $(1) $(CMAKE_ARGS) $(3) && cmake --build --preset $(1) --target $(2) -j $(JOBS)'

build: setup ## plugin, C++ tests and libhet_testing.so; HET_MARCH= builds for older CPUs
	@$(STAGE) build "native build, all of it (only what changed)" $(call cmake,release,all)

plugin: setup
	@$(STAGE) plugin "native build of the plugin (only what changed)" $(call cmake,release,het_plugin)

# --- train ----------------------------------------------------------------------------------------
.PHONY: train
train: plugin ## train Wide & Deep on the census data, from nothing
	@echo "==> training Wide & Deep (examples/wide_deep.py --data $(DATA))"
	@$(PY) examples/wide_deep.py --data $(DATA)

# --- test -----------------------------------------------------------------------------------------
.PHONY: test test-fast test-all test-cpp test-sanitizers test-tf215
# A file of tests stays in one process: its tests share a server. Files in their order: by number of tests,
# those that start jobs of several processes would all come last, beside each other.
PYTEST := -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=20

test-cpp: build
	@$(STAGE) ctest "C++ tests, release" ctest --preset release -j $(JOBS)

# Redis loads the module of the release build: its server has no sanitizer.
MODULE := -DHET_MODULE="$(CURDIR)/build/release/het.so"
test-sanitizers: build
	@$(STAGE) build-asan-ubsan "C++ tests, build with ASan and UBSan (memory errors)" $(call cmake,asan-ubsan,all,$(MODULE))
	@$(STAGE) ctest-asan-ubsan "C++ tests under ASan and UBSan" ctest --preset asan-ubsan -j $(JOBS)
	@$(STAGE) build-tsan "C++ tests, build with TSan (data races)" $(call cmake,tsan,all,$(MODULE))
	@$(STAGE) ctest-tsan "C++ tests under TSan" ctest --preset tsan -j $(JOBS)

# Servers, jobs of several processes and examples are slow: `make test` runs them on the newer TensorFlow.
TF215_TESTS = tf215 and not slow and not long
test-tf215: build venv215
	@$(STAGE) --show pytest-tf215 "Python tests on TensorFlow 2.15 (the same libhet_tf.so)" \
	  $(PY215) $(PYTEST) -m "$(TF215_TESTS)" -q

# pytest comes last: its summary is the last thing to be seen.
test: test-cpp test-sanitizers test-tf215 ## every test but those that take minutes; on TensorFlow 2.15 the fast ones
	@$(STAGE) --show pytest "Python tests on TensorFlow 2.21" $(PY) $(PYTEST) -m "not long"

test-fast: build ## fast tests only (about five minutes)
	@$(STAGE) ctest "C++ tests, release, a tenth of the random ones" \
	  env HET_TEST_SCALE=0.1 ctest --preset release -j $(JOBS) -L test
	@$(STAGE) --show pytest "fast Python tests" $(PY) $(PYTEST) -m "not slow and not long"

test-all: TF215_TESTS = tf215
test-all: test-cpp test-sanitizers test-tf215 ## every test, on two TensorFlows
	@$(STAGE) --show pytest "Python tests on TensorFlow 2.21, the long ones too" $(PY) $(PYTEST)

# --- the rest -------------------------------------------------------------------------------------
.PHONY: format lint docs-check mutants wheel doctor clean distclean
CXX_FILES = $(shell find het_tf tests benchmarks -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)
PY_FILES  = $(wildcard het_tf tests examples benchmarks tools setup.py cmake)

format: setup ## clang-format and ruff, in place
	@[ -z "$(CXX_FILES)" ] || $(VENV)/bin/clang-format -i $(CXX_FILES)
	@$(VENV)/bin/ruff format -q $(PY_FILES)
	@$(VENV)/bin/ruff check -q --fix $(PY_FILES)

lint: setup ## clang-format, ruff and mypy: complain, change nothing
	@echo "==> clang-format, ruff, mypy, docs"
	@[ -z "$(CXX_FILES)" ] || $(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	@$(VENV)/bin/ruff format --check -q $(PY_FILES)
	@$(VENV)/bin/ruff check -q $(PY_FILES)
	@$(VENV)/bin/mypy
	@$(PY) tools/check_docs.py
	@$(PY) tools/check_arrows.py
	@$(PY) tools/mutants.py --check

mutants: setup ## breaks the code in every way of tests/mutants.toml: which tests notice? (docs/mutants.md)
	@$(PY) tools/mutants.py -j $(JOBS)

docs-check: ## links and make targets named in the documents exist
	@$(PYTHON) tools/check_docs.py

DIST ?= dist
wheel: setup ## dist/het_tf-*.whl
	@$(STAGE) wheel "wheel (plugin built against the TensorFlow in $(VENV))" \
	  $(PY) -m pip wheel --no-build-isolation --no-deps -w "$(DIST)" .
	@ls "$(DIST)"/*.whl

doctor: ## what was built, against what, and what is missing
	@$(if $(wildcard $(PY)),$(PY),$(PYTHON)) -m het_tf.doctor

clean: ## remove builds, keep environments
	rm -rf build dist het_tf/lib *.egg-info

distclean: clean ## remove environments too
	rm -rf .venv .venv-tf215 .peers
