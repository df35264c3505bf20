"""``host list``, ``host show``, ``host report`` and ``host remove``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from scheduler_worker.cli.connection import seconds
from scheduler_worker.cli.dry_run_files import read_text
from scheduler_worker.cli.fleet.commands import (
    PAGE,
    FleetCommand,
    FleetLister,
    FleetShow,
    Listed,
    Optional,
    Row,
    Table,
    Texts,
    add_paging,
    pages,
    the_one,
)
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import ConfigError, RequestError
from scheduler_worker.model.host_records import HOST_STATES

_COLUMNS = (
    *("Host", "Cluster", "State", "VCPUs", "VCPUs Used", "VCPUs Reserved"),
    *("Memory MB", "Memory MB Used", "Memory MB Reserved", "Instances", "Reservations"),
)
_MOST_NAMESAKES = 20


class ListHosts(FleetLister):
    """List hosts with what they have, what is used, and what is reserved beside that.

    The state is up, down (no heartbeat, forced down, or asleep) or disabled. Several filters must
    all hold:

      scheduler-workerctl host list --cluster east --state down
      scheduler-workerctl host list --name 'compute-1*' --sort-column 'VCPUs Used'
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--cluster", help="only hosts of this cluster")
        parser.add_argument("--state", choices=HOST_STATES, help="only hosts in this state")
        parser.add_argument(
            "--name", metavar="PATTERN", help="only hosts whose name fits this shell pattern"
        )
        parser.add_argument("--aggregate", metavar="NAME", help="only hosts of this aggregate")
        parser.add_argument(
            "--long", action="store_true", help="also uuid, node name, aggregates and disk"
        )
        add_paging(parser, "a host's uuid")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Table:
        is_filtered = arguments.name is not None or arguments.aggregate is not None

        def page(marker: str | None, limit: int) -> Row:
            """A page of hosts that pass every filter, in as few calls as possible."""
            hosts: list[Row] = []
            while True:
                found = client.list_hosts(
                    arguments.cluster, marker, PAGE if is_filtered else limit, state=arguments.state
                )
                hosts += [each for each in found["hosts"] if _is_wanted(each, arguments)]
                marker = found["next"]
                if len(hosts) > limit:
                    return {"hosts": hosts[:limit], "next": hosts[limit - 1]["uuid"]}
                if marker is None or len(hosts) == limit:
                    return {"hosts": hosts, "next": marker}

        listed = list(pages(page, "hosts", arguments))
        if not arguments.long:
            return _COLUMNS, map(_row, listed)
        more = ("UUID", "Node", "Aggregates", "Disk GB", "Disk GB Used")
        return (*_COLUMNS, *more), ((*_row(each), *_more(each)) for each in listed)


class ShowHost(FleetShow):
    """Show all that is known of a host, by its name, node name or uuid."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("host", metavar="HOST", help="name, node name or uuid")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Table:
        found = client.list_hosts(None, None, _MOST_NAMESAKES, host=arguments.host)["hosts"]
        if len(found) > 1:
            nodes = ", ".join(each["uuid"] for each in found)
            raise RequestError("host", f"several nodes are called {arguments.host}: {nodes}")
        host = the_one("host", arguments.host, found)
        return tuple(host), tuple(shown(each) for each in host.values())


class ReportHosts(FleetCommand):
    """Hand in hosts from a YAML file, as their agents would report them.

    For those who try the workers, and for hosts without an agent. The file is a list of reports,
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
            help="report them again and again; the file is read anew each time",
        )

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
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

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        for each in arguments.hosts:
            the_one("host", each, client.list_hosts(None, None, 1, host=each)["hosts"])
        client.remove_hosts([(each, None) for each in arguments.hosts])
        sys.stdout.writelines(f"removed: {each}\n" for each in arguments.hosts)
        return 0


def read_reports(path: Path) -> list[Row]:
    """The reports of a YAML file, unchecked: the workers check the fields.

    Raises ConfigError, which names the place, for what is no list of mappings.
    """
    try:
        plain = yaml.load(read_text(path), Loader=_Loader)  # noqa: S506 - derived from the safe one
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    found = [plain] if isinstance(plain, dict) else plain
    if not isinstance(found, list) or not found:
        raise ConfigError(f"{path}: expected a list of host reports, each with the field host")
    for number, each in enumerate(found):
        if not isinstance(each, dict):
            kind = type(each).__name__
            raise ConfigError(f"{path}: report {number + 1}: expected fields, got {kind}")
    return found


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads times as texts, as reports have them."""


_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _is_wanted(host: Row, arguments: argparse.Namespace) -> bool:
    names = (host["host"], host["nodename"])
    pattern, aggregate = arguments.name, arguments.aggregate
    is_named = pattern is None or any(fnmatchcase(each, pattern) for each in names)
    return is_named and (aggregate is None or aggregate in host["aggregates"])


def _row(host: Row) -> tuple[Any, ...]:
    reserved = host["promised"]
    return (
        *(host["host"], host["cluster"], Optional(host.get("state"))),
        *(host["vcpus"], host["vcpus_used"], reserved["vcpus"]),
        *(host["memory_mb"], host["memory_mb_used"], reserved["memory_mb"]),
        *(len(host["instances"]), len(reserved["instances"])),
    )


def _more(host: Row) -> Iterator[Any]:
    yield from (host["uuid"], host["nodename"], Listed(host["aggregates"]))
    yield from (host["local_gb"], host["local_gb_used"])


def shown(value: Any) -> Any:
    """A field of a record, as people read it."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return Listed(value)
    if isinstance(value, list | dict):
        return Texts(value)
    return Optional(value)


COMMANDS: dict[str, type[FleetCommand]] = {
    "host list": ListHosts,
    "host show": ShowHost,
    "host report": ReportHosts,
    "host remove": RemoveHosts,
}
