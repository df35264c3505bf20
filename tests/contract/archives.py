"""The archives that the contract suite runs on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.backends.sql.archive import (
    SqlArchive,
    audit,
    book,
    policy,
    policy_cluster,
    policy_unit,
)
from scheduler_worker.backends.sql.database import Database
from scheduler_worker.backends.sql.migrate import PolicySchema

SERVERS = {"postgresql": "postgres_server", "mariadb": "maria_server"}
DATABASES = ["sqlite", "postgresql", "mariadb"]


def settings(url: str, **timeouts: float) -> PolicyStoreSettings:
    """Long enough for a busy machine."""
    return PolicyStoreSettings(
        **{"connection": url, "lock_timeout_s": 60.0, "statement_timeout_s": 120.0} | timeouts  # type: ignore[arg-type]
    )


def new_database(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """The URL of a new, empty database."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'policies.sqlite'}"
    url: str = request.getfixturevalue(SERVERS[kind]).create_database()
    return url


class Databases:
    """Databases with the newest schema, one of each kind, which the tests of a session share."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request = request
        self._folder = folder
        self._urls: dict[str, str] = {}

    def emptied(self, kind: str) -> str:
        """The URL of a database without rows."""
        is_new = kind not in self._urls
        if is_new:
            self._urls[kind] = new_database(self._request, kind, self._folder)
        database = Database(settings(self._urls[kind]))
        if is_new:
            PolicySchema(database).upgrade()
        with database.writing() as connection:
            for table in (policy_cluster, policy, policy_unit, audit):
                connection.execute(delete(table))
            connection.execute(update(book).values(number=None))
        database.close()
        return self._urls[kind]


@contextlib.contextmanager
def opened(url: str, **timeouts: float) -> Iterator[SqlArchive]:
    archive = SqlArchive(settings(url, **timeouts))
    try:
        yield archive
    finally:
        archive.close()
