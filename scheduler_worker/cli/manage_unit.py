"""``scheduler-worker-manage unit``: lists, enables and disables units."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from scheduler_worker.cli.commands import actor, add_command
from scheduler_worker.conf import Settings
from scheduler_worker.factories import policy_administration
from scheduler_worker.service.policies.policy_units import PolicyUnit

_LIST = """\
List the units that policies may use and that do not come with the worker: name, kind, whether it is
enabled, description. A file of [external_units] directory that cannot be used is listed under its
own name, with the reason. --all also lists the units that come with the worker.
"""
_ENABLE = """\
Enable units from files of [external_units] directory: from now on policies may use them, those
attached over RPC included. UNIT is an id, or a name, which means all kinds of units of that name.
Look at the file first: it will take part in decisions.

  scheduler-worker-manage unit enable MaxVms
"""
_DISABLE = """\
Disable units from files: policies cannot use them any more. A unit is not disabled while a stored
policy uses it, or one that a cluster has over RPC; change or detach these first. UNIT is an id, or
a name.
"""


def add_to(groups: Any) -> None:
    """Add the group to the parsers of all groups."""
    group = groups.add_parser("unit", help="the units that policies use")
    commands = group.add_subparsers(required=True, metavar="COMMAND", title="commands")
    listing = add_command(commands, "list", _LIST, "list units")
    listing.add_argument("--all", action="store_true", help="also those that come with the worker")
    listing.set_defaults(run=_list)
    for name, text, is_enabled in (("enable", _ENABLE, True), ("disable", _DISABLE, False)):
        command = add_command(commands, name, text, f"{name} units from files")
        command.add_argument("unit", metavar="UNIT", help="id or name")
        command.add_argument(
            "--user",
            default=None,
            metavar="NAME",
            help="who makes the change, for the audit; default: the user of this system",
        )
        command.set_defaults(run=_switch, is_enabled=is_enabled)


def _list(arguments: argparse.Namespace, settings: Settings) -> int:
    with policy_administration(settings) as administration:
        found = [
            each for each in administration.library.units() if arguments.all or not each.is_internal
        ]
    rows = [("name", "kind", "enabled", "id", "description"), *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(f"{'  '.join(cells).rstrip()}\n")
    return 0


def _row(unit: PolicyUnit) -> tuple[str, ...]:
    return unit.name, unit.kind, "yes" if unit.is_enabled else "no", unit.id, unit.description


def _switch(arguments: argparse.Namespace, settings: Settings) -> int:
    with policy_administration(settings) as administration:
        changed = administration.switch_unit(
            arguments.unit, actor(arguments.user), is_enabled=arguments.is_enabled
        )
    how = "enabled" if arguments.is_enabled else "disabled"
    for each in changed:
        sys.stdout.write(f"The {each.kind} {each.name} is {how}\n")
    return 0
