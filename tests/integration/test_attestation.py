"""The attestation client against a server with TLS, and the worker that believes it."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from scheduler_worker import api_process, app, conf
from scheduler_worker.backends.attestation import HttpAttestation
from scheduler_worker.errors import BackendError, ConfigError
from scheduler_worker.model.host_records import HostReport
from scheduler_worker.scheduling.filters.compute import TrustedFilter
from scheduler_worker.service.policies.trust import AttestationService
from tests.support.certificates import Authority
from tests.support.services import host, request
from tests.support.workers import write_config

NOW = "2026-01-02T03:05:00+00:00"


class AttestationServer(ThreadingHTTPServer):
    """Replies with ``reply``, and records the requests."""

    daemon_threads = True

    def __init__(self, certificate: Any, key: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self.reply: Any = b""
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
        self.wfile.write(self.server.reply)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority):
    with AttestationServer(*authority.issue("attestation", "IP:127.0.0.1")) as found:
        thread = threading.Thread(
            target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
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


def test_levels_are_those_of_the_service(server, ask):
    server.reply = answer(
        a=("trusted", NOW),
        b=("untrusted", "Fri Jan  2 03:05:00 2026"),
        c=("trusted", "lately"),
    )
    found = ask("a", "b", "c", auth_blob="blob")
    assert found == {"a": "trusted", "b": "untrusted", "c": "unknown"}
    [(path, question, blob)] = server.asked
    assert path == "/OpenAttestationWebServices/V1.0/PollHosts"
    assert (question, blob) == ({"count": 3, "hosts": ["a", "b", "c"]}, "blob")


@pytest.mark.parametrize("reply", [b"", b"{}", b'{"hosts": [{"host_name": 1}]}', b"\xff", b"[]"])
def test_a_malformed_reply_is_reported(server, ask, reply):
    server.reply = reply
    with pytest.raises(BackendError, match=r"service 127\.0\.0\.1 gives no trust levels: .+"):
        ask("a")


def test_an_error_status_is_reported(server, ask):
    server.status = 503
    with pytest.raises(BackendError, match="status 503 Service Unavailable"):
        ask("a")


def test_a_silent_service_times_out(server, ask):
    server.silent.set()
    with pytest.raises(BackendError, match="timed out"):
        ask("a", timeout_s=0.2)


def test_an_unreachable_service_is_reported(ask):
    with pytest.raises(BackendError, match="refused"):
        ask("a", port=1)


def test_a_service_with_an_untrusted_certificate_is_refused(server, ask, tmp_path):
    with pytest.raises(BackendError, match="certificate verify failed"):
        ask("a", ca_file=str(Authority(tmp_path, "stranger").path))
    with pytest.raises(BackendError, match="certificate verify failed"):
        ask("a", ca_file=None)
    assert server.asked == []


def test_a_certificate_for_another_host_is_refused(server, ask):
    with pytest.raises(BackendError, match="not valid for 'localhost'"):
        ask("a", server="localhost")
    assert server.asked == []


def test_any_certificate_is_accepted_with_insecure_ssl(server, ask):
    server.reply = answer(a=("trusted", NOW))
    assert ask("a", server="localhost", ca_file=None, insecure=True) == {"a": "trusted"}


def test_an_unreadable_ca_file_stops_the_worker(ask):
    with pytest.raises(ConfigError, match="attestation_server_ca_file: /nowhere"):
        ask("a", ca_file="/nowhere")


def test_a_worker_asks_the_service_of_its_configuration(server, authority, tmp_path):
    server.reply = answer(a=("trusted", NOW))
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
        assert unit._trust.levels().of == {"a": "trusted"}
    assert [question["hosts"] for _, question, _ in server.asked] == [["a"]]


def test_an_api_process_asks_it_for_its_explanations(server, authority, tmp_path, redis_url):
    server.reply = answer(a=("trusted", NOW))
    users_file = tmp_path / "users.yaml"
    users_file.write_text("")
    path = write_config(
        tmp_path / "api.conf",
        filter_scheduler={"enabled_filters": "TrustedFilter"},
        trusted_computing={
            "attestation_server": "127.0.0.1",
            "attestation_port": server.server_address[1],
            "attestation_server_ca_file": authority.path,
        },
        state={"url": redis_url},
        policy_store={"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"},
        api={"port": 0, "users_file": users_file},
    )
    settings = conf.load(["--config-file", str(path)])
    worker = app.build(settings)
    worker.inventory.update_hosts([msgspec.convert(host(each), HostReport) for each in "ab"])
    worker.stop()
    with api_process.build(settings).running() as api:
        extra_specs = {"trust:trusted_host": "trusted"}
        flavor = {"vcpus": 1, "memory_mb": 1024, "extra_specs": extra_specs}
        asked = request("one", flavor=flavor)
        found = api.services.scheduler.explain(asked)
    [diagnosis] = found.clusters.values()
    assert diagnosis.chosen == "a"
    assert [each.rejected_by for each in diagnosis.verdicts if each.host == "b"] == [
        "TrustedFilter"
    ]
