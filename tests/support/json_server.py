"""An HTTP server on the loopback whose answers are documents that a fake service makes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit

from tests.support.servers import LOOPBACK


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any


class Answer(NamedTuple):
    """An answer; ``document`` None: without a body, bytes: as they are."""

    status: int
    document: Any = None
    headers: Mapping[str, str] = {}


class Service(Protocol):
    """A fake service."""

    def answer(self, asked: Asked) -> Answer | None:
        """The answer; None: the connection is closed without one. Runs in any thread."""


Made = TypeVar("Made", bound=Service)


@contextmanager
def serving(make: Callable[[str], Made]) -> Iterator[Made]:
    """The service that ``make`` makes for its URL; it listens."""
    server = ThreadingHTTPServer((LOOPBACK, 0), BaseHTTPRequestHandler)
    service = make(f"http://{LOOPBACK}:{server.server_address[1]}")
    server.RequestHandlerClass = _handler(service)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def _serve(self) -> None:
            length = int(self.headers["Content-Length"] or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            url = urlsplit(self.path)
            query = dict(parse_qsl(url.query))
            answer = service.answer(
                Asked(self.command, url.path.rstrip("/"), query, dict(self.headers), body)
            )
            if answer is None:
                self.close_connection = True
                return
            with contextlib.suppress(ConnectionError):  # who asked is gone
                self._send(answer)

        def _send(self, answer: Answer) -> None:
            document = b"" if answer.document is None else answer.document
            text = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(answer.status)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(text))}
            for name, value in {**headers, **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
