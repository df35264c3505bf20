"""``scheduler-worker-manage unit``: lists, enables and disables units."""

import argparse
from typing import ClassVar

from scheduler_worker.cli.commands import actor, add_author, say, say_table
from scheduler_worker.cli.manage import ManageCommand


class ListUnits(ManageCommand):
    """List the units that policies may use and that do not come with the worker.

    Each has its name, kind, whether it is enabled, and its description. A file of [external_units]
    directory that cannot be used is listed under its own name, with the reason. --all also lists
    the units that come with the worker.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--all", action="store_true", help="also units that come with the worker"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.administration() as administration:
            units = administration.library.units()
        rows = [
            (unit.name, unit.kind, "yes" if unit.is_enabled else "no", unit.id, unit.description)
            for unit in units
            if parsed_args.all or not unit.is_internal
        ]
        say_table([("name", "kind", "enabled", "id", "description"), *rows])


class EnableUnit(ManageCommand):
    """Enable units from files of [external_units] directory.

    From now on policies may use them, those attached over RPC included. UNIT is an id, or a name,
    which means all kinds of units of that name. Look at the file first: it will take part in
    decisions.

      scheduler-worker-manage unit enable MaxVms
    """

    enables: ClassVar[bool] = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("unit", metavar="UNIT", help="id or name")
        add_author(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.administration() as administration:
            changed = administration.switch_unit(
                parsed_args.unit, actor(parsed_args.author), is_enabled=self.enables
            )
        how = "enabled" if self.enables else "disabled"
        say(*(f"The {unit.kind} {unit.name} is {how}" for unit in changed))


class DisableUnit(EnableUnit):
    """Disable units from files: policies cannot use them any more.

    A unit is not disabled while a stored policy uses it, or one that a cluster has over RPC; change
    or detach these first. UNIT is an id, or a name.
    """

    enables = False
