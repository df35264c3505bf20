"""``reservation list``, ``reservation show`` and ``reservation release``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from scheduler_worker.cli.fleet.commands import (
    FleetCommand,
    FleetLister,
    FleetShow,
    Row,
    Seconds,
    Table,
    add_paging,
    pages,
    the_one,
)
from scheduler_worker.cli.fleet.hosts import shown
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import NotFound


class ListReservations(FleetLister):
    """List the live reservations: what is set aside for instances until their hosts report them.

    A reservation is held, or confirmed: its instance was announced. It ends when its host's report
    includes the instance, when it is released, or when it expires.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--cluster", help="only those of this cluster")
        parser.add_argument("--host", help="only those on this host: name, node name or uuid")
        add_paging(parser, "a reservation's id")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Table:
        def page(marker: str | None, limit: int) -> Row:
            return client.list_reservations(arguments.cluster, marker, limit, host=arguments.host)

        columns = (
            *("Instance", "Host", "Cluster", "State"),
            *("VCPUs", "Memory MB", "Disk MB", "Age", "Expires In"),
        )
        now_s = time.time()
        return columns, [_row(each, now_s) for each in pages(page, "reservations", arguments)]


class ShowReservation(FleetShow):
    """Show what is reserved for an instance, by its uuid."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("instance", metavar="INSTANCE", help="the uuid of an instance")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Table:
        page = client.list_reservations(None, None, 1, instance=arguments.instance)
        found = the_one("reservation for instance", arguments.instance, page["reservations"])
        return tuple(found), tuple(shown(each) for each in found.values())


class ReleaseReservations(FleetCommand):
    """Give back what is reserved for instances, whose uuids are given: they will not be built.

    Others can use the resources at once. What is being built now would be placed twice, so release
    only what nobody waits for. Instances without a reservation are named, and the status is 1.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("instances", nargs="+", metavar="INSTANCE", help="a uuid")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        missing = []
        for each in dict.fromkeys(arguments.instances):
            if client.release([each]):
                sys.stdout.write(f"released: {each}\n")
            else:
                missing.append(each)
        if missing:
            raise NotFound("reservation for instance", ", ".join(missing))
        return 0


def _row(found: Row, now_s: float) -> tuple[Any, ...]:
    resources = found["resources"]
    return (
        *(found["instance_uuid"], found["host"], found["cluster"], found["state"]),
        *(resources[each] for each in ("vcpus", "memory_mb", "disk_mb")),
        Seconds(max(0.0, round(now_s - found["created_at_s"], 1))),
        Seconds(max(0.0, round(found["expires_at_s"] - now_s, 1))),
    )


COMMANDS: dict[str, type[FleetCommand]] = {
    "reservation list": ListReservations,
    "reservation show": ShowReservation,
    "reservation release": ReleaseReservations,
}
