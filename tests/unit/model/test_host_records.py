"""Host reports, the records they are merged into, and the figures of virtualisation hosts."""

import msgspec
import pytest

from scheduler_worker.model.host_records import (
    MAX_FORMER_NAMES,
    RIVALS_S,
    HostRecord,
    contest_of,
    free_disk_mb,
    free_ram_mb,
    heartbeat_s,
    is_contested,
    seconds,
    stat,
    state_of,
)
from scheduler_worker.model.host_reports import GROUP_OF, HostReport, fields_of, merged
from scheduler_worker.model.virt import RunningVm, VirtHost, over_commit_since_s
from tests.support.hosts import NOW_S, host_record, host_table

FIRST = {"uuid": "u", "host": "h", "vcpus": 8, "memory_mb": 1000, "local_gb": 10}
IDENTITY = {"uuid", "host", "nodename", "cluster", "cell_uuid", "updated_at"}
ADDED = {"reported_at_s", "compute_reported_at_s", "sources", "over_commit_since_s", "schema"} | {
    *("former_names", "contested_at_s"),
}
"""What the worker adds to a record."""
STAMP = {"nodename": "h", "cluster": "c", "reported_at_s": 100.0}


@pytest.mark.parametrize("name", HostRecord.__struct_fields__)
def test_what_is_reported_has_a_group(name):
    # Without one, a report of it alone would count as the compute service's heartbeat.
    assert (name in GROUP_OF) != (name in IDENTITY | ADDED)


def test_fields_of_a_report_are_those_it_carries():
    report = msgspec.convert({"host": "h", "vcpus": None, "traits": ["A"]}, HostReport)
    assert fields_of(report) == {"host": "h", "vcpus": None, "traits": ("A",)}


def test_use_without_a_free_amount_makes_the_old_free_amount_obsolete():
    first = merged(None, {**FIRST, "free_ram_mb": 900, "free_disk_gb": 9}, **STAMP)
    second = merged(first, {"memory_mb_used": 700, "local_gb_used": 4}, **STAMP)
    assert free_ram_mb(second) == 300
    assert free_disk_mb(second) == 6 * 1024


def test_free_disk_is_the_smaller_of_the_two():
    assert free_disk_mb(merged(None, {**FIRST, "disk_available_least": 3}, **STAMP)) == 3 * 1024
    assert free_disk_mb(merged(None, {**FIRST, "disk_available_least": -2}, **STAMP)) == -2 * 1024
    assert free_disk_mb(merged(None, {**FIRST, "free_disk_gb": 1}, **STAMP)) == 1024


def test_a_first_report_needs_its_capacity():
    with pytest.raises(msgspec.ValidationError, match="vcpus"):
        merged(None, {"uuid": "u", "host": "h", "memory_mb": 1, "local_gb": 1}, **STAMP)


def test_the_heartbeat_is_the_one_of_the_service_else_the_report():
    silent = merged(None, FIRST, **STAMP)
    service = {"last_seen_up": "1970-01-01T00:00:07Z", "created_at": "1970-01-01T00:00:01Z"}
    assert heartbeat_s(silent) == 100.0
    assert heartbeat_s(merged(None, {**FIRST, "service": service}, **STAMP)) == 7.0
    assert heartbeat_s(merged(None, {**FIRST, "service": {**service, "last_seen_up": None}},
                              **STAMP)) == 1.0  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({}, "up"),
        ({"service": {"up": True, "disabled": False, "forced_down": False}}, "up"),
        ({"reported_at_s": NOW_S - 60}, "up"),
        ({"reported_at_s": NOW_S - 61}, "down"),
        ({"reported_at_s": NOW_S + 60}, "up"),
        ({"reported_at_s": NOW_S + 61}, "down"),
        ({"service": {"last_seen_up": NOW_S - 61}}, "down"),
        ({"service": {"up": False}}, "down"),
        ({"service": {"forced_down": True}}, "down"),
        ({"service": {"disabled": True}}, "disabled"),
        ({"service": {"disabled": True, "forced_down": True}}, "disabled"),
        ({"service": {"watched": True, "up": True}, "reported_at_s": 0.0}, "up"),
        ({"service": {"watched": True, "up": False}}, "down"),
        ({"service": {"watched": True, "up": True, "disabled": True}}, "disabled"),
        ({"power": {"state": "maintenance"}}, "down"),
        ({"power": {"state": "down", "by_policy": True}}, "down"),
    ],
    ids=str,
)
def test_a_host_takes_vms_if_it_is_up_enabled_awake_and_not_silent(facts, state):
    record = host_record(**facts)
    assert state_of(record, NOW_S, 60.0) == state
    assert host_table([record]).taking_vms(60.0).tolist() == [state == "up"]


