"""The auditor sees what it is there to see."""

from tests.integration.faults.books import LATE_S, Snapshot


def snapshot(used: int = 0, promises=(), instances=None) -> Snapshot:
    hosts = [
        {"uuid": f"uuid-{name}", "host": name, "vcpus": 2, "vcpus_used": used} for name in "ab"
    ]
    made = [
        {
            "instance_uuid": instance,
            "host_uuid": f"uuid-{name}",
            "host": name,
            "resources": {"vcpus": 1},
            "expires_at_s": expires_at_s,
        }
        for instance, name, expires_at_s in promises
    ]
    return Snapshot(100.0, hosts, made, instances or {})


def test_a_host_that_owes_more_than_it_has():
    assert list(snapshot(1, [("i", "a", 200)]).violations()) == []
    assert list(snapshot(1, [("i", "a", 200), ("j", "a", 200)]).violations()) == [
        "a has 2 vCPUs and owes 3"
    ]


def test_an_instance_in_two_places():
    one = [("i", "a", 200)]
    assert list(snapshot(0, one, {"a": {"i"}}).violations()) == []
    told = ["instance i is on a and b"]
    assert list(snapshot(0, [*one, ("i", "b", 200)]).violations()) == told
    assert list(snapshot(0, one, {"b": {"i"}}).violations()) == told


def test_a_promise_that_outlived_its_time():
    promises = [("kept", "a", 101), ("ending", "a", 99), ("left", "a", 99 - LATE_S)]
    assert snapshot(0, promises).left_behind() == ["left"]
