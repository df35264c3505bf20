"""scheduler-workerctl over the bus: against a worker in this process."""

import json
import time
import uuid
from pathlib import Path

import pytest

from scheduler_worker.cli import fleet
from scheduler_worker.cli.ctl import main
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import NoValidHost
from scheduler_worker.rpc import dispatcher
from tests.support.commands import plain

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "hosts.yaml"
SPEC = {"flavor": {"vcpus": 2, "memory_mb": 4096, "root_gb": 20}}


@pytest.fixture
def reported(ctl):
    assert ctl("host", "report", str(EXAMPLE))[0] == 0
    return ctl


# Clusters and hosts


def test_the_hosts_of_the_example_are_reported_and_listed(ctl):
    status, out, _ = ctl("host", "report", str(EXAMPLE))
    assert (status, out) == (0, "3 hosts reported; changed: east, west\n")
    listed = plain(ctl, "host", "list", "--sort-column", "host")
    assert [(each["Host"], each["Cluster"], each["VCPUs Used"]) for each in listed] == [
        ("compute-1", "east", 0),
        ("compute-2", "east", 8),
        ("compute-3", "west", 0),
    ]


def test_wrong_reports_are_named_and_none_is_stored(ctl, tmp_path):
    path = tmp_path / "hosts.yaml"
    path.write_text("- {host: a, uuid: u, vcpus: 1, memory_mb: 1, local_gb: 1}\n- {host: b}\n")
    status, _, err = ctl("host", "report", str(path))
    assert (status, "hosts[1]" in err) == (1, True)
    assert plain(ctl, "host", "list") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- host: [", "did not find expected"),
        ("- 3", "report 1: expected fields, got int"),
        ("", "expected a list of host reports"),
        ("just text", "expected a list of host reports"),
    ],
)
def test_a_file_that_has_no_reports_is_refused(ctl, tmp_path, text, said):
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    status, _, err = ctl("host", "report", str(path))
    assert (status, f"{path}:" in err, said in err) == (2, True, True)


def test_times_in_reports_stay_texts(tmp_path):
    path = tmp_path / "hosts.yaml"
    path.write_text("host: a\nupdated_at: 2026-01-02T03:04:05Z\n")
    assert fleet.read_reports(path) == [{"host": "a", "updated_at": "2026-01-02T03:04:05Z"}]


def test_hosts_are_reported_again_until_the_user_ends_it(ctl, monkeypatch):
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    status, out, _ = ctl("host", "report", str(EXAMPLE), "--every", "30")
    assert (status, waits) == (130, [30.0, 30.0])
    assert out.count("3 hosts reported") == 2


def test_a_host_is_removed_with_all_that_is_known_of_it(reported):
    assert reported("host", "remove", "compute-1", "compute-9")[0] == 1
    assert len(plain(reported, "host", "list")) == 3
    listed = plain(reported, "host", "list", "--long")
    [uuid] = [each["UUID"] for each in listed if each["Host"] == "compute-1"]
    assert reported("host", "remove", uuid)[:2] == (0, "removed: compute-1\n")
    assert [each["Host"] for each in plain(reported, "host", "list")] == ["compute-2", "compute-3"]


# Decisions


@pytest.fixture
def decided(reported, client, worker):
    """Two decisions that are kept: the first placed, the second refused."""
    client.select_destinations(SPEC, ["i1"])
    with pytest.raises(NoValidHost):
        client.select_destinations({"flavor": {"vcpus": 99, "memory_mb": 1}}, ["i2"])
    worker[0].parts.recorder.write()
    return reported


def test_the_last_decisions_are_printed_a_line_each(decided):
    status, out, _ = decided("decision", "tail", "--no-follow")
    first, second = out.splitlines()
    assert status == 0
    assert "  placed   i1  " in first
    assert "  i2  east: No host of 3 in 2 clusters; " in second
    _, out, _ = decided("decision", "tail", "--no-follow", "-n", "1", "--json")
    assert json.loads(out)["instances"] == ["i2"]


def test_new_decisions_are_printed_as_they_are_made(decided, client, worker, monkeypatch, capsys):
    looks = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) > 3:
            raise KeyboardInterrupt
        client.select_destinations(SPEC, [f"later-{len(looks)}"])
        worker[0].parts.recorder.write()

    monkeypatch.setattr(time, "sleep", look)
    _, out, _ = decided("decision", "tail", "-n", "0", "--json")
    printed = [json.loads(each)["instances"] for each in out.splitlines()]
    assert printed == [["later-1"], ["later-2"], ["later-3"]]


# Workers


def test_the_last_worker_is_drained_on_request_alone_and_resumed(ctl):
    status, _, err = ctl("worker", "drain", "w1")
    assert (status, "no other worker would take requests" in err) == (1, True)
    for command, state in ((("drain", "w1", "--last"), "drained"), (("resume", "w1"), "serving")):
        assert ctl("worker", *command)[0] == 0
        assert plain(ctl, "worker", "show", "w1")["State"] == state


# Errors


def test_nobody_on_the_bus_has_a_status_of_its_own(capsys):
    url = f"local://{uuid.uuid4().hex}/"
    assert main(["worker", "list", "--url", url, "--timeout", "0.1"]) == 3
    assert "Nobody listens to" in capsys.readouterr().err


def test_a_worker_that_does_not_answer_has_a_status_of_its_own(worker, ctl, monkeypatch):
    monkeypatch.setattr(worker[0]._server, "problem", lambda: None)
    worker[0]._server.stop(5.0)  # its queues stay
    status, _, err = ctl("cluster", "list", "--timeout", "0.1")
    assert (status, "No answer within 0.1 s on topic scheduler" in err) == (3, True)


def test_another_service_that_answers_is_told_from_a_worker(ctl, monkeypatch):
    monkeypatch.setattr(dispatcher, "supports", lambda ours, theirs: False)
    status, _, err = ctl("cluster", "list")
    assert (status, "nova-scheduler, another service, or an older worker" in err) == (3, True)


def test_errors_have_no_traceback_but_with_debug(reported, capsys, monkeypatch):
    assert "Traceback" not in reported("host", "show", "nope")[2]
    monkeypatch.setattr(SchedulerClient, "call", lambda *_, **__: 1 / 0)
    status, _, err = reported("host", "list")
    assert (status, err) == (
        1, "scheduler-workerctl: unexpected ZeroDivisionError: division by zero; "
        "--debug shows where\n",
    )  # fmt: skip


def test_the_environment_names_the_bus(worker, capsys, monkeypatch):
    monkeypatch.setenv("OS_DEFAULT__TRANSPORT_URL", worker[0].bus.url)
    assert main(["worker", "list", "-f", "value", "-c", "Worker"]) == 0
    assert capsys.readouterr().out == "w1\n"


def test_completion_has_every_command(capsys):
    assert main(["complete"]) == 0
    out = capsys.readouterr().out
    assert "cmds_worker='dismiss drain list resume show'" in out
    assert "cmds_balance_dry_run=" in out
