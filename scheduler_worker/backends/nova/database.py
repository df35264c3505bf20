"""One database of Nova, read and never written, and what its account may do there.

It is MariaDB, MySQL or PostgreSQL.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    create_engine,
    func,
    select,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from scheduler_worker.backends.nova.settings import NovaDatabasesSettings
from scheduler_worker.backends.nova.tables import seconds
from scheduler_worker.backends.sql.database import DRIVERS, server_arguments
from scheduler_worker.errors import ConfigError, SourceUnavailable
from scheduler_worker.extras import needing_extra
from scheduler_worker.redaction import without_user

_SCHEMES = {"mysql": "mariadb", "mariadb": "mariadb", "postgresql": "postgresql"}


class ReadOnlyDatabase:
    """Reads one moment at a time, in transactions that cannot write and end soon."""

    def __init__(
        self, what: str, url: str, settings: NovaDatabasesSettings, account: str = ""
    ) -> None:
        """``what`` names the URL in errors, ``account`` says where its account is from.

        Raises ConfigError; connects to nothing.
        """
        parsed = _parsed(what, url)
        self.name = parsed.set(query={}, username=None, password=None).render_as_string()
        """The URL without account and options."""
        self._with_account = f"{self.name}{account and f', with the account of {account}'}"
        self._is_one_statement = settings.one_statement
        self._engine = _created(what, parsed, settings)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction in which all reads see the same moment. Raises SourceUnavailable."""
        try:
            with (
                self._engine.connect() as connection,
                contextlib.nullcontext() if self._is_one_statement else connection.begin(),
            ):
                yield connection
        except SQLAlchemyError as error:
            original = getattr(error, "orig", None) or error
            why = " ".join(without_user(str(original)).split()) or type(original).__name__
            raise SourceUnavailable(f"{self._with_account}: {why}") from error

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._engine.dispose()


def now_s(connection: Connection) -> float:
    """The database's clock, in seconds since the epoch."""
    return seconds(connection.scalar(select(now_of(connection.dialect.name))))


def now_of(dialect: str) -> ColumnElement[datetime]:
    """The database's clock, as its tables have times."""
    if dialect == "postgresql":
        return func.timezone("utc", func.statement_timestamp(), type_=DateTime())
    return func.utc_timestamp(type_=DateTime())


def _parsed(what: str, connection: str) -> URL:
    """The URL with the driver that is used, whichever it names. Raises ConfigError."""
    try:
        url = make_url(connection)
        dialect = _SCHEMES[url.get_backend_name()]
    except (ArgumentError, ValueError, KeyError):
        raise ConfigError(
            f"{what} cannot be used; write mysql+pymysql://user:password@host/database or "
            "postgresql://user:password@host/database"
        ) from None
    return url.set(drivername=f"{dialect}+{DRIVERS[dialect]}")


def _created(what: str, url: URL, settings: NovaDatabasesSettings) -> Engine:
    with needing_extra("nova", what):
        return create_engine(
            url,
            pool_size=1,  # for each database one thread reads; others check the connection
            max_overflow=4,
            pool_pre_ping=True,
            pool_recycle=settings.recycle_s,
            isolation_level="AUTOCOMMIT" if settings.one_statement else "REPEATABLE READ",
            pool_reset_on_return=None if settings.one_statement else "rollback",
            connect_args=_arguments(url.get_backend_name(), settings),
        )


def _arguments(dialect: str, settings: NovaDatabasesSettings) -> dict[str, Any]:
    """What the driver gets, so that nothing is written and nothing waits for ever."""
    common = server_arguments(dialect, settings.connect_timeout_s, settings.statement_timeout_s)
    if dialect == "postgresql":
        limit = f"-c statement_timeout={max(1, round(settings.statement_timeout_s))}s"
        return common | {"options": f"-c default_transaction_read_only=on {limit}"}
    return common | {"init_command": "SET SESSION TRANSACTION READ ONLY"}


# The account

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
        if connection.dialect.name == "postgresql":
            writes = tuple(f"write the table {table}" for table in connection.scalars(_MAY_WRITE))
        else:
            own = str(connection.scalar(text("SELECT DATABASE()")))
            writes = writing_grants(connection.scalars(text("SHOW GRANTS")), own)
        version = str(connection.scalar(text("SELECT version()")))
        return DatabaseFacts(database.name, version, now_s(connection), writes)


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
