"""Brings the schema of the archive to a version: up, down, or to the newest.

One process migrates at a time: it holds a lock of the database, so several programs may start on an
empty database together. On SQLite and PostgreSQL a migration that fails leaves nothing; MariaDB
commits each statement that changes a table by itself.
"""

import contextlib
from collections.abc import Callable, Iterator
from importlib.resources import as_file, files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, text

from scheduler_worker.backends.sql.database import Database
from scheduler_worker.errors import ArchiveUnavailable, ConfigError

BASE, HEAD = "base", "head"
"""The version of an empty database, and the newest."""
_LOCK = 0x5C4ED013
_LOCK_WAIT_S = 60


class PolicySchema:
    """The schema of one archive. All that ask the database raise ArchiveUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.name = database.name
        self.close = database.close

    def current(self) -> str:
        """The version of the database's schema."""
        with self._database.reading() as connection:
            return MigrationContext.configure(connection).get_current_revision() or BASE

    @staticmethod
    def versions() -> list[str]:
        """All versions of the schema, oldest first, each as ``0001 what it adds``."""
        with _config() as config:
            revisions = ScriptDirectory.from_config(config).walk_revisions()
            return [f"{revision.revision} {revision.doc}" for revision in revisions][::-1]

    def upgrade(self, version: str = HEAD) -> None:
        """Bring the schema up to a version.

        Raises ConfigError: there is no such version, or the database has one of a newer program.
        """
        self._migrate(command.upgrade, version)

    def downgrade(self, version: str) -> None:
        """Bring the schema down to a version, and lose what only the versions above it can hold.

        Raises as :meth:`upgrade`.
        """
        self._migrate(command.downgrade, version)

    def makes_itself(self) -> bool:
        """Whether the tables are to be made by whoever opens it: it is a new SQLite file."""
        return self._database.dialect == "sqlite" and self.current() == BASE

    def check(self) -> None:
        """Check that the schema is what this program needs.

        Raises ConfigError: it is not; says which command repairs it.
        """
        present, needed = self.current(), newest()
        if present == needed:
            return
        if present not in {BASE, *_numbers()}:
            raise ConfigError(
                f"The archive {self.name} has schema version {present}, made by a newer "
                "program; install that one, or let it downgrade the schema"
            )
        raise ConfigError(
            f"The archive {self.name} has schema version {present}, and this program needs "
            f"{needed}; run: scheduler-worker-manage db upgrade"
        )

    def _migrate(self, move: Callable[[Config, str], None], version: str) -> None:
        database = self._database
        with _config() as config, database.writing() as connection, _locked(database, connection):
            config.attributes["connection"] = connection
            try:
                move(config, version)
            except CommandError as error:
                known = ", ".join(_numbers())
                raise ConfigError(f"{error}; versions are {BASE}, {known}") from None


def newest() -> str:
    """The version of the schema that this program needs."""
    with _config() as config:
        return ScriptDirectory.from_config(config).get_current_head() or BASE


def _numbers() -> list[str]:
    return [title.partition(" ")[0] for title in PolicySchema.versions()]


@contextlib.contextmanager
def _config() -> Iterator[Config]:
    with as_file(files("scheduler_worker.backends.sql").joinpath("migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(Path(folder)).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        yield config


@contextlib.contextmanager
def _locked(database: Database, connection: Connection) -> Iterator[None]:
    """Hold a lock of the database; SQLite's is held since the transaction began."""
    if database.dialect == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    if database.dialect != "mariadb":
        yield
        return
    name = {"name": f"scheduler_worker.{database.name[-40:]}", "wait": _LOCK_WAIT_S}
    if not connection.scalar(text("SELECT GET_LOCK(:name, :wait)"), name):
        raise ArchiveUnavailable(
            f"The archive {database.name} is being migrated by another process; try later."
        )
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), name)