def test_stats_are_texts_and_counters_are_tolerant():
    record = merged(None, {**FIRST, "stats": {"num_instances": 3, "x": None, "y": "much"}}, **STAMP)
    assert record.stats == {"num_instances": "3", "x": "", "y": "much"}
    assert [stat(record, name) for name in ("num_instances", "x", "y", "z")] == [3, 0, 0, 0]


def test_times():
    assert seconds("1970-01-01T00:01:00") == seconds("1970-01-01T01:01:00+01:00") == seconds(60)


@pytest.mark.parametrize(
    ("load", "since_s", "expected_s"),
    [(90, None, 7.0), (90, 3.0, 3.0), (75, None, 7.0), (74, 3.0, None), (0, None, 7.0)],
)
def test_one_clock_measures_over_and_under_use(load, since_s, expected_s):
    assert over_commit_since_s(load, since_s, 7.0, high=75, low=0) == expected_s


def test_exclusive_cpus_take_no_part_in_the_shared_load():
    pinned = RunningVm(id="vm", exclusive_cpus=(1,))
    host = VirtHost(cores=3, cpu_usage=((0, 50.0), (1, 100.0), (2, 10.0)), vms=(pinned,))
    assert (host.shared_cpus, host.shared_load_percent, host.load_percent) == (2, 60.0, 30)


def known_as(*names: dict[str, str], every_s: float = 30.0) -> HostRecord:
    """A record after reports under these names, one after the other."""
    record, now_s = merged(None, FIRST, **STAMP), 100.0
    for each in names:
        now_s += every_s
        stamp = {"nodename": "h", "cluster": "c", "reported_at_s": now_s} | each
        record = merged(record, {}, **stamp)
    return record


A: dict[str, str] = {"uuid": "u"}
B, C = {"uuid": "v"}, {"uuid": "w"}


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((A, B, A, B), "uuid u, v"),
        ((A, B, C, A, B), "uuid u, v, w"),
        (({"host": "i"}, {"host": "h"}) * 2, "host h, i"),
        (({"cluster": "d"}, A) * 2, "cluster c, d"),
        (({"uuid": "v", "cluster": "d"}, A) * 2, "uuid u, v and cluster c, d"),
    ],
)
def test_names_that_replace_each_other_are_of_two_machines(names, text):
    record = known_as(*names)
    assert is_contested(record, record.reported_at_s + RIVALS_S)
    assert not is_contested(record, record.reported_at_s + RIVALS_S + 1)
    assert f" is reported with {text} by turns" in contest_of(record)


@pytest.mark.parametrize("names", [(A, B, B), (A, B, A), (A, B, C)])
def test_a_node_may_be_created_again_and_the_change_undone(names):
    record = known_as(*names)
    assert not is_contested(record, record.reported_at_s)


def test_names_are_remembered_for_a_while_and_only_so_many():
    rare = known_as(*(A, B) * 3, every_s=RIVALS_S + 1)
    assert not is_contested(rare, rare.reported_at_s)
    assert len(rare.former_names) == 1
    many = known_as(*({"uuid": str(number)} for number in range(20)))
    assert len(many.former_names) == MAX_FORMER_NAMES


def test_what_a_record_has_is_stored_and_read_and_what_it_lacks_is_left_out():
    plain = msgspec.json.decode(msgspec.json.encode(host_record()))
    assert not {"virt", "over_commit_since_s", "power"} & plain.keys()
    vms = [{"id": "a", "vcpus": 2}]
    record = host_record(virt={"cores": 4, "vms": vms}, power={"state": "down"})
    assert msgspec.json.decode(msgspec.json.encode(record), type=HostRecord) == record
    assert record.virt == VirtHost(cores=4, vms=(RunningVm(id="a", vcpus=2),))
