"""``user add``, ``user remove`` and ``user list``: the users of the REST API."""

import argparse
import getpass
import sys
from pathlib import Path

from scheduler_worker.cli.commands import say
from scheduler_worker.cli.manage import ManageCommand
from scheduler_worker.errors import RequestError


class AddUser(ManageCommand):
    """Add a user of the REST API, or replace the user of that name, which ends their tokens.

    The password is asked for, or read from the first line of the standard input where that is no
    terminal.

    For example:
      scheduler-worker-manage user add admin@internal --role administrator
      scheduler-worker-manage user add anna --role policy_editor --cluster rack-1 --cluster rack-2
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        from scheduler_worker.operations.callers import ROLES

        parser.add_argument("name")
        parser.add_argument("--role", choices=ROLES, required=True)
        parser.add_argument(
            "--cluster", action="append", help="the cluster of the role; without it, all clusters"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from scheduler_worker.api.users import edited, new_user
        from scheduler_worker.operations.callers import Grant

        roles = tuple(Grant(parsed_args.role, cluster) for cluster in parsed_args.cluster or [None])
        path = Path(self.settings().api.users_file)
        user = new_user(parsed_args.name, _password(), roles)
        with edited(path) as users:
            is_new = parsed_args.name not in users
            users[parsed_args.name] = user
        say(f"{'Added' if is_new else 'Replaced'} {parsed_args.name}")


class RemoveUser(ManageCommand):
    """Remove a user of the REST API from the users file.

    This ends their tokens and makes their password useless at once.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from scheduler_worker.api.users import edited

        with edited(Path(self.settings().api.users_file)) as users:
            if users.pop(parsed_args.name, None) is None:
                raise RequestError("name", f"there is no user {parsed_args.name!r}")
        say(f"Removed {parsed_args.name}")


class ListUsers(ManageCommand):
    """List the users of the REST API by name, each with its roles and where these hold.

    Passwords are not shown, nor their hashes.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from scheduler_worker.api.users import users_of

        for name, user in sorted(users_of(Path(self.settings().api.users_file)).items()):
            held = (f"{role.role} in {role.cluster or 'all clusters'}" for role in user.roles)
            say(f"{name}: {', '.join(held)}")


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise RequestError("password", "the two differ; repeat the command")
    return password
