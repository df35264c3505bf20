"""``user add``, ``user remove`` and ``user list``: the users of the REST API."""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path
from typing import Any

from scheduler_worker.api.users import edited, new_user, read_users
from scheduler_worker.cli.commands import add_command
from scheduler_worker.conf import Settings
from scheduler_worker.errors import ConfigError, RequestError
from scheduler_worker.operations.callers import ROLES, Grant

_ADD = """\
Add a user of the REST API, or replace the one of that name, which ends their tokens. The password
is asked for, or read from the first line of the standard input where that is no terminal.

examples:
  scheduler-worker-manage user add admin@internal --role administrator
  scheduler-worker-manage user add anna --role policy_editor --cluster rack-1 --cluster rack-2
"""
_REMOVE = """\
Remove a user of the REST API from the users file, which ends their tokens and makes their
password useless at once."""
_LIST = """\
List the users of the REST API by name, each with its roles and the clusters where these hold;
passwords are not shown, nor their hashes."""


def add_to(groups: Any) -> None:
    """Add the group ``user`` to a parser's groups."""
    group = groups.add_parser("user", help="the users of the REST API")
    commands = group.add_subparsers(required=True, metavar="COMMAND", title="commands")
    add = add_command(commands, "add", _ADD, "add or replace a user")
    add.add_argument("name")
    add.add_argument("--role", choices=ROLES, required=True)
    add.add_argument(
        "--cluster", action="append", help="where the role holds; without it, everywhere"
    )
    add.set_defaults(run=_add)
    remove = add_command(commands, "remove", _REMOVE, "remove a user")
    remove.add_argument("name")
    remove.set_defaults(run=_remove)
    listing = add_command(commands, "list", _LIST, "list the users with their roles")
    listing.set_defaults(run=_list)


def _add(arguments: argparse.Namespace, settings: Settings) -> int:
    places = arguments.cluster or [None]
    roles = tuple(Grant(arguments.role, cluster) for cluster in places)
    user = new_user(arguments.name, _password(), roles)
    with edited(Path(settings.api.users_file)) as users:
        is_new = arguments.name not in users
        users[arguments.name] = user
    _say(f"{'Added' if is_new else 'Replaced'} {arguments.name}")
    return 0


def _remove(arguments: argparse.Namespace, settings: Settings) -> int:
    with edited(Path(settings.api.users_file)) as users:
        if users.pop(arguments.name, None) is None:
            raise RequestError("name", f"there is no user {arguments.name!r}")
    _say(f"Removed {arguments.name}")
    return 0


def _list(arguments: argparse.Namespace, settings: Settings) -> int:
    path: Path = Path(settings.api.users_file)
    try:
        users = read_users(path.read_text(), str(path))
    except OSError as error:
        raise ConfigError(f"[api] users_file: {path}: {error.strerror}") from None
    for name in sorted(users):
        roles = (f"{each.role} in {each.cluster or 'all clusters'}" for each in users[name].roles)
        _say(f"{name}: {', '.join(roles)}")
    return 0


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise RequestError("password", "the two differ; repeat the command")
    return password


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
