"""Reads policies, units and clusters from an oVirt engine, as oVirt's client libraries do."""

import contextlib
import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from scheduler_worker.api import resource_types as types
from scheduler_worker.api.codec import MalformedBody, read_collection
from scheduler_worker.certificates import File, tls_context
from scheduler_worker.errors import BackendError, ConfigError

MAX_ANSWER_BYTES = 64 * 2**20
_API_PATH = "/ovirt-engine/api"
_TOKEN_PATH = "/ovirt-engine/sso/oauth/token"  # noqa: S105 - a path
_LOGOUT_PATH = "/ovirt-engine/services/sso-logout"
_FORM = "application/x-www-form-urlencoded"
_OK = http.client.OK
_TIMEOUT_S = 60.0

AnyResource = TypeVar("AnyResource", bound=types.Resource)


class EnginePolicy(NamedTuple):
    """A policy of an engine with its filters, weights and balance."""

    policy: types.Policy
    filters: list[types.Filter]
    weights: list[types.Weight]
    balances: list[types.Balance]


class Engine(NamedTuple):
    """What an engine says of scheduling."""

    units: list[types.Unit]
    policies: list[EnginePolicy]
    clusters: list[types.Cluster]


class EngineClient:
    """Reads from an engine; logs in when it is entered, and out when it is left.

    Entering and every method raise BackendError when the engine cannot be reached, refuses, or
    answers something else than an engine does.
    """

    def __init__(self, url: str, user: str, password: str, *, ca_file: str | None = None) -> None:
        """``url`` is that of the API, ``https://engine/ovirt-engine/api``. Raises ConfigError."""
        self._url = _checked(url)
        self._credentials = {"username": user, "password": password}
        self._tls = tls_context(File("--ca-file", ca_file)) if self._url.scheme == "https" else None
        self._token = ""

    def __enter__(self) -> Self:
        form = {"grant_type": "password", "scope": "ovirt-app-api", **self._credentials}
        answer = self._form(_TOKEN_PATH, form)
        token = answer.get("access_token")
        if not isinstance(token, str):
            why = answer.get("error_description") or answer.get("error") or "it gives no token"
            raise self._error(f"refuses the log-in of {form['username']}: {why}")
        self._token = token
        return self

    def __exit__(self, *_: object) -> None:
        # A token that is not ended expires by itself, and what was read is read.
        with contextlib.suppress(BackendError):
            self._form(_LOGOUT_PATH, {"scope": "", "token": self._token})

    def read(self) -> Engine:
        """Everything about policies."""
        policies = []
        for policy in self._list(types.Policy, "schedulingpolicies"):
            path = f"schedulingpolicies/{quote(policy.id or '', safe='')}"
            filters = self._list(types.Filter, f"{path}/filters")
            weights = self._list(types.Weight, f"{path}/weights")
            balances = self._list(types.Balance, f"{path}/balances")
            policies.append(EnginePolicy(policy, filters, weights, balances))
        units = self._list(types.Unit, "schedulingpolicyunits")
        return Engine(units, policies, self._list(types.Cluster, "clusters"))

    def _list(self, kind: type[AnyResource], path: str) -> list[AnyResource]:
        headers = {
            "Version": "4",
            "Accept": "application/xml",
            "Authorization": f"Bearer {self._token}",
        }
        full = f"{self._url.path.rstrip('/') or _API_PATH}/{path}"
        status, body = self._request("GET", full, headers)
        if status != _OK:
            raise self._error(f"answers {full} with status {status}")
        try:
            return read_collection(kind, body)
        except MalformedBody as error:
            raise self._error(f"answers {full} with something else than a list: {error}") from None

    def _form(self, path: str, form: Mapping[str, str]) -> dict[str, Any]:
        headers = {"Content-Type": _FORM, "Accept": "application/json"}
        status, body = self._request("POST", path, headers, urlencode(form))
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise self._error(f"answers {path} with status {status} and no JSON") from None
        if isinstance(answer, list) and answer:
            answer = answer[0]
        if not isinstance(answer, dict):
            raise self._error(f"answers {path} with status {status} and no object")
        return answer

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], body: str | None = None
    ) -> tuple[int, bytes]:
        host, port = self._url.hostname or "", self._url.port
        connection = (
            http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
            if self._tls is None
            else http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=self._tls)
        )
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            text = response.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise self._error(f"cannot be read: {error!s:.200}") from None
        finally:
            connection.close()
        if len(text) > MAX_ANSWER_BYTES:
            raise self._error(f"answers {path} with more than {MAX_ANSWER_BYTES} bytes")
        return response.status, text

    def _error(self, problem: str) -> BackendError:
        return BackendError(f"The engine at {self._url.netloc} {problem}")


def _checked(url: str) -> SplitResult:
    parts = urlsplit(url)
    try:
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        parts.port  # noqa: B018 - raises for a port that is no number
    except ValueError:
        is_usable = False
    if not is_usable or parts.username is not None:
        raise ConfigError(
            "--url: is not the address of an engine's API; "
            "give one such as https://engine.example.com/ovirt-engine/api, and the user by --user"
        )
    return parts
