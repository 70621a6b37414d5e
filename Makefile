# Every target sets up what it needs: a fresh clone wants only Python, make and a C compiler.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Tests start the agent hundreds of times: compiled once, whatever the environment says of keeping what is compiled.
export PYTHONDONTWRITEBYTECODE :=
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PYTEST_ARGS ?=
# What a run starts on the machine goes with it, whatever ends it.
REAPED := $(BIN)/python -m tests.integration.reaper
BENCH_ARGS ?=
SEED ?= 1
STEPS ?= 200
HOURS ?= 24
SPEED ?= 40
RUNS ?= 10
PROFILE ?= dgx-h100
# Without what is made: structures and bindings that tests generate.
C_FILES = $(shell find nodeagent tests -name build -prune -o -name built -prune -o -name '*.[ch]' -print)

.PHONY: help setup run test lint format types contracts house gpu originals e2e browser pictures bench chaos soak shake nightly generate native manifests dist deb lock clean

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "nodeagent needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(if $(wildcard $(STAMP)),,--clear) $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(STAMP) ## virtual environment with the agent at .venv/bin/nodeagent

run: $(STAMP) ## a simulated GPU node with its status page (PROFILE=dgx-h100)
	@exec $(BIN)/nodeagent simulate --profile $(PROFILE)

test: $(STAMP) ## unit, property, component, contract, fault and architecture tests
	$(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

gpu: $(STAMP) ## what only a GPU can say, as one table (a GPU that nobody uses; ten minutes at most)
	@$(BIN)/python -m tests.gpu $(PYTEST_ARGS)

lint: $(STAMP) ## formatters and linter, no changes made
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)

format: $(STAMP) ## let the formatters and the linter mend what they can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(C_FILES)

types: $(STAMP) ## mypy, strict, package and tests
	$(BIN)/mypy

contracts: $(STAMP) ## who may import whom
	$(BIN)/lint-imports

house: $(STAMP) ## how plain the house is: words, docstrings, short files, what a call of the kubelet crosses
	@$(BIN)/python -m tests.architecture.house

originals: $(STAMP) ## NVIDIA's own programs, which stand-ins are held against, into the cache (Debian's mirror, 200 MB once)
	@$(BIN)/python -m tests.originals

generate: $(STAMP) ## write generated files anew: docs pages, protocol code
	$(BIN)/python -m tests.generate

manifests: $(STAMP) ## render deploy/nodeagent.yaml from the chart (Go, to build Helm)
	@$(BIN)/python -m tests.deploy.helm write

dist: $(STAMP) native ## reproducible sdist and wheel, software bill of materials, licences checked
	@$(BIN)/python -m tests.deploy.dist

deb: dist ## a Debian package with the pinned libraries, for this Debian, Python and processor (needs pip, dpkg-deb)
	deploy/deb.sh dist/nodeagent-*.whl dist

e2e: $(STAMP) ## scenarios on a real one-machine Kubernetes and Prometheus (root, Go, C compiler)
	@$(BIN)/python -m tests.integration.cluster check
	@$(MAKE) --no-print-directory native
	@$(BIN)/python -m tests.integration.cluster build
	@NODEAGENT_CLUSTER_VERSIONS=kubelet=1.34 $(BIN)/python -m tests.integration.cluster build
	@$(BIN)/python -m tests.conformance
	@$(BIN)/python -m tests.deploy.helm build
	@$(BIN)/python -m tests.integration.machine
	@$(BIN)/python -m tests.originals
	$(REAPED) $(BIN)/python -m tests.integration.lanes -p tests.integration.unsteady tests/conformance tests/integration tests/prometheus $(PYTEST_ARGS)

pictures: $(STAMP) ## the page as pictures for the documentation, at three widths in both themes
	$(BIN)/python -m tests.browser.pictures docs/images

browser: $(STAMP) ## the status page in headless Chromium
	$(BIN)/python -m pytest tests/browser $(PYTEST_ARGS)

bench: $(STAMP) ## latency, memory, start-up (COMPARE=ref: against a commit; PLUGIN="command": of another plugin; PEERS=1: beside NVIDIA's own; REFERENCE=1: into the docs)
	@$(if $(PEERS),$(REAPED)) $(BIN)/python -m tests.bench $(if $(PEERS),--peers) $(if $(REFERENCE),--reference) $(if $(COMPARE),--compare '$(COMPARE)') $(if $(PLUGIN),--plugin '$(PLUGIN)') $(BENCH_ARGS)

chaos: $(STAMP) ## everything goes wrong, in an order drawn from a seed (SEED=1 STEPS=200; ROOMS=1 opens all doors, REPAIRS=1 repairs GPUs; REPLICAS=1|2: of the extender)
	@$(if $(REPLICAS),$(BIN)/python -u -m tests.chaos.extender --replicas $(REPLICAS) --seed $(SEED) --steps $(STEPS),unshare --map-root-user --mount $(BIN)/python -u -m tests.chaos --seed $(SEED) --steps $(STEPS) $(if $(ROOMS),--rooms) $(if $(REPAIRS),--repairs))

soak: $(STAMP) ## a day of an agent's life by a clock that runs fast (HOURS=24 SPEED=40; ROOMS=1 opens all doors, REPAIRS=1 repairs GPUs)
	@$(BIN)/python -m tests.soak --hours $(HOURS) --speed $(SPEED) $(if $(ROOMS),--rooms) $(if $(REPAIRS),--repairs)

shake: $(STAMP) ## `make test` again and again on fresh clones, on a busy machine, on one with a GPU's files (RUNS=10; PLACE=GPU: only there; SCENARIOS=1: e2e too)
	@$(BIN)/python -m tests.shake --runs $(RUNS) $(if $(PLACE),--place $(PLACE)) $(if $(SCENARIOS),--scenarios)

nightly: $(STAMP) native ## the long runs, those on a real kubelet among them (root, Go, C compiler)
	@mkdir -p results && rm -f results/chaos.jsonl results/soak.jsonl
	@$(BIN)/python -m tests.integration.cluster build
	@$(BIN)/python -m tests.integration.runtimes.releases
	$(BIN)/python -m pytest -n auto --hypothesis-profile=nightly -m "" $(PYTEST_ARGS)
	$(REAPED) $(BIN)/python -m pytest tests/integration -m nightly $(PYTEST_ARGS)
	$(REAPED) $(BIN)/python -m tests.integration.matrix $(PYTEST_ARGS)
	@$(BIN)/python -m tests.shake --runs $(RUNS)

lock: ## pin dependencies anew (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml -o requirements/runtime.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml --group dev -c requirements/runtime.txt -o requirements/dev.txt

native: ## the programs in C, for x86-64 and aarch64 (needs a C compiler, a cross compiler, and musl for both)
	@$(MAKE) --no-print-directory -C nodeagent/native

clean: ## remove what make made
	rm -rf $(VENV) build dist results nodeagent/native/built tests/fakes/nvml/build tests/fakes/clock/build tests/fakes/cuda/build tests/component/vgpu/build .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
