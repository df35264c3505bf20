"""The part of Nova's compute API that migrates VMs; needs the extra ``nova``.

keystoneauth1 logs in, renews the token and finds the API. Requests and answers have the form of
https://docs.openstack.org/api-ref/compute/ in microversion 2.65.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec
from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from oslo_config import cfg

from scheduler_worker import __version__
from scheduler_worker.backends.nova import options
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import BackendError, ConfigError, MigrationRefused
from scheduler_worker.wording import cut

MICROVERSION = "2.65"
"""The first that aborts migrations which wait in a queue (of Rocky, in 2018).

It has what came before: the checks of a destination are made after the answer (2.34), migrations
are listed with the last one first (2.59). The ``force`` of up to 2.67 is never sent.
"""
_REFUSALS = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})
"""What Nova answers about a server's migration; other errors are about us, or about Nova."""
_ROLE = f"; give the account of [{options.GROUP}] a role of an administrator"
_FIXES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: _ROLE,
    HTTPStatus.FORBIDDEN: _ROLE,
    HTTPStatus.NOT_ACCEPTABLE: f"; microversion {MICROVERSION}, of Rocky, is needed",
}
_PAGE = 200
_MOST_PAGES = 20
_MOST_MESSAGE = 300


class NovaMigration(msgspec.Struct, frozen=True):
    """One row of ``GET /os-migrations``."""

    id: int
    uuid: str
    status: str
    created_at: datetime
    instance_uuid: str | None = None
    dest_compute: str | None = None
    """Empty until the scheduler has chosen a host."""

    @property
    def created_at_s(self) -> float:
        """Seconds since the epoch, of Nova's clock; Nova writes UTC without saying so."""
        return self.created_at.replace(tzinfo=self.created_at.tzinfo or UTC).timestamp()


class _Migrations(msgspec.Struct):
    migrations: list[NovaMigration]
    migrations_links: list[Any] = []


class _Server(msgspec.Struct):
    host: str | None = msgspec.field(name="OS-EXT-SRV-ATTR:host", default=None)
    task: str | None = msgspec.field(name="OS-EXT-STS:task_state", default=None)


class _ShownServer(msgspec.Struct):
    server: _Server


class ComputeApi:
    """Asks Nova; every call is bounded by ``[nova] timeout``."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Connects to nothing. Raises ConfigError where ``[nova]`` lacks or contradicts options."""
        group = options.GROUP
        try:
            options.register(conf)
            if conf[group].timeout <= 0:
                raise ConfigError(f"[{group}] timeout: {conf[group].timeout} s is no time to wait")
            auth = loading.load_auth_from_conf_options(conf, group)
            session = loading.load_session_from_conf_options(conf, group, auth=auth)
            self._adapter = loading.load_adapter_from_conf_options(
                conf,
                group,
                session=session,
                default_microversion=MICROVERSION,
                client_name="scheduler_worker",
                client_version=__version__,
            )
        except (
            keystone_errors.ClientException,
            cfg.Error,
            ValueError,
            TypeError,
            OSError,
        ) as error:
            raise ConfigError(f"[{group}]: {error}") from None
        if auth is None:
            raise ConfigError(
                f"[{group}] auth_type: not set; [balancing] target = nova needs an account that "
                "may migrate servers, such as auth_type = password with auth_url, username, ..."
            )

    def live_migrate(self, server: str, request_id: str) -> None:
        """Ask for a live migration to a host that the scheduler chooses. Sent once, never again.

        Raises:
            MigrationRefused: Nova will not do it.
            BackendError: whether Nova will do it is unknown.
        """
        self._ask(
            "POST",
            f"/servers/{quote(server, safe='')}/action",
            _REFUSALS,
            json={"os-migrateLive": {"host": None, "block_migration": "auto"}},
            headers={"X-OpenStack-Request-ID": f"req-{request_id}"},
            connect_retries=0,
            status_code_retries=0,
        )

    def live_migrations(self, since_s: float) -> list[NovaMigration]:
        """All live migrations back to a time, the last one first. Raises BackendError."""
        migrations: list[NovaMigration] = []
        query: dict[str, object] = {"migration_type": "live-migration", "limit": _PAGE}
        for _ in range(_MOST_PAGES):
            page = self._look("/os-migrations", _Migrations, params=query)
            rows = [row for row in page.migrations if row.created_at_s >= since_s]
            migrations += rows
            if not page.migrations_links or len(rows) < len(page.migrations) or not rows:
                break
            query["marker"] = rows[-1].uuid
        return migrations

    def host_of(self, server: str) -> str | None:
        """The host on which a server runs; None while Nova works on it.

        Raises:
            MigrationRefused: there is no such server.
            BackendError: Nova cannot be asked.
        """
        path = f"/servers/{quote(server, safe='')}"
        shown = self._look(path, _ShownServer, {HTTPStatus.NOT_FOUND}).server
        return None if shown.task else shown.host

    def abort(self, server: str, migration: int) -> None:
        """Abort a live migration.

        Raises:
            MigrationRefused: it has ended, or goes on and cannot be aborted any more.
            BackendError: whether it will be aborted is unknown.
        """
        path = f"/servers/{quote(server, safe='')}/migrations/{migration}"
        self._ask("DELETE", path, _REFUSALS)

    def problem(self) -> str | None:
        """Why Nova's API cannot be used; None: it can."""
        try:
            self._look("/os-migrations", _Migrations, params={"limit": 1})
        except BackendError as error:
            return str(error)
        return None

    def _look(
        self, path: str, form: type[Any], refusals: Collection[int] = (), **arguments: Any
    ) -> Any:
        body = self._ask("GET", path, refusals, **arguments)
        try:
            return json_reader(form)(body)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise BackendError(f"Nova's answer to GET {path} cannot be read: {error}") from None

    def _ask(self, method: str, path: str, refusals: Collection[int], **arguments: Any) -> bytes:
        """The body of an answer. Raises MigrationRefused for ``refusals``, else BackendError."""
        try:
            answer = self._adapter.request(path, method, raise_exc=False, **arguments)
        except keystone_errors.ClientException as error:
            raise BackendError(f"Nova cannot be asked: {error or type(error).__name__}") from None
        status: int = answer.status_code
        if status < HTTPStatus.MULTIPLE_CHOICES:
            body: bytes = answer.content
            return body
        kind = MigrationRefused if status in refusals else BackendError
        why = _message(answer.content) or answer.reason
        raise kind(f"Nova answers {status}: {why}{_FIXES.get(status, '')}")


def _message(body: bytes) -> str:
    """The message in an error of Nova, such as ``{"conflictingRequest": {"message": ...}}``."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return ""
    faults = document.values() if isinstance(document, dict) else ()
    texts = [fault["message"] for fault in faults if isinstance(fault, dict) and "message" in fault]
    return cut(str(texts[0]), _MOST_MESSAGE) if texts else ""
