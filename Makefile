# `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 10000

.PHONY: help venv demo check test soak bench sample reference clean

help: ## This list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

venv: .venv/installed ## Make .venv and install the worker into it

.venv/installed: setup.cfg
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: .venv/installed ## Place a stream of VMs on a fleet of 1,000 hosts, without any server
	$(BIN)/python tools/replay --demo

check: .venv/installed-dev ## Formatting, lint, types, floors, unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest tests/unit tests/architecture tests/properties

test: .venv/installed-dev ## Everything but the benchmarks; installs servers when it may
	tools/install-servers
	$(MAKE) --no-print-directory check
	$(BIN)/pytest --ignore=tests/unit --ignore=tests/architecture --ignore=tests/properties

soak: .venv/installed-dev ## 10,000 simulated runs in which everything breaks; SEEDS=n for n
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

bench: .venv/installed ## Decisions, commits, the lock, calls, memory, tuning: some five minutes
	$(BIN)/python tools/bench all

sample: .venv/installed ## Write the sample configuration and the schema of policies anew
	$(BIN)/oslo-config-generator --config-file etc/scheduler_worker/config-generator.conf
	$(BIN)/scheduler-workerctl tuning schema > etc/scheduler_worker/tuning/policy.schema.json

reference: .venv/installed ## Write docs/filters.md and docs/weighers.md anew
	$(BIN)/python tools/reference

clean: ## Remove what the targets made
	rm -rf .venv .run build dist *.egg-info
