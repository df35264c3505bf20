"""A server that answers as an oVirt engine whose answers are files, over HTTP or TLS."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from tests.support.servers import LOOPBACK

ANSWERS = Path(__file__).resolve().parents[1] / "samples" / "ovirt_engine"
API = "/ovirt-engine/api/"
USER, PASSWORD, TOKEN = "reader@internal", "secret words", "t0ken"


class FakeEngine:
    """What is asked of it, and what it answers beside the files."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.replaced: dict[str, tuple[int, str]] = {}
        """Path below the API -> status and text, in place of the file."""

    def answer(self, path: str) -> tuple[int, str]:
        name = path.removeprefix(API)
        file = ANSWERS / f"{name}.xml"
        if name in self.replaced:
            return self.replaced[name]
        return (200, file.read_text()) if file.is_file() else (404, "")


def _handler(engine: FakeEngine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            engine.asked.append(f"POST {self.path}")
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if self.path.endswith("sso-logout"):
                self._send(200, "{}", "application/json")
            elif (form["username"], form["password"]) == ([USER], [PASSWORD]):
                self._send(200, json.dumps({"access_token": TOKEN}), "application/json")
            else:
                refusal = {"error": "access_denied", "error_description": "Cannot authenticate"}
                self._send(400, json.dumps([refusal]), "application/json")

        def do_GET(self) -> None:
            engine.asked.append(f"GET {self.path}")
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                self._send(401, "", "text/html")
            else:
                self._send(*engine.answer(self.path), "application/xml;charset=UTF-8")

        def _send(self, status: int, text: str, kind: str) -> None:
            body = text.encode()
            self.send_response(status)
            for name, value in self._headers(kind, body).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        @staticmethod
        def _headers(kind: str, body: bytes) -> Mapping[str, str]:
            return {"Content-Type": kind, "Content-Length": str(len(body))}

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def running_engine(certificate: tuple[Path, Path] | None = None) -> Iterator[FakeEngine]:
    """An engine that listens; with TLS where it has a certificate and a key."""
    engine = FakeEngine("")
    server = ThreadingHTTPServer((LOOPBACK, 0), _handler(engine))
    scheme = "http"
    if certificate is not None:
        scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    name = "localhost" if certificate else LOOPBACK
    engine.url = f"{scheme}://{name}:{server.server_address[1]}/ovirt-engine/api"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
