"""``scheduler-workerctl doctor``: checks everything around a worker that it needs."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from typing import Any

from oslo_config import cfg

from scheduler_worker import conf as configuration
from scheduler_worker.cli.commands import add_command
from scheduler_worker.cli.connection import add_config, config_arguments
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.findings import Finding, Status, document, summary

_TEXT = """\
Check everything that a worker needs, with the worker's own configuration: the files, RabbitMQ and
who consumes the topic's queue, the shared state and the workers on it; where they are configured
Nova's databases (accounts, clocks, host mappings, computes), Placement (versions, providers of the
computes) and Nova's API; and whether scheduler-worker-api could start, and open its policy store.
Each line says ok, warning or failed, and what to do. Nothing is changed, but that the worker's
queues exist afterwards.

  scheduler-workerctl doctor --config-file /etc/nova/nova.conf \\
      --config-file /etc/scheduler_worker/scheduler_worker.conf

The exit status is 1 if something failed; warnings leave it at 0.
"""


def add_to(groups: Any) -> None:
    """Add the command to the parsers of all groups."""
    command = add_command(groups, "doctor", _TEXT, "check all that a worker needs")
    add_config(command)
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    # SQL's and HTTP's libraries are loaded by those who use them.
    from scheduler_worker.doctor.examination import examine

    silenced = logging.root.manager.disable
    logging.disable()  # what is wrong is a finding
    findings: list[Finding] = []
    try:
        for each in examine(configuration.load(config_arguments(arguments))):
            findings.append(each)
            if not arguments.json:
                sys.stdout.write(f"{each}\n")
                sys.stdout.flush()
    except (cfg.Error, OSError) as error:
        raise ConfigError(str(error)) from None
    finally:
        logging.disable(silenced)
    result = {"summary": summary(findings), "findings": document(findings)}
    sys.stdout.write(f"{json.dumps(result, indent=2)}\n" if arguments.json else
                     f"{result['summary']}\n")  # fmt: skip
    return int(any(each.status is Status.FAILED for each in findings))
