# SPDX-License-Identifier: Apache-2.0
# Every target works from a fresh clone: it makes .venv, installs what it needs, and does its job.

VENV := .venv
BIN := $(VENV)/bin
# The first of these that runs, is new enough and can make virtual environments.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	>/dev/null 2>&1 && { echo "$$p"; break; }; done)
# Of two cores. The stories wait most of their time; each process of the tests has a cluster of its own.
E2E_AT_ONCE ?= 5
UNIT_AT_ONCE ?= 3
# These hold stories alone, which each process would import to throw them away.
UNIT = --ignore=tests/e2e --ignore=tests/real
PYTEST_ARGS ?=
# `make e2e STORIES="tests/e2e/test_gangs.py"` runs all stories of these files. CONTRIBUTING.md lists
# the files of each package.
STORIES ?=
# Only the files that have stories: collecting the others as well takes each process a while.
STORY_FILES = $(or $(STORIES),$(sort $(shell grep -lrE 'mark\.e2e' --include='test_*.py' tests)))
# Half of the time of an API server in a story would go into collecting its garbage, so it waits until
# there is much; and there are more of them than cores.
E2E = GOGC=1000 GOMEMLIMIT=2GiB GOMAXPROCS=1 $(BIN)/python -m pytest $(STORY_FILES) $(PYTEST_ARGS) \
	--dist loadfile -n $(E2E_AT_ONCE)
# `make test-all` runs a sample of these.
WHOLE = MUSTER_ORACLE_PAIRS=10000 MUSTER_CORPUS=whole MUSTER_NAMESPACES=200 \
	MUSTER_OLDER=yes
SAMPLED = test_oracle or test_corpus or test_many_namespaces or test_native
ALONE = GOGC=1000 GOMEMLIMIT=2GiB $(BIN)/python -m pytest -n 0 $(PYTEST_ARGS)
# `make faults FAULT_SEEDS=17` plays one schedule again, `FAULT_REPORT=yes` writes the table of
# docs/reliability.md.
FAULT_SEEDS ?= 0-199
# The schedules of `make test`, and those that `make test-all` adds; `make nightly` plays 1,000.
FAULT_SAMPLE ?= 0-7
FAULT_REST ?= 8-31
FAULT_REPORT ?=
HOSTILE ?= whole
# Needs root; what a machine lacks is said, and its tests are skipped.
REAL = $(BIN)/python -m pytest -m real -n 0 -rs $(PYTEST_ARGS)
# `REAL_REPORT=yes` writes the table of docs/real.md.
REAL_REPORT ?=
BENCH_ARGS ?=
# `make trace TRACE=FOLDER TRACE_ARGS=--write` writes docs/trace.md.
TRACE ?=
TRACE_ARGS ?=
# `make mutants MUTANTS_ARGS="--count 100 operator/muster/gang/demand.py"`
MUTANTS_ARGS ?= operator/muster/allocator/verdict.py
# `make constraints UPGRADE=` adds what is new in pyproject.toml and leaves all other pins alone.
UPGRADE ?= --upgrade
CLUSTER ?= muster
NODES ?= 4
# `make images IMAGES="base pytorch"` makes only these.
IMAGES ?=
# What is installed on a cluster: `make deploy IMAGE=registry.example.com/muster:0.1.0`.
IMAGE ?=
GANG ?= embedded
# The first that there is of docker, podman and buildah.
ENGINE ?=
# What an engine makes it in, where it cannot have what the Dockerfile names: a Debian of the same suite.
BASE ?=
# For which machine an image is: amd64 or arm64; the one that makes it.
MACHINE ?=
REGISTRY ?=
NAME ?= muster
# What cosign is told beside: SIGN='--key=cosign.key'. Without a key it asks who one is.
SIGN ?=

# Where Python is told to keep nothing of what it compiles, each of hundreds of processes would
# compile all that it imports again: two seconds before an operator begins.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install controlplane demo test test-all test-full unit nightly mutants faults hostile e2e \
	e2e-real e2e-real-smoke images check lint format types imports crds crds-fresh docs bench trace \
	deploy undeploy image publish release helm promtool cosign local-up local-down constraints \
	debian-pins clean

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/stamp-muster ## create .venv with muster and everything it needs

