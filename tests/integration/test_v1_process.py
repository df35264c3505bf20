"""``/v1`` over HTTP: an API process beside a worker, on one Redis and one policy store."""

import socket
from urllib.parse import urlsplit

import msgspec
import pytest

from scheduler_worker import api_process, app
from scheduler_worker.errors import PolicyStoreUnavailable
from scheduler_worker.model.host_records import HostReport
from tests.support import web
from tests.support.servers import free_port
from tests.support.services import host, request, reservations_of
from tests.support.tuners import BALLOON
from tests.support.web import basic, users_file
from tests.support.workers import load_config


@pytest.fixture
def settings(tmp_path, redis_url):
    (tmp_path / "ksm.yaml").write_text(BALLOON)
    return {
        "state": {"url": redis_url},
        "policy_store": {"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"},
        "tuning": {"policy_files": tmp_path / "ksm.yaml"},
        "api": {"port": 0, "users_file": users_file(tmp_path, anna="administrator")},
        "monitoring": {"api_port": free_port()},
        "filter_scheduler": {"enabled_filters": "ComputeFilter,RamFilter"},
    }


def configured(tmp_path, settings):
    return load_config(tmp_path / "v1.conf", **settings)


@pytest.fixture
def worker(tmp_path, settings):
    """A worker that serves no bus: its use cases are called here."""
    found = app.build(configured(tmp_path, settings))
    yield found
    found.stop()


@pytest.fixture
def api(tmp_path, settings, worker):
    with api_process.build(configured(tmp_path, settings)).running() as found:
        yield found


def ask(api, method, path, body=b"", **headers):
    """Status, headers and JSON of an answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = web.ask(urlsplit(api.url).port, path, method, body, basic("anna") | named)
    return answer.status, answer.headers, answer.document


def report(worker, *hosts):
    worker.inventory.update_hosts([msgspec.convert(each, HostReport) for each in hosts])


def test_what_a_worker_knows_is_shown_and_its_reservations_are_released(api, worker):
    report(worker, host("a", cluster="east"), host("b", cluster="west", memory_mb=512))
    worker.scheduler.select(request("one", memory_mb=1024))
    _, _, found = ask(api, "GET", "/v1/hosts")
    shown = {each["name"]: (each["state"], each["reservations"]) for each in found["items"]}
    assert shown == {"a": ("up", 1), "b": ("up", 0)}
    spec = {"flavor": {"vcpus": 1, "memory_mb": 1024}}
    _, _, explained = ask(api, "POST", "/v1/explain", {"spec_obj": spec})
    assert explained["chosen"] == "a"
    assert ask(api, "DELETE", "/v1/reservations/one@uuid-a")[0] == 204
    assert reservations_of(worker.fleet) == []
    [entry] = ask(api, "GET", "/v1/audit?resource=one@uuid-a")[2]["items"]
    assert (entry["user"], entry["origin"], entry["before"]["host"]) == ("anna", "127.0.0.1", "a")


def test_a_tuning_policy_is_in_force_in_the_worker(api, worker):
    [of_file] = ask(api, "GET", "/v1/tuning-policies")[2]["items"]
    assert (of_file["name"], of_file["origin"]) == ("ksm", "file")
    other, path = BALLOON.replace("10", "20"), "/v1/tuning-policies/ksm"
    _, headers, _ = ask(api, "PUT", path, {"text": other}, If_Match="*")
    assert worker.tuner.policies.texts() == {"ksm": other}
    worker.tuner.policies.set("ksm", BALLOON)
    assert ask(api, "DELETE", path, If_Match=headers["ETag"])[0] == 412
    assert ask(api, "DELETE", path, If_Match="*")[0] == 204
    assert worker.tuner.policies.texts() == {"ksm": BALLOON}


def test_the_limit_of_the_options_is_in_force(tmp_path, settings, worker):
    settings["api"] |= {"requests_per_second": 0.001, "burst": 2}
    with api_process.build(configured(tmp_path, settings)).running() as api:
        assert [ask(api, "GET", "/v1")[0] for _ in range(3)] == [200, 200, 429]


def test_a_worker_inside_shares_its_services(tmp_path, settings):
    settings["state"]["url"] = "memory://"
    settings["monitoring"] = {"port": 0}
    with api_process.build_embedded(configured(tmp_path, settings)).running() as api:
        report(api.worker, host("a", cluster="east"))
        api.worker.scheduler.select(request("one"))
        [found] = ask(api, "GET", "/v1/reservations")[2]["items"]
        assert ask(api, "DELETE", f"/v1/reservations/{found['id']}")[0] == 204
        assert reservations_of(api.worker.fleet) == []


def page(api, path):
    """Status and text of a page for monitoring, which needs no log-in."""
    status, _, text = web.ask(api.monitor.port, path)
    return status, text


def test_health_and_metrics_need_no_log_in(api):
    assert page(api, "/livez") == (200, "alive\n")
    assert page(api, "/readyz") == (200, "ready\n")
    assert ask(api, "GET", "/v1/hosts")[0] == 200
    metrics = page(api, "/metrics")[1]
    served = 'scheduler_api_requests_total{method="GET",route="/v1/hosts",status="200"} 1.0'
    assert served in metrics
    assert 'scheduler_api_dependency_up{dependency="state"} 1.0' in metrics
    port = api.monitor.port
    api.stop()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass


def test_readyz_says_that_the_policy_store_is_down_and_livez_does_not(api, monkeypatch):
    def fail(_):
        raise PolicyStoreUnavailable("no database")

    monkeypatch.setattr(api._store, "attachment", fail)
    assert page(api, "/readyz") == (503, "no database\n")
    assert page(api, "/livez")[0] == 200
    assert 'scheduler_api_dependency_up{dependency="policy store"} 0.0' in page(api, "/metrics")[1]
