"""The attestation client against a server with TLS, and the worker that believes it."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from scheduler_worker import app, conf
from scheduler_worker.backends.attestation import HttpAttestation
from scheduler_worker.errors import BackendError, ConfigError
from scheduler_worker.model.host_records import HostReport
from scheduler_worker.scheduling.filters.trusted import TrustedFilter
from scheduler_worker.service.trust import AttestationService
from tests.support.certificates import Authority
from tests.support.services import host

NOW = "2026-01-02T03:05:00+00:00"


class AttestationServer(ThreadingHTTPServer):
    """Answers what ``says`` holds, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self, certificate: Any, key: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self.says: Any = b""
        self.status = 200
        self.silent = threading.Event()
        self.asked: list[tuple[str, Any, str | None]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that refuse the certificate are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: AttestationServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, json.loads(body), self.headers["x-auth-blob"]))
        if self.server.silent.is_set():
            self.rfile.read(1)  # until the client gives up
            return
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.says)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority):
    with AttestationServer(*authority.issue("attestation", "IP:127.0.0.1")) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def ask(server, authority):
    """Ask about nodes, with these settings."""

    def levels(*nodes: str, **settings: Any) -> dict[str, str]:
        known: dict[str, Any] = {"server": "127.0.0.1", "port": server.server_address[1]}
        known |= {"ca_file": str(authority.path)} | settings
        return dict(HttpAttestation(AttestationService(**known)).levels(nodes))

    return levels


def answer(**levels: tuple[str, str]) -> bytes:
    hosts = [
        {"host_name": name, "trust_lvl": level, "vtime": vtime}
        for name, (level, vtime) in levels.items()
    ]
    return json.dumps({"hosts": hosts, "more": 1}).encode()


def test_levels_are_what_the_service_says(server, ask):
    server.says = answer(
        a=("trusted", NOW),
        b=("untrusted", "Fri Jan  2 03:05:00 2026"),
        c=("trusted", "lately"),
    )
    found = ask("a", "b", "c", auth_blob="blob")
    assert found == {"a": "trusted", "b": "untrusted", "c": "unknown"}
    [(path, question, blob)] = server.asked
    assert path == "/OpenAttestationWebServices/V1.0/PollHosts"
    assert (question, blob) == ({"count": 3, "hosts": ["a", "b", "c"]}, "blob")


@pytest.mark.parametrize("says", [b"", b"{}", b'{"hosts": [{"host_name": 1}]}', b"\xff", b"[]"])
def test_what_is_no_answer_is_told_of(server, ask, says):
    server.says = says
    with pytest.raises(BackendError, match=r"service 127\.0\.0\.1 gives no trust levels: .+"):
        ask("a")


def test_a_status_that_is_no_success_is_told_of(server, ask):
    server.status = 503
    with pytest.raises(BackendError, match="status 503 Service Unavailable"):
        ask("a")


def test_a_silent_service_is_not_waited_for(server, ask):
    server.silent.set()
    with pytest.raises(BackendError, match="timed out"):
        ask("a", timeout_s=0.2)


def test_a_service_that_is_not_there_is_told_of(ask):
    with pytest.raises(BackendError, match="refused"):
        ask("a", port=1)


def test_a_service_of_another_authority_is_refused(server, ask, tmp_path):
    with pytest.raises(BackendError, match="certificate verify failed"):
        ask("a", ca_file=str(Authority(tmp_path, "stranger").path))
    with pytest.raises(BackendError, match="certificate verify failed"):
        ask("a", ca_file=None)
    assert server.asked == []


def test_a_certificate_for_another_host_is_refused(server, ask):
    with pytest.raises(BackendError, match="not valid for 'localhost'"):
        ask("a", server="localhost")
    assert server.asked == []


def test_any_certificate_does_when_the_operator_says_so(server, ask):
    server.says = answer(a=("trusted", NOW))
    assert ask("a", server="localhost", ca_file=None, insecure=True) == {"a": "trusted"}


def test_authorities_that_cannot_be_read_stop_the_worker(ask):
    with pytest.raises(ConfigError, match="attestation_server_ca_file: /nowhere"):
        ask("a", ca_file="/nowhere")


def test_a_worker_asks_the_service_of_its_configuration(server, authority, tmp_path):
    server.says = answer(a=("trusted", NOW))
    path = tmp_path / "worker.conf"
    path.write_text(
        "[filter_scheduler]\nenabled_filters = TrustedFilter\n"
        "[trusted_computing]\nattestation_server = 127.0.0.1\n"
        f"attestation_port = {server.server_address[1]}\n"
        f"attestation_server_ca_file = {authority.path}\n"
        "[monitoring]\nport = 0\n"
    )
    worker = app.build(conf.load(["--config-file", str(path)]))
    worker.inventory.update_hosts([msgspec.convert(host("a"), HostReport)])
    with worker.running():
        [unit] = worker.pipeline.filters
        assert isinstance(unit, TrustedFilter)
        assert unit.name == "TrustedFilter"
        assert type(unit).levels().of == {"a": "trusted"}
    assert [question["hosts"] for _, question, _ in server.asked] == [["a"]]