$(BIN)/python:
	@python='$(PYTHON)'; test -n "$$python" || { \
		echo "make: no Python 3.11 or newer with the venv module was found." >&2; \
		echo "Install one (Debian: apt install python3 python3-venv; macOS: brew install python@3.13)," >&2; \
		echo "or name it: make PYTHON=/path/to/python3 $(or $(MAKECMDGOALS),install)" >&2; exit 1; }; \
	echo "Making $(VENV) with $$python ..."; \
	"$$python" -m venv $(VENV)

$(VENV)/stamp-packages: constraints.txt | $(BIN)/python
	@echo "Installing the packages pinned in constraints.txt ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-compile --require-hashes -r constraints.txt
	@touch $@

$(VENV)/stamp-muster: pyproject.toml $(VENV)/stamp-packages
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --editable .
	@touch $@

# Asked anew each time: the binaries live in the user's cache, which may have been emptied.
controlplane: install
	@$(BIN)/muster local binaries >$(VENV)/controlplane.json

demo: controlplane ## run TFJobs as gangs on a local control plane and tell what happens
	@$(BIN)/muster demo

test: unit e2e ## run what every change needs: unit tests, then stories on a real API server

test-all: test test-full ## run all tests

unit: install ## run the tests that need no cluster
	$(BIN)/python -m pytest $(UNIT) -m "not e2e and not real" --dist worksteal \
		-n $(UNIT_AT_ONCE) $(PYTEST_ARGS)

test-full: controlplane ## run the stories that only `make test-all` runs
	@MUSTER_FAULT_SEEDS=$(FAULT_REST) MUSTER_HOSTILE=sample $(E2E) -m "e2e and full and not alone"
	@$(ALONE) -m "e2e and alone" $(STORY_FILES)

nightly: controlplane ## run what the other targets run a sample of: thousands of cases each
	@$(BIN)/python -c 'from muster.local import binaries, options; binaries.find(options.OLDER_VERSION)'
	MUSTER_REST_WORLDS=2000 $(BIN)/python -m pytest tests/properties --hypothesis-profile=nightly \
		--timeout=0 $(PYTEST_ARGS)
	MUSTER_STREAM_JOBS=10000 $(BIN)/python -m pytest \
		tests/scheduler/actions/test_reserve.py tests/scheduler/actions/test_queue_order.py --timeout=0
	@$(WHOLE) $(E2E) -m e2e -k '$(SAMPLED)'
	@$(MAKE) faults FAULT_SEEDS=0-999
	@$(MAKE) hostile
	@MUSTER_REAL_TIMES=yes $(ALONE) -m e2e -s tests/e2e/test_running_work.py
	@MUSTER_LARGE_DOCUMENTS=2000 $(ALONE:2GiB=8GiB) -m e2e -s tests/e2e/test_large_numbers.py

faults: controlplane ## play random schedules of faults; FAULT_SEEDS=17 plays one of them again
	@MUSTER_FAULT_SEEDS=$(FAULT_SEEDS) MUSTER_TAKEOVERS=10 MUSTER_REPORT=$(FAULT_REPORT) \
		$(ALONE) -m e2e -s tests/e2e/test_faults.py tests/e2e/test_succession.py

hostile: controlplane ## write all that a hostile tenant may, beside the jobs of a victim
	@MUSTER_HOSTILE=$(HOSTILE) $(ALONE) -m e2e -s tests/e2e/test_hostile.py

mutants: install ## change a module at random places, count what its unit tests miss: MUTANTS_ARGS
	@$(BIN)/python tests/mutants $(MUTANTS_ARGS)

e2e: controlplane ## run stories on a real API server: those of every change, or STORIES=FILES
	@MUSTER_FAULT_SEEDS=$(FAULT_SAMPLE) MUSTER_HOSTILE=sample \
		$(E2E) -m "e2e$(if $(STORIES),, and not full)"

images: install ## make container images from Debian and PyPI: training examples and operator
	@$(BIN)/python tools/realnode images $(IMAGES)

e2e-real-smoke: install ## run containers: what the page "Train something real" says
	@$(REAL) tests/real/test_page.py

e2e-real: install ## train on real nodes: needs Linux, root and a few packages
	@MUSTER_REPORT=$(REAL_REPORT) $(REAL) tests/real

