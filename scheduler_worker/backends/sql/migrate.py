"""Brings the schema of a policy store to a version: up, down, or to the newest.

One process migrates at a time: it holds a lock of the database, so several programs may start on an
empty database together. On SQLite and PostgreSQL a migration that fails leaves nothing; MariaDB
commits each statement that changes a table by itself.
"""

import contextlib
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, text

from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.backends.sql.database import Database
from scheduler_worker.errors import ConfigError, PolicyStoreUnavailable

BASE, HEAD = "base", "head"
"""The version of an empty database, and the newest."""
_LOCK = 0x5C4ED013
_LOCK_WAIT_S = 60


class PolicySchema:
    """The schema of one policy store, for the commands of its operator."""

    def __init__(self, settings: PolicyStoreSettings) -> None:
        """Raises ConfigError when the connection's URL cannot be used."""
        self._database = Database(settings)

    @property
    def name(self) -> str:
        """The database, without its password."""
        return self._database.name

    def current(self) -> str:
        """As :func:`current`."""
        return current(self._database)

    def versions(self) -> list[str]:
        """As :func:`versions`."""
        return versions()

    def upgrade(self, version: str) -> None:
        """As :func:`upgrade`."""
        upgrade(self._database, version)

    def downgrade(self, version: str) -> None:
        """As :func:`downgrade`."""
        downgrade(self._database, version)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def newest() -> str:
    """The version of the schema that this program needs."""
    with _config() as config:
        return ScriptDirectory.from_config(config).get_current_head() or BASE


def versions() -> list[str]:
    """All versions of the schema, oldest first, each as ``0001 what it adds``."""
    with _config() as config:
        revisions = ScriptDirectory.from_config(config).walk_revisions()
        return [f"{revision.revision} {revision.doc}" for revision in reversed(list(revisions))]


def current(database: Database) -> str:
    """The version of the database's schema. Raises PolicyStoreUnavailable."""
    with database.reading() as connection:
        return MigrationContext.configure(connection).get_current_revision() or BASE


def upgrade(database: Database, version: str = HEAD) -> None:
    """Bring the schema up to a version.

    Raises:
        ConfigError: there is no such version, or the database has one of a newer program.
        PolicyStoreUnavailable: the database fails.
    """
    _migrate(database, version, is_up=True)


def downgrade(database: Database, version: str) -> None:
    """Bring the schema down to a version, and lose what only the versions above it can hold.

    Raises as :func:`upgrade`.
    """
    _migrate(database, version, is_up=False)


def makes_itself(database: Database) -> bool:
    """Whether the tables are to be made by whoever opens it: it is a new SQLite file."""
    return database.dialect == "sqlite" and current(database) == BASE


def check(database: Database) -> None:
    """Check that the schema is what this program needs.

    Raises:
        ConfigError: it is not; says which command repairs it.
        PolicyStoreUnavailable: the database fails.
    """
    present, needed = current(database), newest()
    if present == needed:
        return
    if present not in {BASE, *(version.partition(" ")[0] for version in versions())}:
        raise ConfigError(
            f"The policy store {database.name} has schema version {present}, made by a newer "
            "program; install that one, or let it downgrade the schema"
        )
    raise ConfigError(
        f"The policy store {database.name} has schema version {present}, and this program needs "
        f"{needed}; run: scheduler-worker-manage db upgrade"
    )


def _migrate(database: Database, version: str, *, is_up: bool) -> None:
    with _config() as config, database.writing() as connection, _locked(database, connection):
        config.attributes["connection"] = connection
        try:
            (command.upgrade if is_up else command.downgrade)(config, version)
        except CommandError as error:
            known = ", ".join(title.partition(" ")[0] for title in versions())
            raise ConfigError(f"{error}; versions are {BASE}, {known}") from None


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
        raise PolicyStoreUnavailable(
            f"The policy store {database.name} is being migrated by another process; try later."
        )
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), name)
