"""``scheduler-worker-manage db``: the schema of the archive of policies."""

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

from scheduler_worker.cli.commands import actor, add_author, complain, confirmed, say
from scheduler_worker.cli.manage import ManageCommand
from scheduler_worker.cli.progress import doing

if TYPE_CHECKING:
    from scheduler_worker.backends.sql.migrate import PolicySchema


class Upgrade(ManageCommand):
    """Make the tables of the archive of policies, or bring them up to date.

    They get the version that this program needs. Back up the database first. Nothing happens when
    it is at that version already. Stop the programs that have [policy_store] connection until it is
    done.
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
    """Bring the tables of the archive down to a version, for an older program.

    What only the newer tables can hold is lost: `scheduler-worker-manage db version` lists what
    each version adds. `base` drops all tables, with the whole history.
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
    """Print the version of the archive's tables, and all versions with what each adds.

    The version of the tables is marked with an arrow.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with _schema(self) as schema:
            now = schema.current()
            say(schema.name)
            for title in ("base no tables", *schema.versions()):
                say(f"{'->' if title.partition(' ')[0] == now else '  '} {title}")


class Restore(ManageCommand):
    """Put the policies of the archive in place of those in the shared state.

    Use it where the archive is right: the shared state was restored from an older copy, or another
    release has edited the archive meanwhile. Otherwise the archive follows the shared state, and an
    emptied one gets its policies back without this.

    What the shared state has and the archive has not is lost; the audit keeps it. Clusters decide
    by the archive's policies from then on.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--yes", action="store_true", help="do it without a question")
        add_author(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from scheduler_worker.compose.parts import local_parts

        with local_parts(self.settings(), units=()) as parts:
            now = parts.book.documents()
            question = (
                f"Put the archive's policies in place of {len(now.policies)} policies and "
                f"{len(now.attachments)} attachments in the shared state?"
            )
            if not parsed_args.yes and not confirmed(question):
                return 1
            with doing("restoring policies"):
                restored = parts.copies.restore(actor(parsed_args.author))
                _, problems = parts.policy_publisher.publish_all()
            say(
                f"The shared state has {len(restored.policies)} policies and "
                f"{len(restored.attachments)} attachments of the archive."
            )
            complain(*(f"{name}: not in force yet: {why}" for name, why in problems.items()))
        return 0


def _schema(command: ManageCommand) -> "closing[PolicySchema]":
    from scheduler_worker.compose.engines import open_policy_schema

    with doing("opening the archive"):
        return closing(open_policy_schema(command.settings().policy_store))


def _say_versions(before: str, after: str) -> None:
    text = f"at version {after} already" if before == after else f"from version {before} to {after}"
    say(f"The tables are {text}.")
