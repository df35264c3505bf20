"""Connections and transactions, alike on SQLite, PostgreSQL and MariaDB."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import tenacity
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.errors import ArchiveUnavailable, ConfigError
from scheduler_worker.extras import needing_extra

T = TypeVar("T")

DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg", "mariadb": "pymysql"}
"""By dialect, which is also the name of the extra that has it."""
_MAX_ATTEMPTS = 8
_RETRIED_STATES = {"40001", "40P01"}
"""PostgreSQL: a concurrent transaction was first; or a deadlock."""
_RETRIED_NUMBERS = {1020, 1213}
"""MariaDB: the same two."""
_WRITES = "scheduler_worker_writes"


class Database:
    """One database. A transaction is done whole or not at all, whatever fails."""

    def __init__(self, settings: PolicyStoreSettings) -> None:
        """Raises ConfigError when the connection's URL cannot be used; connects to nothing."""
        self._url = _parsed(settings.connection)
        self.dialect = self._url.get_backend_name()
        self.name = self._url.render_as_string(hide_password=True)
        self._engine = self._created(settings)
        self._writer = self._engine.execution_options(**{_WRITES: True})

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction in which all reads see the same moment."""
        return self._begun(self._engine)

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that writes; committed at the end, rolled back by any error."""
        return self._begun(self._writer)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` in a transaction; again when a concurrent one was in its way.

        ``work`` checks first what the database would refuse, and raises the error that says why. So
        a constraint fails only in a race, after which the repeated check finds the reason.
        """

        def attempt() -> T:
            with self._writer.begin() as connection:
                return work(connection)

        try:
            return _RETRYING(attempt)
        except (DBAPIError, PoolTimeout) as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._engine.dispose()

    @contextmanager
    def _begun(self, engine: Engine) -> Iterator[Connection]:
        try:
            with engine.begin() as connection:
                yield connection
        except (DBAPIError, PoolTimeout) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> ArchiveUnavailable:
        if isinstance(error, PoolTimeout):
            return ArchiveUnavailable(
                f"All connections of this process to the archive {self.name} are in use; "
                "raise [policy_store] pool_size"
            )
        original = error.orig if isinstance(error, DBAPIError) else error
        text = " ".join(str(original).split()) or type(original).__name__
        return ArchiveUnavailable(f"The archive {self.name} failed: {text}")

    def _created(self, settings: PolicyStoreSettings) -> Engine:
        options: dict[str, Any] = {
            "pool_size": settings.pool_size,
            "max_overflow": 0,
            "pool_timeout": settings.pool_timeout_s,
            "pool_pre_ping": True,  # a connection that died while it was idle is replaced unseen
            "pool_recycle": 1800,
            "connect_args": _arguments(self.dialect, settings),
        }
        with needing_extra(self.dialect, "[policy_store] connection"):  # SQLite's is Python's
            engine = create_engine(self._url, **options)
        if self.dialect == "sqlite":
            _prepare_file(self._url)
            event.listen(engine, "connect", _configure_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        else:
            event.listen(engine, "begin", _begin_on_server)
        return engine


def _parsed(text: str) -> URL:
    """The URL with the driver that is used. Raises ConfigError."""
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        raise ConfigError(f"[policy_store] connection: not a URL; {_HINT}") from None
    if backend == "mysql":
        backend = "mariadb"
    if backend not in DRIVERS:
        raise ConfigError(f"[policy_store] connection: {backend!r} is not supported; {_HINT}")
    if backend == "sqlite" and url.database in {None, "", ":memory:"}:
        raise ConfigError(f"[policy_store] connection: SQLite needs the path of a file; {_HINT}")
    return url.set(drivername=f"{backend}+{DRIVERS[backend]}")


_HINT = (
    "use sqlite:////path/of/a/file, postgresql://user:password@host/database or "
    "mariadb://user:password@host/database"
)


def server_arguments(dialect: str, connect_s: float, statement_s: float) -> dict[str, Any]:
    """What the driver of a server gets, so that no connection waits for ever."""
    connect_timeout = max(1, round(connect_s))
    if dialect == "postgresql":
        # libpq waits as long as the connection lives: a host that is gone must be noticed.
        keepalives = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 3}
        named = {"application_name": "scheduler_worker"}
        return {"connect_timeout": connect_timeout, **named, **keepalives}
    timeout = max(1, round(statement_s))
    return {"connect_timeout": connect_timeout, "read_timeout": timeout, "write_timeout": timeout}


def _arguments(dialect: str, settings: PolicyStoreSettings) -> dict[str, Any]:
    """What the driver gets, so that no connection and no statement waits for ever."""
    lock_s, statement_s = settings.lock_timeout_s, settings.statement_timeout_s
    if dialect == "sqlite":
        return {"timeout": lock_s, "check_same_thread": False}
    common = server_arguments(dialect, settings.connect_timeout_s, statement_s)
    if dialect == "postgresql":
        lock_ms, statement_ms = int(lock_s * 1000), int(statement_s * 1000)
        return common | {
            "options": f"-c lock_timeout={lock_ms} -c statement_timeout={statement_ms} "
            "-c default_transaction_isolation=repeatable\\ read",
        }
    return common | {
        "charset": "utf8mb4",
        "init_command": "SET SESSION sql_mode = 'TRADITIONAL', tx_isolation = 'REPEATABLE-READ', "
        f"innodb_lock_wait_timeout = {max(1, round(lock_s))}",
    }


def file_to_make(settings: PolicyStoreSettings) -> Path | None:
    """The SQLite file that a :class:`Database` would create; None: there is nothing to create.

    Raises ConfigError where it could not, or the URL cannot be used.
    """
    url = _parsed(settings.connection)
    path = Path(url.database or "")
    if url.get_backend_name() != "sqlite" or path.exists():
        return None
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise _unwritable(path, errno.ENOTDIR)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(path, errno.EACCES)
    return path


def _prepare_file(url: URL) -> None:
    """Create the file, readable by this user only. Raises ConfigError."""
    path = Path(url.database or "")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise _unwritable(path, error.errno) from None


def _unwritable(path: Path, number: int | None) -> ConfigError:
    return ConfigError(
        f"[policy_store] connection: {path} cannot be written: {os.strerror(number or 0)}; name a "
        "file in a directory that this user may write"
    )


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver begins no transactions of its own
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes the lock at once: one that reads first could not, if another wrote since."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_on_server(connection: Connection) -> None:
    """A writer sees what others have committed until now; a reader one moment, as the session."""
    if connection.get_execution_options().get(_WRITES, False):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")


def _may_succeed_again(error: BaseException) -> bool:
    if isinstance(error, IntegrityError):
        return True
    original = getattr(error, "orig", None)
    number = original.args[0] if original is not None and original.args else None
    return getattr(original, "sqlstate", None) in _RETRIED_STATES or number in _RETRIED_NUMBERS


_RETRYING = tenacity.Retrying(
    retry=tenacity.retry_if_exception(_may_succeed_again),
    stop=tenacity.stop_after_attempt(_MAX_ATTEMPTS),
    reraise=True,
)
