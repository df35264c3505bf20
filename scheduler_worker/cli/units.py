"""``unit``: the units that policies may use."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from scheduler_worker.cli.bind import PAGE, FleetCommand, FleetLister, cell
from scheduler_worker.cli.commands import say
from scheduler_worker.errors import NotFound
from scheduler_worker.operations.operation import PageQuery
from scheduler_worker.operations.units import (
    OneUnit,
    UnitSwitch,
    UnitView,
    list_units,
    remove_unit,
    switch_unit,
)

if TYPE_CHECKING:
    from scheduler_worker.client import OperationsClient


class ListUnits(FleetLister):
    """List the units that policies may use and that do not come with the worker.

    A file of [external_units] directory that cannot be used is listed under its own name, with the
    reason. --all also lists the units that come with the worker.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--all", action="store_true", help="also units that come with the worker"
        )

    def units(self, arguments: argparse.Namespace) -> Collection[str] | None:
        return None

    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> Any:
        units = sorted(_every_unit(client), key=lambda unit: (unit.kind, unit.name))
        rows = [
            tuple(map(cell, (unit.name, unit.kind, unit.is_enabled, unit.id, unit.description)))
            for unit in units
            if arguments.all or not unit.is_internal
        ]
        return ("Name", "Kind", "Enabled", "Id", "Description"), rows


class _OfUnit(FleetCommand):
    is_change = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "unit", metavar="UNIT", help="id, or name: all kinds of units of that name"
        )


class EnableUnit(_OfUnit):
    """Enable units from files of [external_units] directory.

    From now on policies may use them. Look at the file first: it will take part in decisions. UNIT
    is an id, or a name, which means all kinds of units of that name:

      unit enable SpareHosts
    """

    enables: ClassVar[bool] = True

    def units(self, arguments: argparse.Namespace) -> Collection[str] | None:
        return [arguments.unit]

    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> None:
        how = "enabled" if self.enables else "disabled"
        for unit in _called(client, arguments.unit):
            client.call(switch_unit, UnitSwitch(unit.id, is_enabled=self.enables))
            say(f"The {unit.kind} {unit.name} is {how}")


class DisableUnit(EnableUnit):
    """Disable units from files: policies cannot use them any more.

    A unit is not disabled while a policy uses it; change or remove that policy first. UNIT is an
    id, or a name, which means all kinds of units of that name:

      unit disable SpareHosts
    """

    enables = False


class RemoveUnit(_OfUnit):
    """Remove units that are not installed any more, so that they are not listed.

    A unit is not removed while a policy uses it. UNIT is an id, or a name, which means all kinds of
    units of that name:

      unit remove SpareHosts
    """

    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> None:
        for unit in _called(client, arguments.unit):
            client.call(remove_unit, OneUnit(unit.id))
            say(f"The {unit.kind} {unit.name} is removed")


def _every_unit(client: OperationsClient) -> list[UnitView]:
    return list(client.every(list_units, PageQuery(limit=PAGE)))


def _called(client: OperationsClient, name: str) -> list[UnitView]:
    """The unit of this id, or the units of this name. Raises NotFound."""
    units = [unit for unit in _every_unit(client) if name in {unit.id, unit.name}]
    if not units:
        raise NotFound("unit", name)
    return units
