"""``scheduler-worker-manage db``: the schema of the policy store."""

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

from scheduler_worker.cli.commands import confirmed, say
from scheduler_worker.cli.manage import ManageCommand
from scheduler_worker.cli.progress import doing

if TYPE_CHECKING:
    from scheduler_worker.backends.sql.migrate import PolicySchema


class Upgrade(ManageCommand):
    """Make the tables of the policy store, or bring them up to date.

    They get the version that this program needs. Back up the database first. Nothing happens when
    it is at that version already. Stop the programs that use the database, such as the API; workers
    do not.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "version", nargs="?", default="head", metavar="VERSION", help="default: the newest"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with _schema(self) as schema:
            before = schema.current()
            with doing(f"changing the tables of {schema.name}"):
                schema.upgrade(parsed_args.version)
            _say_versions(before, schema.current())


class Downgrade(ManageCommand):
    """Bring the tables of the policy store down to a version, for an older program.

    What only the newer tables can hold is lost: `scheduler-worker-manage db version` lists what
    each version adds. `base` drops all tables, with all policies.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("version", metavar="VERSION", help="such as 0001, or base")
        parser.add_argument(
            "--yes",
            action="store_true",
            help="lose what only newer tables can hold, without a question",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        with _schema(self) as schema:
            before = schema.current()
            if not parsed_args.yes and not confirmed(
                f"Bring the tables of {schema.name} from version {before} down to "
                f"{parsed_args.version}, and lose what only the newer ones can hold?"
            ):
                return 1
            with doing(f"changing the tables of {schema.name}"):
                schema.downgrade(parsed_args.version)
            _say_versions(before, schema.current())
        return 0


class ShowVersion(ManageCommand):
    """Print the version of the policy store's tables, and all versions with what each adds.

    The version of the tables is marked with an arrow.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with _schema(self) as schema:
            now = schema.current()
            say(schema.name)
            for title in ("base no tables", *schema.versions()):
                say(f"{'->' if title.partition(' ')[0] == now else '  '} {title}")


def _schema(command: ManageCommand) -> "closing[PolicySchema]":
    from scheduler_worker.compose.engines import open_policy_schema

    with doing("opening the policy store"):
        return closing(open_policy_schema(command.settings().policy_store))


def _say_versions(before: str, after: str) -> None:
    text = f"at version {after} already" if before == after else f"from version {before} to {after}"
    say(f"The tables are {text}.")
