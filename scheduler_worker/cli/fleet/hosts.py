"""``host report`` and ``host remove``."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler_worker.cli.bind import FleetCommand
from scheduler_worker.cli.connection import seconds
from scheduler_worker.cli.files import read_yaml
from scheduler_worker.errors import ConfigError
from scheduler_worker.operations.hosts import OneHost, get_host

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient


class ReportHosts(FleetCommand):
    """Report hosts from a YAML file, as their agents would report them.

    This is for trying the workers, and for hosts without an agent. The file is a list of reports,
    or one of them; docs/rpc.md, section 4, has the fields:

      - host: compute-1
        uuid: 7d3f2c5e-5b8e-4c36-9f0e-2a8d1b6c4e01    # of its compute node; always the same
        vcpus: 16
        memory_mb: 65536
        local_gb: 500

    All of them are stored, or none; the error names the wrong fields. A host that is not reported
    again counts as down after [DEFAULT] service_down_time: --every 30 keeps it up until Ctrl-C.
    In a cloud whose hosts come from Nova ([nova_feed]) the feed removes hosts that Nova lacks.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="such as examples/hosts.yaml")
        parser.add_argument(
            "--every",
            type=seconds,
            metavar="SECONDS",
            help="report them again and again; the file is read again each time",
        )

    def ask(self, client: "SchedulerClient", arguments: argparse.Namespace) -> int:
        while True:
            reports = read_reports(arguments.file)
            into = ", ".join(sorted(client.update_hosts(reports)))
            sys.stdout.write(f"{len(reports)} hosts reported; changed: {into or 'nothing'}\n")
            if arguments.every is None:
                return 0
            sys.stdout.flush()
            time.sleep(arguments.every)


class RemoveHosts(FleetCommand):
    """Remove hosts with their instances and reservations, by name.

    A host that still has an agent comes back with its next report.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("hosts", nargs="+", metavar="HOST", help="a name, with all its nodes")

    def ask(self, client: "SchedulerClient", arguments: argparse.Namespace) -> int:
        for host in arguments.hosts:
            client.call(get_host, OneHost(host))  # which says that there is no such host
        client.remove_hosts([(host, None) for host in arguments.hosts])
        sys.stdout.writelines(f"removed: {host}\n" for host in arguments.hosts)
        return 0


def read_reports(path: Path) -> list[dict[str, Any]]:
    """The reports of a YAML file, unchecked: the workers check the fields.

    Raises ConfigError, which names the place, for what is no list of mappings.
    """
    plain = read_yaml(path)
    reports = [plain] if isinstance(plain, dict) else plain
    if not isinstance(reports, list) or not reports:
        raise ConfigError(f"{path}: expected a list of host reports, each with the field host")
    for number, report in enumerate(reports):
        if not isinstance(report, dict):
            kind = type(report).__name__
            raise ConfigError(f"{path}: report {number + 1}: expected fields, got {kind}")
    return reports
