# `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 10000
# Which paths through a real Nova control plane `make test` runs: none, few or all.
NOVA_PATHS ?= few
PORT ?= 8780

.PHONY: help venv demo api console check lint unit properties test servers cloud simulation test-nova soak bench sample reference docs clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

venv: .venv/installed ## Make .venv and install the worker into it

.venv/installed: setup.cfg
	@echo "Installing the worker into .venv" >&2
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
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

unit: .venv/installed-dev
	$(BIN)/pytest tests/unit tests/architecture

properties: .venv/installed-dev
	$(BIN)/pytest tests/properties

.venv/installed-sdk: .venv/installed-dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[sdk]'
	@touch $@

test: .venv/installed-dev ## Everything but the benchmarks; installs servers when it may
	tools/install-servers
	$(MAKE) --no-print-directory .venv/installed-sdk check
	@$(MAKE) --no-print-directory -j3 servers cloud simulation

# Each with servers of its own. They wait for servers most of the time, so two of them fit on two cores.
servers: .venv/installed-dev
	$(BIN)/pytest tests/integration

cloud: .venv/installed-dev
	$(BIN)/pytest tests/nova tests/contract tests/examples tests/console --nova-paths=$(NOVA_PATHS)

# In a process of its own: threads that another test has left would be preempted, too, and draw from the random source.
simulation: .venv/installed-dev
	@mkdir -p .run
	@echo "The simulation runs beside, its output is in .run/simulation.log" >&2
	@nice -n 5 $(BIN)/pytest tests/simulation > .run/simulation.log 2>&1 \
		&& tail -n 2 .run/simulation.log || { cat .run/simulation.log; exit 1; }

test-nova: .venv/installed-dev ## A real Nova control plane, with nova-scheduler and with ours: every path through it
	tools/install-servers
	$(BIN)/pytest tests/nova --nova-paths=all

soak: .venv/installed-dev ## 10,000 simulated runs in which everything breaks; SEEDS=n for n
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

bench: .venv/installed ## Decisions, commits, the lock, calls, memory, tuning: some five minutes
	$(BIN)/python tools/bench all

sample: .venv/installed ## Write the sample configuration and the schema of policies anew
	$(BIN)/oslo-config-generator --config-file etc/scheduler_worker/config-generator.conf
	$(BIN)/scheduler-workerctl tuning schema > etc/scheduler_worker/tuning/policy.schema.json

reference: .venv/installed ## Write docs/filters.md, docs/weighers.md and docs/policy-units.md anew
	$(BIN)/python tools/reference

docs: .venv/installed-docs ## The documentation as a site with a search, in build/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/docs/index.html; for the search: $(BIN)/python -m http.server -b 127.0.0.1 -d build/docs"

.venv/installed-docs: .venv/installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

clean: ## Remove what the targets made
	rm -rf .venv .run build dist *.egg-info