check: install ## lint, format, types, import contracts, generated files, docs: what CI runs
	@$(MAKE) --no-print-directory --keep-going --jobs 2 lint format types imports crds-fresh docs

lint: install
	$(BIN)/ruff check

format: install
	$(BIN)/ruff format --check

types: install
	$(BIN)/mypy

imports: install
	$(BIN)/lint-imports

crds-fresh: install
	$(BIN)/python tools/crdgen.py --check
	$(BIN)/python tools/site/reference.py --check
	$(BIN)/python tools/site/kinds.py --check

crds: install ## write crds/, docs/reference.md, docs/reasons.md and lists of kinds in manifests/ from the models
	$(BIN)/python tools/crdgen.py
	$(BIN)/python tools/site/reference.py
	$(BIN)/python tools/site/kinds.py

# Read anew each time: the menu is made of the pages that there are.
docs: install ## build the docs site, build/site/index.html, and check its links
	@$(BIN)/sphinx-build -W --keep-going -q -E -b html -c tools/site . build/site

# What is there of other operators' CRDs, or was installed by Helm, has another owner.
deploy: install ## install on the cluster of kubectl: IMAGE=REGISTRY/NAME:TAG GANG=embedded
	@all=$$($(BIN)/python tools/release install --image '$(IMAGE)' --gang '$(GANG)') && \
		printf '%s\n' "$$all" | kubectl apply --server-side --force-conflicts -f -

undeploy: install ## take the operator away; CRDs and jobs stay
	kubectl delete --ignore-not-found -k manifests/overlays/$(GANG)

image: install ## build the operator's image: IMAGE=REGISTRY/NAME:TAG ENGINE=docker|podman|buildah|none
	@$(BIN)/python tools/release image --image '$(IMAGE)' --engine '$(ENGINE)' \
		--base '$(BASE)' --machine '$(MACHINE)'

debian-pins: install ## pin the newest packages of Debian for the image
	@$(BIN)/python tools/release debian-pins

publish: install ## build and push it for amd64 and arm64, sign, release: REGISTRY=... NAME=muster
	@$(BIN)/python tools/release publish --registry '$(REGISTRY)' --name '$(NAME)' \
		--engine '$(ENGINE)' --base '$(BASE)' --gang '$(GANG)' --sign='$(SIGN)'

release: install ## write dist/: a file to apply, chart, wheel, SBOM, checksums; IMAGE=...
	@$(BIN)/python tools/release release --image '$(IMAGE)' --gang '$(GANG)' --sign='$(SIGN)'

helm: install ## build helm into the user's cache, where tests of the chart look for it
promtool: install ## build promtool there, where tests of the alerts look for it
cosign: install ## build cosign there, by which releases are signed
helm promtool cosign:
	@$(BIN)/python tools/release program $@

trace: install ## replay a public trace of GPU tasks; TRACE=FOLDER holds its files
	$(BIN)/python tests/bench/trace_replay.py $(TRACE) $(TRACE_ARGS)

bench: controlplane ## measure starting speed against bare loops
	$(BIN)/python tests/bench $(BENCH_ARGS)

local-up: controlplane ## start a local control plane with simulated nodes
	@$(BIN)/muster local up --name $(CLUSTER) --nodes $(NODES)

local-down: install ## stop it and delete its files
	@$(BIN)/muster local down --name $(CLUSTER)

# The index is left out on purpose: the hashes say what may be installed, not where it lies.
constraints: | $(BIN)/python ## pin the newest packages that pyproject.toml allows
	@command -v $(BIN)/uv >/dev/null || $(BIN)/python -m pip install --quiet uv
	echo hatchling | $(BIN)/uv pip compile pyproject.toml - --extra dev \
		--universal --python-version 3.11 $(UPGRADE) --generate-hashes --quiet \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		--output-file constraints.txt >/dev/null
	@printf '%s\n' '# SPDX-License-Identifier: Apache-2.0' \
		'# Written by `make constraints`: the packages of pyproject.toml and its build, Python 3.11 and up.' \
		| cat - constraints.txt >constraints.new && mv constraints.new constraints.txt

clean: ## delete .venv and what the tools leave behind
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find operator tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
