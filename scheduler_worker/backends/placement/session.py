"""Requests to Placement, with the account and the addresses of a nova.conf's ``[placement]``.

keystoneauth logs in, renews tokens, finds Placement in the service catalogue (region, interfaces)
or at ``endpoint_override``, and verifies certificates. Connections are kept and bounded in number.
"""

from typing import Any, NamedTuple

import msgspec
from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from scheduler_worker.conversion import convert
from scheduler_worker.errors import (
    BackendError,
    ConfigError,
    PlacementRefused,
    PlacementUnavailable,
)
from scheduler_worker.redaction import without_user
from scheduler_worker.wording import cut

GROUP = "placement"
VERSION = "1.36"
"""The microversion that Nova 34 claims with; from 1.38 on, claims need a type of consumer."""
DEFAULT_TIMEOUT_S = 60.0
"""How long Placement may be silent, where ``[placement] timeout`` does not say."""
_MAX_REASON = 500

_SILENT = (
    keystone_errors.ConnectFailure,
    keystone_errors.ConnectTimeout,
    keystone_errors.UnknownConnectionError,
    keystone_errors.DiscoveryFailure,
    keystone_errors.HttpServerError,
    keystone_errors.RetriableConnectionFailure,
)
"""What may be over soon. All else that keystoneauth raises needs an operator."""


class PlacementAnswer(NamedTuple):
    """What Placement answered; ``body`` is None where it is no JSON."""

    status: int
    body: Any

    @property
    def is_ok(self) -> bool:
        """Whether it did what it was asked for."""
        return 200 <= self.status < 300

    @property
    def error(self) -> tuple[str, str]:
        """Code and detail of the first error in the body; empty where it does not say."""
        try:
            first = self.body["errors"][0]
            return str(first.get("code", "")), str(first.get("detail", ""))
        except (TypeError, KeyError, IndexError, AttributeError):
            return "", ""


class _Version(msgspec.Struct):
    min_version: str
    max_version: str


class _Versions(msgspec.Struct):
    versions: list[_Version]


class PlacementSession:
    """An authenticated client of Placement; safe for threads."""

    def __init__(self, adapter: Adapter, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._adapter = adapter
        self._timeout_s = timeout_s

    def request(
        self, method: str, path: str, body: Any = None, *, timeout_s: float | None = None
    ) -> PlacementAnswer:
        """Send one request; every status below 500 but 401 and 403 is an answer.

        ``path`` begins with a slash and may have a query. ``timeout_s`` shortens the configured
        silence.

        Raises:
            PlacementUnavailable: away, slow or broken; whether a write was done is unknown.
            PlacementRefused: it does not accept the account, or cannot be found.
        """
        wait_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        arguments: dict[str, Any] = {} if body is None else {"json": body}
        try:
            response = self._adapter.request(
                path,
                method,
                microversion=VERSION,
                raise_exc=False,
                timeout=max(wait_s, 0.001),  # of each wait for the network
                headers={"Accept": "application/json"},
                **arguments,
            )
        except _SILENT as error:
            raise PlacementUnavailable(_described(error)) from None
        except (keystone_errors.ClientException, OSError, ValueError) as error:
            raise PlacementRefused(_described(error)) from None
        try:
            decoded = msgspec.json.decode(response.content)
        except msgspec.DecodeError:
            decoded = None
        answer = PlacementAnswer(response.status_code, decoded)
        if answer.status >= 500:
            raise PlacementUnavailable(f"it answered {_summary(answer)}")
        if answer.status in {401, 403}:
            raise PlacementRefused(
                f"it does not let the account of [{GROUP}] {method} {path}: {_summary(answer)}"
            )
        return answer

    def problem(self) -> str | None:
        """Why it would not serve a worker; None: it would."""
        try:
            answer = self.request("GET", "/resource_providers?name=scheduler-worker")
        except BackendError as error:
            return str(error)
        if answer.status == 406:
            return f"Placement does not speak version {VERSION}; that of Train and later does"
        return None if answer.is_ok else f"Placement answered {_summary(answer)}"

    def versions(self) -> tuple[str, str]:
        """The oldest and the newest microversion that Placement speaks. Raises as a request."""
        answer = self.request("GET", "/")
        try:
            spoken = convert(answer.body, _Versions).versions
            return spoken[0].min_version, spoken[0].max_version
        except (msgspec.ValidationError, IndexError):
            problem = f"its answer to GET / ({answer.status}) has no versions"
            raise PlacementRefused(problem) from None

    def close(self) -> None:
        """Close the kept connections; a later request opens new ones."""
        self._adapter.session.session.close()


def open_session(conf: cfg.ConfigOpts, *, connections: int) -> PlacementSession:
    """The session that ``[placement]`` describes, with at most so many connections at a time.

    Nothing is sent yet.

    Raises ConfigError where options are missing, unknown or contradict each other.
    """
    loading.register_auth_conf_options(conf, GROUP)
    loading.register_session_conf_options(conf, GROUP)
    loading.register_adapter_conf_options(conf, GROUP)
    try:
        auth = loading.load_auth_from_conf_options(conf, GROUP)
        if auth is None:
            raise ConfigError(
                f"[{GROUP}] auth_type: not set; copy the group [{GROUP}] from nova.conf"
            )
        session = loading.load_session_from_conf_options(conf, GROUP, auth=auth)
        options = conf[GROUP]
        chosen = options.valid_interfaces or options.interface
        interfaces = {} if chosen else {"interface": ["internal", "public"]}  # Nova's default
        adapter = loading.load_adapter_from_conf_options(
            conf, GROUP, session=session, service_type=options.service_type or GROUP, **interfaces
        )
    except (keystone_errors.ClientException, cfg.Error, TypeError, ValueError, OSError) as error:
        raise ConfigError(f"[{GROUP}]: {error}") from None
    for scheme in ("http://", "https://"):
        session.session.get_adapter(scheme).init_poolmanager(1, connections, block=True)
    return PlacementSession(adapter, timeout_s=options.timeout or DEFAULT_TIMEOUT_S)


def _summary(answer: PlacementAnswer) -> str:
    code, detail = answer.error
    return " ".join(filter(None, (str(answer.status), code, cut(detail, _MAX_REASON))))


def _described(error: Exception) -> str:
    return cut(without_user(str(error) or type(error).__name__), _MAX_REASON)
