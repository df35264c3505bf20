# `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 10000
PORT ?= 8780
# The tests start hundreds of Python processes; without bytecode each would compile the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv demo api console check lint unit properties test test-all test-nova soak bench sample reference docs clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

venv: .venv/installed ## Make .venv and install the worker into it

.venv/installed: setup.cfg
	@echo "Installing the worker into .venv" >&2
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[server]'
	@touch $@

.venv/installed-dev: .venv/installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: .venv/installed ## Place a stream of VMs on a fleet of 1,000 hosts, without any server
	$(BIN)/python tools/replay --demo

api: .venv/installed ## A worker with the REST API in one process, on PORT; prints its URL, user and password
	@OS_API__PORT=$(PORT) exec $(BIN)/scheduler-worker-api --demo

console: .venv/installed ## A demo cloud behind the console, on PORT; prints a URL that logs in
	@exec $(BIN)/python tools/console --port $(PORT)

check: .venv/installed-dev ## Formatting, lint, types, sizes, layers, unit tests
	@$(MAKE) --no-print-directory -j3 lint unit properties

lint: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/sizes
	$(BIN)/python tools/declared
	$(BIN)/python tools/words

unit: .venv/installed-dev
	$(BIN)/pytest tests/unit tests/architecture

properties: .venv/installed-dev
	$(BIN)/pytest tests/properties

.venv/installed-test: .venv/installed-dev
	tools/install-servers
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[sdk]'
	$(BIN)/python tools/nova_cloud install
	@touch $@

test: .venv/installed-test ## What decides whether a change lands; installs servers when it may
	$(BIN)/python tools/suite gate

test-all: .venv/installed-test ## That, and what is too dear for it: faults, a real cloud, thousands of simulated runs
	$(BIN)/python tools/suite all

test-nova: .venv/installed-test ## A real Nova control plane, with nova-scheduler and with ours: every path through it
	$(BIN)/pytest tests/nova --nova-paths=all

soak: .venv/installed-dev ## 10,000 simulated runs in which everything breaks; SEEDS=n for n
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

bench: .venv/installed ## Decisions, commits, the lock, calls, memory, tuning: some five minutes
	$(BIN)/python tools/bench all

sample: .venv/installed-dev ## Write the sample configuration and the schema of policies anew
	$(BIN)/oslo-config-generator --config-file etc/scheduler_worker/config-generator.conf
	$(BIN)/scheduler-workerctl tuning schema > etc/scheduler_worker/tuning/policy.schema.json

reference: .venv/installed ## Write what follows from the code anew: pages, alerts, the board
	$(BIN)/python tools/reference

docs: .venv/installed-docs ## The documentation as a site with a search, in build/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/docs/index.html; for the search: $(BIN)/python -m http.server -b 127.0.0.1 -d build/docs"

.venv/installed-docs: .venv/installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

clean: ## Remove what the targets made
	rm -rf .venv .run build dist *.egg-info
