"""The archive on a SQLite in memory, for unit tests."""

import uuid
from functools import cache

from sqlalchemy import create_engine, event, update

from scheduler_worker.backends.sql import database
from scheduler_worker.backends.sql.archive import SqlArchive, book
from scheduler_worker.backends.sql.migrate import PolicySchema


class MemoryDatabase(database.Database):
    """An empty database without a schema; its connections share it, whatever their thread."""

    def __init__(self) -> None:
        self.dialect = self.name = "sqlite"
        url = f"sqlite:///file:/{uuid.uuid4().hex}?vfs=memdb&uri=true"
        self._engine = create_engine(url, connect_args={"check_same_thread": False})
        event.listen(self._engine, "connect", database._configure_sqlite)
        event.listen(self._engine, "begin", database._begin_sqlite)
        self._writer = self._engine.execution_options(**{database._WRITES: True})

    def copy_to(self, other: "MemoryDatabase") -> None:
        with self._engine.connect() as this, other._engine.connect() as copy:
            this.connection.driver_connection.backup(copy.connection.driver_connection)


@cache
def _template() -> MemoryDatabase:
    """The newest schema, which is copied because its statements take long."""
    template = MemoryDatabase()
    PolicySchema(template).upgrade()
    return template


class MemoryArchive(SqlArchive):
    database: MemoryDatabase

    def __init__(self) -> None:
        self.database = MemoryDatabase()
        _template().copy_to(self.database)
        with self.database.writing() as connection:
            connection.execute(update(book).values(id=uuid.uuid4().hex))
