"""Reports of several sources: which keep a host alive, and how they are ordered."""

from typing import Any

import msgspec
import pytest

from scheduler_worker.codec import decode_host_reports
from scheduler_worker.errors import NoValidHost, RequestError
from tests.support.services import World, host, request


@pytest.fixture
def world() -> World:
    world = World()
    world.report(host("a", updated_at=world.clock.time_s()))
    return world


def shown(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.hosts()[0]
    return found


def is_alive(world: World) -> bool:
    try:
        world.place("probe")
    except NoValidHost:
        return False
    world.inventory.release(["probe"])
    return True


@pytest.mark.parametrize(
    "fields",
    [
        {"traits": ["HW_CPU_X86_AVX2"]},
        {"metrics": [{"name": "cpu.percent", "value": 3}], "load": {"cpu": 1.0}},
        {"source": "metrics-agent", "vcpus_used": 1, "updated_at": 1_700_000_000.0},
        {"cpu_allocation_ratio": 2.0},
    ],
    ids=lambda fields: "+".join(fields),
)
def test_other_facts_are_stored_and_revive_no_silent_host(world, fields):
    world.clock.advance(61)
    world.report({"host": "a", **fields})
    assert not is_alive(world)
    facts = {key: value for key, value in fields.items() if key not in {"source", "updated_at"}}
    stored = msgspec.json.encode({name: shown(world)[name] for name in facts})
    assert msgspec.json.decode(stored) == facts
    world.report({"host": "a", "vcpus_used": 0})
    assert is_alive(world)


@pytest.mark.parametrize(
    "fields",
    [
        {"source": "compute", "traits": []},
        {"vcpus_used": 1},
        {"free_disk_gb": 9},
        {"memory_mb": 8192},
        {"service": {"disabled": False}},
        {"updated_at": "now", "traits": []},
        {},
    ],
    ids=lambda fields: "+".join(fields) or "nothing",
)
def test_a_report_of_the_compute_service_revives_its_host(world, fields):
    world.clock.advance(61)
    assert not is_alive(world)
    if "updated_at" in fields:
        fields |= {"updated_at": world.clock.time_s()}
    world.report({"host": "a", **fields})
    assert is_alive(world)


def test_an_old_report_revives_no_host(world, caplog):
    measured_s = world.clock.time_s()
    world.clock.advance(61)
    for name in ("a", "b"):
        known = {} if name == "a" else {"uuid": "b", "vcpus": 1, "memory_mb": 1, "local_gb": 1}
        world.report({"host": name, **known, "vcpus_used": 0, "updated_at": measured_s})
    assert not is_alive(world)
    assert shown(world)["vcpus_used"] == 0
    assert caplog.text.count("was measured 61 s ago") == 1
    world.report({"host": "a", "updated_at": world.clock.time_s() + 30})
    world.clock.advance(59)
    assert is_alive(world), "alive since its report came"
    world.clock.advance(2)
    assert not is_alive(world)


def test_what_a_feed_reads_is_as_new_as_the_reading(world):
    row_changed_s = world.clock.time_s() - 3600
    service = {"watched": True, "up": True}
    world.report({"host": "a", "service": service, "updated_at": world.clock.time_s()})
    world.clock.advance(10)
    world.inventory.remove_hosts([("a", None)])
    world.report({**host("a"), "service": service, "updated_at": row_changed_s})
    assert shown(world)["reported_at_s"] == world.clock.time_s()


def test_a_host_that_only_others_report_is_not_alive(world):
    world.report(host("b", source="cmdb"))
    world.inventory.remove_hosts([("a", None)])
    with pytest.raises(NoValidHost):
        world.place("i1")
    assert shown(world)["compute_reported_at_s"] == 0.0
    world.report({"host": "b", "source": "compute"})
    assert world.place("i1") == ["b"]


def test_other_sources_cannot_date_the_heartbeat(world):
    world.report({"host": "a", "service": {"last_seen_up": world.clock.time_s()}})
    world.clock.advance(61)
    service = {"last_seen_up": world.clock.time_s(), "disabled_reason": "rack 7"}
    world.report({"host": "a", "source": "cmdb", "service": service})
    assert not is_alive(world)
    assert shown(world)["service"]["disabled_reason"] == "rack 7"


def test_reports_are_ordered_within_their_source(world):
    now_s = world.clock.time_s()
    world.report({"host": "a", "source": "metrics", "updated_at": now_s + 30, "stats": {"x": 1}})
    world.report({"host": "a", "updated_at": now_s + 10, "vcpus_used": 2})
    assert shown(world)["vcpus_used"] == 2, "newer than the source's own last, if not than all"
    world.report({"host": "a", "source": "metrics", "updated_at": now_s + 20, "stats": {"x": 2}})
    assert shown(world)["stats"] == {"x": "1"}, "older than its own last"
    world.report({"host": "a", "updated_at": now_s + 5, "vcpus_used": 3})
    assert shown(world)["vcpus_used"] == 2
    world.report({"host": "a", "source": "compute", "updated_at": now_s + 6, "vcpus_used": 3})
    assert shown(world)["vcpus_used"] == 2, "compute is the source of what names none"


def test_the_record_shows_which_source_reported_what_and_when(world):
    began_s = world.clock.time_s()
    assert shown(world)["sources"] == {}, "nothing more is stored for one source"
    world.clock.advance(10)
    world.report({"host": "a", "source": "metrics", "updated_at": began_s, "metrics": []})
    world.clock.advance(10)
    world.report({"host": "a", "vcpus_used": 1}, {"host": "a", "traits": ["X"]})
    sources = shown(world)["sources"]
    assert sources == {
        "compute": {
            "updated_at": began_s,
            "groups": {"allocation": began_s, "capacity": began_s, "use": began_s + 20},
        },
        "metrics": {"updated_at": began_s, "groups": {"metrics": began_s}},
        "unnamed": {"groups": {"traits": began_s + 20}},
    }
    assert shown(world)["compute_reported_at_s"] == shown(world)["reported_at_s"] == began_s + 20


def test_a_varying_source_does_not_make_the_record_grow(world):
    for number in range(20):
        world.clock.advance(1)
        world.report({"host": "a", "source": f"agent-{number}", "traits": []})
    sources = shown(world)["sources"]
    assert len(sources) == 8
    assert {"compute", "agent-19"} <= sources.keys()


def test_explain_names_the_source_that_reports_a_host_with_a_silent_compute_service(world):
    world.clock.advance(70)
    world.report({"host": "a", "source": "metrics", "metrics": [], "stats": {}})
    world.clock.advance(2)
    [verdict] = world.scheduler.explain(request("i1")).clusters["default"].verdicts
    assert verdict.reason == (
        "has not reported for 72 s, 60 s are allowed; "
        "source metrics reported 2 s ago, which is no heartbeat"
    )


def test_a_source_has_a_short_plain_name(world):
    with pytest.raises(RequestError, match=r"hosts\[0\]\.source: expected"):
        decode_host_reports([{"host": "a", "source": "two words"}])
