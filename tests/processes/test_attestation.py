"""The attestation client against a server with TLS, and the worker that believes it."""

import json
import threading
from typing import Any

import msgspec
import pytest

from scheduler_worker.backends.attestation import HttpAttestation
from scheduler_worker.compose.api import build_api
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.errors import BackendError
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.scheduling.filters.compute import TrustedFilter
from scheduler_worker.service.policies.trust import AttestationService
from tests.support.certificates import Authority
from tests.support.json_server import Answer, Asked, serving
from tests.support.patience import TooSoon, growing
from tests.support.services import host, request
from tests.support.web import users_file
from tests.support.workers import load_config

NOW = "2026-01-02T03:05:00+00:00"


class FakeAttestation:
    """Replies with ``reply``, and records the requests."""

    def __init__(self, address: str) -> None:
        self.port = int(address.rpartition(":")[2])
        self.reply: Any = b""
        self.status = 200
        self.replies = threading.Event()
        self.replies.set()
        self.asked: list[tuple[str, Any, str | None]] = []

    def answer(self, asked: Asked) -> Answer:
        self.asked.append((asked.path, asked.body, asked.headers.get("x-auth-blob")))
        self.replies.wait()
        return Answer(self.status, self.reply)


@pytest.fixture
def server(authority):
    with serving(FakeAttestation, authority.issue("attestation", "IP:127.0.0.1")) as found:
        yield found
        found.replies.set()


@pytest.fixture
def ask(server, authority):
    """Ask about nodes, with these settings."""

    def levels(*nodes: str, **settings: Any) -> dict[str, str]:
        known: dict[str, Any] = {"server": "127.0.0.1", "port": server.port}
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


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"port": 1}, "refused"),
        ({"ca_file": "stranger"}, "certificate verify failed"),
        ({"server": "localhost"}, "not valid for 'localhost'"),
    ],
)
def test_a_service_that_gives_no_answer_is_reported(server, ask, tmp_path, settings, complaint):
    server.replies.clear()
    if settings.get("ca_file"):
        settings = {"ca_file": str(Authority(tmp_path, "stranger").path)}
    with pytest.raises(BackendError, match=complaint):
        ask("a", **settings)
    assert server.asked == []


def test_a_service_that_does_not_answer_in_time_is_asked_once(server, ask):
    server.replies.clear()

    def scene(timeout_s: float) -> list[Any]:
        with pytest.raises(BackendError, match="timed out"):
            ask(f"{timeout_s}", timeout_s=timeout_s)
        if found := [each for each in server.asked if each[1]["hosts"] == [f"{timeout_s}"]]:
            return found
        raise TooSoon("the handshake was too slow")

    assert len(growing(scene, TooSoon)) == 1


def test_an_error_status_is_reported(server, ask):
    server.status = 503
    with pytest.raises(BackendError, match="status 503 Service Unavailable"):
        ask("a")


def test_any_certificate_is_accepted_with_insecure_ssl(server, ask):
    server.reply = answer(a=("trusted", NOW))
    assert ask("a", server="localhost", ca_file=None, insecure=True) == {"a": "trusted"}


def trusting(server: FakeAttestation, authority: Authority) -> dict[str, dict[str, Any]]:
    """The options of a process that asks the service."""
    service: dict[str, Any] = {"attestation_server": "127.0.0.1", "attestation_port": server.port}
    service["attestation_server_ca_file"] = authority.path
    units = {"enabled_filters": "TrustedFilter"}
    return {"filter_scheduler": units, "trusted_computing": service}


def test_a_worker_asks_the_service_of_its_configuration(server, authority, tmp_path):
    server.reply = answer(a=("trusted", NOW))
    worker = build_worker(load_config(tmp_path / "worker.conf", **trusting(server, authority)))
    worker.inventory.update_hosts([msgspec.convert(host("a"), HostReport)])
    with worker.running():
        [unit] = worker.pipelines.nova.filters
        assert isinstance(unit, TrustedFilter)
        assert unit._trust.levels().of == {"a": "trusted"}
    assert [question["hosts"] for _, question, _ in server.asked] == [["a"]]


def test_an_api_process_asks_it_for_its_explanations(server, authority, tmp_path, redis_url):
    server.reply = answer(a=("trusted", NOW))
    settings = load_config(
        tmp_path / "api.conf",
        **trusting(server, authority),
        state={"url": redis_url},
        policy_store={"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"},
        api={"port": 0, "users_file": users_file(tmp_path)},
    )
    worker = build_worker(settings)
    worker.inventory.update_hosts([msgspec.convert(host(each), HostReport) for each in "ab"])
    worker.stop()
    with build_api(settings).running() as api:
        extra_specs = {"trust:trusted_host": "trusted"}
        flavor = {"vcpus": 1, "memory_mb": 1024, "extra_specs": extra_specs}
        found = api.services.scheduler.explain(request("one", flavor=flavor))
    [diagnosis] = found.clusters.values()
    assert diagnosis.chosen == "a"
    rejected = [each.rejected_by for each in diagnosis.verdicts if each.host == "b"]
    assert rejected == ["TrustedFilter"]
