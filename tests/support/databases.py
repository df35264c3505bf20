"""Private PostgreSQL and MariaDB servers on free loopback ports, run by an unprivileged user."""

import os
import pwd
import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.support.servers import LOOPBACK, Server, ServerFailed, program

_POSTGRES_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
_MARIADB_PLACES = (Path("/usr/sbin"), Path("/usr/libexec"))
PASSWORD = "secret"
"""Of the servers that tests start; they listen on the loopback only."""


class DatabaseServer(Server):
    """A server with one superuser, whose databases are each made for one test.

    Neither of the two runs as root: there, all its programs run as ``user``.
    """

    user: str

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._give_away(self.directory)
        if not self._data.exists():
            self.initialize()
        super().start()
        self._give_away(self.log)

    def initialize(self) -> None:
        """Make the data directory."""
        raise NotImplementedError

    def create_database(self) -> str:
        """A new, empty database; returns its URL."""
        name = f"t{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        return f"{self.url}/{name}"

    def check_ready(self) -> None:
        self.execute("SELECT 1")

    def execute(self, statement: str) -> None:
        """Run a statement as the superuser."""
        raise NotImplementedError

    @property
    def _data(self) -> Path:
        return self.directory.resolve() / "data"

    def _is_ours(self, pid: int) -> bool:
        """Both servers work in their data directories."""
        try:
            return Path(f"/proc/{pid}/cwd").readlink() in {self._data, self.directory.resolve()}
        except OSError:
            return False

    def _as_user(self, command: Sequence[str]) -> list[str]:
        if os.geteuid() != 0:
            return list(command)
        return [program("setpriv"), f"--reuid={self.user}", f"--regid={self.user}",
                "--clear-groups", "--", *command]  # fmt: skip

    def _give_away(self, path: Path) -> None:
        """Let the server's user write there, and reach it."""
        if os.geteuid() != 0:
            return
        account = pwd.getpwnam(self.user)
        if path.exists():
            os.chown(path, account.pw_uid, account.pw_gid)
        for parent in path.resolve().parents:
            if parent == Path(parent.anchor) or parent.stat().st_mode & 0o001:
                continue
            parent.chmod(parent.stat().st_mode | 0o011)  # pytest's folders are its user's alone

    def _run(self, command: Sequence[str], stdin: str | None = None) -> None:
        done = subprocess.run(
            self._as_user(command), cwd=self.directory, input=stdin, capture_output=True, text=True
        )
        if done.returncode:
            raise ServerFailed(f"{' '.join(command)}: {done.stdout}{done.stderr}")


class PostgresServer(DatabaseServer):
    name = "PostgreSQL"
    user = "postgres"

    @property
    def url(self) -> str:
        return f"postgresql://tester:{PASSWORD}@{LOOPBACK}:{self.port}"

    def initialize(self) -> None:
        password = self.directory / "password"
        password.write_text(PASSWORD)
        self._give_away(password)
        self._run([
            program("initdb", *_POSTGRES_PLACES), "--pgdata", str(self._data),
            "--username", "tester", "--pwfile", str(password.resolve()),
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync",
        ])  # fmt: skip

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": 60,
        }
        flags = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        server = program("postgres", *_POSTGRES_PLACES)
        return self._as_user([server, "-D", str(self._data), "-p", str(self.port), *flags])

    def stop(self) -> None:
        self._end("pid", signal.SIGINT)  # SIGTERM would wait until all clients have left

    def execute(self, statement: str) -> None:
        import psycopg

        url = f"{self.url}/postgres"
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            connection.execute(statement.encode())


class MariaServer(DatabaseServer):
    """A MariaDB; when one starts, it removes the temporary tables of all in its ``tmpdir``."""

    name = "MariaDB"
    user = "mysql"

    @property
    def url(self) -> str:
        return f"mariadb://tester:{PASSWORD}@{LOOPBACK}:{self.port}"

    def initialize(self) -> None:
        self._run([
            program("mariadb-install-db"), "--no-defaults", f"--datadir={self._data}",
            self._tmpdir(), "--auth-root-authentication-method=normal", "--skip-test-db",
        ])  # fmt: skip

    def command(self) -> list[str]:
        first = self.directory / "first.sql"
        first.write_text(
            f"CREATE USER IF NOT EXISTS tester@'{LOOPBACK}' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO tester@'{LOOPBACK}' WITH GRANT OPTION;\n"
        )
        self._give_away(first)
        return self._as_user([
            program("mariadbd", *_MARIADB_PLACES), "--no-defaults", f"--datadir={self._data}",
            f"--port={self.port}", f"--bind-address={LOOPBACK}", self._tmpdir(),
            f"--socket={self.directory.resolve() / 'socket'}", f"--init-file={first.resolve()}",
            "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=64M", "--skip-log-bin",
            f"--pid-file={self.directory.resolve() / 'server.pid'}",
        ])  # fmt: skip

    def _tmpdir(self) -> str:
        own = self.directory.resolve() / "tmp"
        own.mkdir(exist_ok=True)
        self._give_away(own)
        return f"--tmpdir={own}"

    def execute(self, statement: str) -> None:
        import pymysql

        connection = pymysql.connect(
            host=LOOPBACK, port=self.port, user="tester", password=PASSWORD, connect_timeout=5
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
