"""The policy store on a SQLite in memory, for unit tests."""

import sqlite3
import uuid
from functools import cache

from sqlalchemy import create_engine, event
from sqlalchemy.pool import StaticPool

from scheduler_worker.backends.sql import database
from scheduler_worker.backends.sql.schema import metadata
from scheduler_worker.backends.sql.store import SqlPolicyStore


class MemoryDatabase(database.Database):
    """An empty database with the newest schema; its connections share it, whatever their thread."""

    def __init__(self) -> None:
        self.dialect = self.name = "sqlite"
        url = f"sqlite:///file:/{uuid.uuid4().hex}?vfs=memdb&uri=true"
        self._engine = create_engine(url, connect_args={"check_same_thread": False})
        event.listen(self._engine, "connect", database._configure_sqlite)
        event.listen(self._engine, "begin", database._begin_sqlite)
        self._writer = self._engine.execution_options(**{database._WRITES: True})
        with self._engine.connect() as connection:
            _template().backup(connection.connection.driver_connection)  # type: ignore[arg-type]


@cache
def _template() -> sqlite3.Connection:
    """The schema, which is copied because its statements take long."""
    template = sqlite3.connect(":memory:", check_same_thread=False)
    metadata.create_all(create_engine("sqlite://", creator=lambda: template, poolclass=StaticPool))
    return template


class MemoryPolicyStore(SqlPolicyStore):
    def __init__(self) -> None:
        self.database = MemoryDatabase()
