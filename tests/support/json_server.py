"""An HTTP server on the loopback whose answers a fake service makes, as documents or as texts."""

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit

from tests.support.servers import LOOPBACK


class Asked(NamedTuple):
    """A request; its body is a document if it is JSON, bytes if it is binary, and else a text."""

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
def serving(
    make: Callable[[str], Made], certificate: tuple[Path, Path] | None = None
) -> Iterator[Made]:
    """The service that ``make`` makes for its URL; it listens; with a certificate by TLS."""
    server = ThreadingHTTPServer((LOOPBACK, 0), BaseHTTPRequestHandler)
    scheme, name = "http", LOOPBACK
    if certificate is not None:
        scheme, name = "https", "localhost"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    service = make(f"{scheme}://{name}:{server.server_address[1]}")
    server.RequestHandlerClass = _handler(service)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
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
            body: Any = self.rfile.read(int(self.headers["Content-Length"] or 0))
            kind = self.headers.get("Content-Type", "")
            if "protobuf" not in kind:
                body = json.loads(body) if body and "json" in kind else body.decode()
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

        do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

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
