"""Requests to HTTP servers on the loopback, and the users of an API."""

import base64
import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.api.users import edited, new_user
from scheduler_worker.compose.api import ApiServer
from scheduler_worker.observer import Observer
from scheduler_worker.operations.callers import Grant, Role
from tests.support.patience import SOON_S
from tests.support.servers import LOOPBACK

PASSWORD = "correct horse"
"""Of every user."""


class WebAnswer(NamedTuple):
    status: int
    headers: Any
    text: str

    @property
    def document(self) -> Any:
        """Of JSON; None: the answer has no body."""
        return json.loads(self.text) if self.text else None


def ask(
    port: int, path: str, method: str = "GET", body: Any = b"", headers: Mapping[str, str] = {}
) -> WebAnswer:
    """The answer of a server; a ``body`` that is no text is sent as JSON."""
    if not isinstance(body, bytes):
        body, headers = json.dumps(body).encode(), {"Content-Type": "application/json", **headers}
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=SOON_S)
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return WebAnswer(answer.status, answer.headers, answer.read().decode())


@contextlib.contextmanager
def listening(
    application: Any, observer: Observer | None = None, /, **settings: Any
) -> Iterator[ApiServer]:
    """The API's server with an application, on a free port unless one is set."""
    server = ApiServer(ApiSettings(**{"port": 0, "threads": 2} | settings), application, observer)
    server.start()
    try:
        yield server
    finally:
        server.stop(1.0)


def basic(user: str, password: str = PASSWORD) -> dict[str, str]:
    """The header that logs a user in."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def users_file(folder: Path, **roles: Role) -> Path:
    """A file of users in a folder, each with a role in all clusters."""
    with edited(folder / "users.yaml") as users:
        for name, role in roles.items():
            users[name] = new_user(name, PASSWORD, (Grant(role),))
    return folder / "users.yaml"
