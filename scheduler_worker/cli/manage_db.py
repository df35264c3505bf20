"""``scheduler-worker-manage db``: the schema of the policy store."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from typing import Any

from scheduler_worker.cli.commands import add_command, confirmed
from scheduler_worker.conf import Settings
from scheduler_worker.factories import open_policy_schema

_UPGRADE = """\
Make the tables of the policy store, or bring them up to the version that this program needs. Back
up the database first. Nothing happens when it is at that version already. Stop the programs that
use the database, such as the API; workers do not.
"""
_DOWNGRADE = """\
Bring the tables of the policy store down to a version, for an older program. What only the newer
tables can hold is lost: `scheduler-worker-manage db version` lists what each version adds. `base`
drops all tables, with all policies.
"""
_VERSION = """\
Print the version of the policy store's tables, and all versions with what each of them adds. The
one that the tables are at is marked with an arrow.
"""


def add_to(groups: Any) -> None:
    """Add the group to the parsers of all groups."""
    group = groups.add_parser("db", help="the tables of the policy store")
    commands = group.add_subparsers(required=True, metavar="COMMAND", title="commands")
    upgrade = add_command(
        commands, "upgrade", _UPGRADE, "make the tables, or bring them up to date"
    )
    upgrade.add_argument(
        "version", nargs="?", default="head", metavar="VERSION", help="default: the newest"
    )
    upgrade.set_defaults(run=_upgrade)
    downgrade = add_command(
        commands, "downgrade", _DOWNGRADE, "bring the tables to an older version"
    )
    downgrade.add_argument("version", metavar="VERSION", help="such as 0001, or base")
    downgrade.add_argument(
        "--yes",
        action="store_true",
        help="lose what only newer tables can hold, without a question",
    )
    downgrade.set_defaults(run=_downgrade)
    version = add_command(commands, "version", _VERSION, "print the version of the tables")
    version.set_defaults(run=_version)


def _upgrade(arguments: argparse.Namespace, settings: Settings) -> int:
    with closing(open_policy_schema(settings.policy_store)) as schema:
        before = schema.current()
        schema.upgrade(arguments.version)
        _say_versions(before, schema.current())
    return 0


def _downgrade(arguments: argparse.Namespace, settings: Settings) -> int:
    with closing(open_policy_schema(settings.policy_store)) as schema:
        before = schema.current()
        if not arguments.yes and not confirmed(
            f"Bring the tables of {schema.name} from version {before} down to "
            f"{arguments.version}, and lose what only the newer ones can hold?"
        ):
            return 1
        schema.downgrade(arguments.version)
        _say_versions(before, schema.current())
    return 0


def _version(_arguments: argparse.Namespace, settings: Settings) -> int:
    with closing(open_policy_schema(settings.policy_store)) as schema:
        now = schema.current()
        sys.stdout.write(f"{schema.name}\n")
        for each in ("base no tables", *schema.versions()):
            arrow = "->" if each.partition(" ")[0] == now else "  "
            sys.stdout.write(f"{arrow} {each}\n")
    return 0


def _say_versions(before: str, after: str) -> None:
    text = f"at version {after} already" if before == after else f"from version {before} to {after}"
    sys.stdout.write(f"The tables are {text}.\n")
