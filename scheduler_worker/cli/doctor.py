"""``scheduler-workerctl doctor``: checks everything around a worker that it needs."""

import argparse
import sys

from scheduler_worker.cli.bind import json_of
from scheduler_worker.cli.commands import PlainCommand, add_config, configuration_of, say
from scheduler_worker.cli.progress import awaited
from scheduler_worker.errors import ConfigError


class Doctor(PlainCommand):
    r"""Check everything that a worker needs, with the worker's own configuration.

    It checks the files, RabbitMQ and who consumes the topic's queue, the shared state and its
    workers. If they are configured, it checks Nova's databases (accounts, clocks, host mappings,
    computes), Placement (versions, providers of the computes) and Nova's API. It checks whether
    scheduler-worker-api could start and open its archive of policies, and what a sandbox of
    external units has on this machine. Each line says ok, warning or failed, and what to do. It
    changes nothing, except that the worker's queues exist afterwards.

      scheduler-workerctl doctor --config-file /etc/nova/nova.conf \
          --config-file /etc/scheduler_worker/scheduler_worker.conf

    The exit status is 1 if something failed; warnings leave it at 0.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_config(parser)
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from oslo_config import cfg

        from scheduler_worker.doctor.examination import examine
        from scheduler_worker.model.findings import Status, document, summary

        findings = []
        try:
            for finding in awaited(examine(configuration_of(parsed_args)), "the next check"):
                findings.append(finding)
                if not parsed_args.json:
                    say(str(finding))
                    sys.stdout.flush()
        except (cfg.Error, OSError) as error:
            raise ConfigError(str(error)) from None
        result = {"summary": summary(findings), "findings": document(findings)}
        if parsed_args.json:
            sys.stdout.write(json_of(result))
        else:
            say(str(result["summary"]))
        return int(any(finding.status is Status.FAILED for finding in findings))
