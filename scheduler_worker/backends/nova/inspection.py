"""What the account of one of Nova's databases is, and may do there; nothing is written."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, text

from scheduler_worker.backends.nova.database import ReadOnlyDatabase, now_s

_READS = frozenset({
    "USAGE", "SELECT", "SHOW VIEW", "SHOW DATABASES", "PROCESS", "REPLICATION CLIENT",
    "BINLOG MONITOR", "SLAVE MONITOR", "REPLICA MONITOR", "LOCK TABLES",
})  # fmt: skip
_GRANT = re.compile(r"GRANT (.+?) ON (?:TABLE )?(\S+) TO ", re.IGNORECASE)
_COLUMNS = re.compile(r"\s*\([^)]*\)")
_MAY_WRITE = text(
    "SELECT table_name FROM information_schema.tables "
    "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') "
    "AND has_table_privilege(quote_ident(table_schema) || '.' || quote_ident(table_name), "
    "'INSERT, UPDATE, DELETE, TRUNCATE') ORDER BY table_name"
)


class DatabaseFacts(NamedTuple):
    """A database, and what the account may do there."""

    name: str
    version: str
    """Of the server."""
    now_s: float
    """Its clock, in seconds since the epoch."""
    writes: tuple[str, ...]
    """What the account may do beside reading; empty as it should be."""


def inspected(database: ReadOnlyDatabase) -> DatabaseFacts:
    """Ask the database. Raises SourceUnavailable."""
    with database.reading() as connection:
        return DatabaseFacts(
            name=database.name,
            version=str(connection.scalar(text("SELECT version()"))),
            now_s=now_s(connection),
            writes=_writes(connection),
        )


def _writes(connection: Connection) -> tuple[str, ...]:
    if connection.dialect.name == "postgresql":
        return tuple(f"write the table {table}" for table in connection.scalars(_MAY_WRITE))
    database = connection.scalar(text("SELECT DATABASE()"))
    return writing_grants(connection.scalars(text("SHOW GRANTS")), str(database))


def writing_grants(grants: Iterable[str], database: str) -> tuple[str, ...]:
    """The grants of an account, as MariaDB and MySQL show them, that let it write there."""
    writing = []
    for grant in grants:
        matched = _GRANT.match(grant)
        if matched is None or not _is_about(matched[2], database):
            continue
        verbs = {verb.strip().upper() for verb in _COLUMNS.sub("", matched[1]).split(",")}
        writing += [f"{verb} on {matched[2]}" for verb in sorted(verbs - _READS)]
    return tuple(writing)


def _is_about(granted: str, database: str) -> bool:
    """Whether a grant on ``granted``, such as `nova`.*, is about the database.

    In the name of a database, ``_`` stands for any character and ``%`` for any number of them.
    """
    schema = granted.rpartition(".")[0].replace("`", "").replace("\\_", "_")
    if schema == "*":
        return True
    pattern = "".join({"%": ".*", "_": "."}.get(sign, re.escape(sign)) for sign in schema)
    return re.fullmatch(pattern, database) is not None
