"""scheduler-workerctl rehearse: against a worker in this process, whose state stays as it was."""

import json
import signal

import pytest
import yaml

from scheduler_worker.cli.ctl import main
from scheduler_worker.cli.progress import Activity
from scheduler_worker.errors import NoValidHost
from tests.support.services import host
from tests.support.workers import write_config

SMALL = {"flavor": {"vcpus": 1, "memory_mb": 1024, "name": "small"}}
STRICT = {
    "id": "p1",
    "name": "strict",
    "filters": [{"unit": "RamFilter"}, {"unit": "NumInstancesFilter"}],
}


@pytest.fixture
def rehearse(worker, ctl):
    """Runs the command; returns its status, output and error."""

    def run(*words):
        worker[0].parts.recorder.write()
        return ctl("rehearse", *words)

    return run


@pytest.fixture
def built(client):
    """Two hosts; i1 to i4 are placed and reported, i5 is reserved, huge was refused."""
    client.update_hosts([host("a"), host("b")])
    places = {}
    for name in ("i1", "i2", "i3", "i4"):
        [[chosen, *_]] = client.select_destinations(SMALL, [name])
        places[name] = chosen.service_host
    for name in "ab":
        here = [{"uuid": each} for each, place in places.items() if place == name]
        use = {"vcpus_used": len(here), "memory_mb_used": 1024 * len(here)}
        client.update_hosts([{"uuid": f"uuid-{name}", "host": name, "instances": here, **use}])
    [[chosen, *_]] = client.select_destinations(SMALL, ["i5"])
    places["i5"] = chosen.service_host
    with pytest.raises(NoValidHost):
        client.select_destinations({"flavor": {"vcpus": 99, "memory_mb": 1}}, ["huge"])
    return places


def records_of(client):
    clusters = [each["name"] for each in client.list_clusters()["clusters"]]
    return [client.list_records(each)["records"] for each in (None, *clusters)]


def test_under_the_same_conditions_as_many_are_placed_and_nothing_is_touched(
    built, rehearse, client
):
    before = records_of(client)
    status, out, err = rehearse("--json")
    found = json.loads(out)
    assert status == 0
    assert err == "reading the records of hosts\nreading decisions\nrehearsing 6 decisions\n"
    assert found["rehearsed"] == 6
    assert found["placed"] == {"before": 5, "after": 5}
    assert found["left_out"] == {}
    assert {each["change"] for each in found["changes"]} <= {"moved"}
    was, now = (found["packing"][each][0]["use"] for each in ("before", "after"))
    assert {name: each["mean"] for name, each in was.items()} == {
        name: each["mean"] for name, each in now.items()
    }
    assert was["vcpus"]["mean"] > 0
    assert records_of(client) == before


def test_a_stricter_policy_names_what_it_would_have_refused(built, rehearse, tmp_path):
    path = tmp_path / "strict.yaml"
    strict = {**STRICT, "parameters": {"max_instances_per_host": "1"}}
    path.write_text(yaml.safe_dump({"policies": [strict]}))
    status, out, _ = rehearse("--policy", str(path), "--json")
    assert status == 0
    found = json.loads(out)
    refused = [each for each in found["changes"] if each["change"] == "refused"]
    assert [each["instances"] for each in refused] == [["i3"], ["i4"], ["i5"]]
    assert all(each["reason"].startswith("No host: of 2 hosts none ") for each in refused)


def test_a_drained_host_gets_nothing_of_what_it_got(built, rehearse):
    status, out, _ = rehearse("--drain", "a", "--json")
    changes = json.loads(out)["changes"]
    assert status == 0
    assert changes
    assert all(each["hosts"] == ["b"] for each in changes if each["change"] == "moved")
    assert {each["instances"][0] for each in changes if each["hosts_before"] == ["a"]} == {
        name for name, place in built.items() if place == "a"
    }


def test_more_hosts_take_more(built, rehearse, tmp_path):
    path = tmp_path / "hosts.yaml"
    path.write_text(yaml.safe_dump([host("c", vcpus=128)]))
    found = json.loads(rehearse("--add-hosts", str(path), "--json")[1])
    [placed] = [each for each in found["changes"] if each["change"] == "placed"]
    assert (placed["instances"], placed["hosts"]) == (["huge"], ["c"])


def test_the_summary_is_for_people(built, rehearse):
    drain = ("--drain", "a", "--drain", "b")
    status, out, _ = rehearse(*drain)
    assert status == 0
    assert "placed:  5 -> 0\n" in out
    assert "would be refused: 5\n" in out
    assert "  i1 (small): " in out
    assert "-> No host: of 2 hosts none is enabled.\n" in out
    assert "cluster default: 2 hosts, 0 of them unused -> 2\n" in out
    assert "  and 3 more; see --limit\n" in rehearse(*drain, "--limit", "2")[1]


def test_copies_are_rehearsed_without_the_workers(built, rehearse, tmp_path, capsys):
    path = tmp_path / "copies.jsonl"
    first = json.loads(rehearse("--save", str(path), "--json")[1])
    elsewhere = write_config(tmp_path / "elsewhere.conf", DEFAULT={"host": "w2"})
    capsys.readouterr()
    assert main(["rehearse", "--from", str(path), "--json", "--config-file", str(elsewhere)]) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_what_is_wrong_is_named(built, rehearse, tmp_path):
    status, _, err = rehearse("--drain", "nobody")
    assert (status, "there is no host 'nobody'" in err) == (1, True)
    assert "reading decisions" not in err
    path = tmp_path / "copies.jsonl"
    path.write_text("{}")
    status, _, err = rehearse("--from", str(path))
    assert status == 2
    assert f"{path}: is no copy, at its beginning" in err
    assert rehearse("--from", str(tmp_path / "none"))[0] == 2


def test_the_newest_are_taken_up_to_a_bound(built, rehearse, tmp_path):
    status, out, _ = rehearse("--most", "2")
    assert status == 0
    assert out.startswith("The newest 2 decisions are taken, since 2")
    assert "; --most takes more\n2 decisions rehearsed\nplaced:  1 -> 1\n" in out
    path = tmp_path / "copies.jsonl"
    assert "newest" not in rehearse("--save", str(path), "--most", "6")[1]
    status, out, err = rehearse("--from", str(path), "--most", "4", "--json")
    assert json.loads(out)["rehearsed"] == 4
    assert "The newest 4 of 6 decisions are taken, since 2" in err


def test_what_is_not_decided_in_time_is_left_out(built, rehearse):
    status, out, _ = rehearse("--within", "1e-9")
    assert status == 0
    assert out.startswith("1 decisions rehearsed\n  5 left out: the time of --within was over ")


def test_ctrl_c_ends_it_with_what_was_decided(built, rehearse, monkeypatch):
    def interrupted(activity, done, total=None, unit=""):
        if total == 6:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Activity, "far", interrupted)
    before = signal.getsignal(signal.SIGINT)  # a shell's background job ignores it
    status, out, _ = rehearse()
    assert status == 0
    assert out.startswith("1 decisions rehearsed\n  5 left out: Ctrl-C came before ")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_drained_host_needs_the_decisions_of_its_cluster_alone(built, rehearse, client):
    client.update_hosts([host("e", cluster="east")])
    client.select_destinations({**SMALL, "scheduler_hints": {"cluster": ["east"]}}, ["i6"])
    assert json.loads(rehearse("--drain", "e", "--json")[1])["rehearsed"] == 1
    assert json.loads(rehearse("--json")[1])["rehearsed"] == 7
