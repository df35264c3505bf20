"""The auditor finds violations."""

from types import SimpleNamespace

from tests.integration.faults.books import Auditor, Snapshot


def snapshot(used: int = 0, reservations=(), instances=None) -> Snapshot:
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
        for instance, name, expires_at_s in reservations
    ]
    return Snapshot(100.0, hosts, made, instances or {})


def test_an_overbooked_host():
    assert list(snapshot(1, [("i", "a", 200)]).violations()) == []
    assert list(snapshot(1, [("i", "a", 200), ("j", "a", 200)]).violations()) == [
        "a has 2 vCPUs and owes 3"
    ]


def test_an_instance_in_two_places():
    one = [("i", "a", 200)]
    assert list(snapshot(0, one, {"a": {"i"}}).violations()) == []
    expected = ["instance i is on a and b"]
    assert list(snapshot(0, [*one, ("i", "b", 200)]).violations()) == expected
    assert list(snapshot(0, one, {"b": {"i"}}).violations()) == expected


def test_a_reservation_that_outlived_its_time():
    reservations = [("kept", "a", 101), ("ending", "a", 99), ("left", "a", 98)]
    assert snapshot(0, reservations).left_behind(99) == ["left"]


def test_an_auditor_keeps_violations():
    overbooked = snapshot(1, [("i", "a", 200), ("j", "a", 200)])
    auditor = Auditor(SimpleNamespace(look=lambda: overbooked))  # type: ignore[arg-type]
    auditor.start()
    auditor.until_it_looked()
    auditor.stop()
    assert auditor.violations == {"a has 2 vCPUs and owes 3"}
