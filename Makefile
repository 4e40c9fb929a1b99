# Everything a person or CI does with Tandem. `make help` lists the targets.
# Only Python 3.11+, make and a C compiler are needed beforehand; the rest goes to .venv and .tools.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Tests start hundreds of nodes: without byte code each of them compiles the whole product.
unexport PYTHONDONTWRITEBYTECODE

# The first Python that is new enough; name another one with PYTHON=...
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; \
	done)
VENV := .venv
BIN := $(VENV)/bin
# Which tests make unit runs; all unless given
T ?=
# Further words for a command: make run ARGS="--limit 1000"
ARGS ?=
CYCLES ?= 1000
# Processes that share the tests, which wait for a quarter of their time: one more than two cores
WORKERS ?= 3
CHAOS_SEEDS ?= 1
# What make judge judges: scenarios of the simulation, and where their histories go
SIM_SEEDS ?= 3000
HISTORIES := $(CURDIR)/.histories
TOOLS_SCRIPT := tests/tools/ensure_tools.sh

.PHONY: help setup test lint unit dist lock big crash chaos judge mutants soak run bench fmt docs site screenshots tools programs clean cluster attack

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.product ## build .venv with all that the product needs

# Downloads and builds of the tools wait for nothing that pip does, nor the other way round.
test: ## everything CI checks: format, lint, types, import arrows, tests
	@$(MAKE) -j 2 lint programs
	@$(MAKE) unit

run: setup ## the main job on two nodes that are flipped and killed (ARGS="--help" for options)
	@$(BIN)/python -m demo $(ARGS)

cluster: setup ## two nodes that stay up until Ctrl-C (ARGS="--help" for options)
	@$(BIN)/python -m demo cluster $(ARGS)

bench: setup ## measure speed and memory beside the yardstick (ARGS="--help" for options)
	@$(BIN)/python -m benchmarks $(ARGS)

fmt: $(VENV)/.test ## format the code and fix what can be fixed
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

docs: setup ## write docs/configuration.md, calls.md and cli.md from schema, call table and commands
	@$(BIN)/tandemq config schema --format markdown > docs/configuration.md.new
	@mv docs/configuration.md.new docs/configuration.md
	@$(BIN)/python -m tandemq_server.cli.call_reference docs/_site/calls.md > docs/calls.md.new
	@mv docs/calls.md.new docs/calls.md
	@$(BIN)/python -m tandemq_server.cli.document docs/_site/cli.md > docs/cli.md.new
	@mv docs/cli.md.new docs/cli.md

site: $(VENV)/.test ## build the documentation's site into site/, strictly
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

screenshots: $(VENV)/.test tools ## take the pictures in docs/img anew: the console, a report, make run
	@$(BIN)/python -m tests.console.screenshots
	@$(BIN)/python -m tests.spark.screenshots
	@$(BIN)/python -m demo.record docs/img/demo.svg

lint: $(VENV)/.test ## ruff (format and lint), mypy, import-linter
	@$(BIN)/ruff format --check --quiet . || { echo 'not formatted: run make fmt'; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | sed -n '/^Contracts:/p;/BROKEN/p;/not allowed/p;/->/p'

unit: $(VENV)/.test $(if $(T),,tools) ## the tests alone (T=tests/drivers for some, without further tools)
	@$(BIN)/python -m pytest $(if $(T),$(T),-n $(WORKERS)) $(ARGS)

dist: $(VENV)/.test ## both wheels and source archives into dist/, checked
	@rm -rf dist
	@for project in client .; do $(BIN)/python -m build --no-isolation --outdir dist $$project >/dev/null; done
	@$(BIN)/twine check --strict dist/*

big: $(VENV)/.test ## a gigabyte of tasks, 100,000 files, 10,000 tubes, a million sessions: killed and started again
	@BIG=1 $(BIN)/python -m pytest -s -q tests/crash/test_big_data.py $(ARGS)

crash: $(VENV)/.test ## kill -9 under load, 1,000 times (CYCLES=N for another number)
	@KILL9_CYCLES=$(CYCLES) $(BIN)/python -m pytest -s -q tests/crash

chaos: $(VENV)/.test tools ## two nodes behind proxies, every story, CHAOS_SEEDS times each (ARGS="-k words")
	@CHAOS=all CHAOS_SEEDS=$(CHAOS_SEEDS) $(BIN)/python -m pytest -q tests/chaos $(ARGS)

attack: $(VENV)/.test ## what strangers and users may try, each on a fresh node: held or broken (ARGS="--short")
	@$(BIN)/python -m tests.attack $(ARGS)

judge: $(VENV)/.test tools ## simulation, chaos and crashes before the outside judge (SIM_SEEDS=N)
	@rm -rf $(HISTORIES)
	@SIM_HISTORY=$(HISTORIES) SIM_SEEDS=$(SIM_SEEDS) $(BIN)/python -m pytest -q -n $(WORKERS) \
		tests/simulation/test_simulation.py -k lose_nothing
	@CHAOS_HISTORY=$(HISTORIES) CHAOS=all $(BIN)/python -m pytest -q tests/chaos/test_scenarios.py \
		-k 'not audit' $(ARGS)
	@CRASH_HISTORY=$(HISTORIES) $(BIN)/python -m pytest -q tests/crash
	@.tools/judge/judge -least 1000000 $(HISTORIES)

mutants: $(VENV)/.test ## break one line at a time and see which test notices (ARGS="--only NAME")
	@$(BIN)/python -m tests.mutants.mutants $(ARGS)

soak: $(VENV)/.test tools ## every chaos story again and again, an hour or so (CHAOS_SEEDS=N for another number)
	@CHAOS=all CHAOS_SEEDS=$(if $(filter-out 1,$(CHAOS_SEEDS)),$(CHAOS_SEEDS),10) \
		$(BIN)/python -m pytest -q tests/chaos $(ARGS)

tools: $(VENV)/.test programs ## what tests need beyond Python packages
	@bash $(TOOLS_SCRIPT) java

programs: ## of these the programs: Go, Node.js, a browser and others
	@bash $(TOOLS_SCRIPT) programs

clean: ## remove .venv, .tools and caches
	rm -rf $(VENV) .tools .histories site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

lock: $(VENV)/.test ## fix versions and hashes of all dependencies anew (ARGS="--upgrade" for newer ones)
	@$(PIP) uv
	@$(LOCK) $(ARGS) pyproject.toml requirements/build.in -o requirements/product.txt
	@$(LOCK) $(ARGS) pyproject.toml requirements/build.in --extra test -c requirements/product.txt \
		-o requirements/test.txt

# Stamps: done once, and again when a dependency changes. Versions and hashes are those of the lock.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-package tandemq \
	--custom-compile-command 'make lock'
PROJECTS := pyproject.toml client/pyproject.toml

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo 'error: Python 3.11 or newer is needed, as python3 or PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.product: $(PROJECTS) requirements/product.txt | $(BIN)/python
	@echo 'installing what the product needs'
	@$(PIP) --require-hashes -r requirements/product.txt
	@$(PIP) --no-deps --no-build-isolation -e . -e client
	@touch $@

# Once for both: what tests need includes what the product does.
$(VENV)/.test: $(PROJECTS) requirements/test.txt | $(BIN)/python
	@echo 'installing what product and tests need'
	@$(PIP) --no-compile --require-hashes -r requirements/test.txt
	@$(PIP) --no-compile --no-deps --no-build-isolation -e . -e client
	@# pip would do it with one core. Some files are templates and not meant to compile.
	@$(BIN)/python -W ignore -m compileall -qq -j 2 $(VENV)/lib || true
	@touch $(VENV)/.product $@
