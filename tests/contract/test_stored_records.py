"""Records that earlier releases wrote are read, and the same is decided on them."""

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.errors import NoValidHost
from scheduler_worker.ports import Put, Transaction
from scheduler_worker.scheduling.filters.aggregates import AvailabilityZoneFilter
from scheduler_worker.scheduling.filters.isolated_hosts import IsolatedHostsFilter
from scheduler_worker.scheduling.filters.numa_topology import (
    NUMATopologyFilter,
    PciPassthroughFilter,
)
from scheduler_worker.service.state import records
from scheduler_worker.service.state.records import Verdict
from tests.support.clock import ManualClock
from tests.support.services import FILTERS, World

SAMPLES = sorted((Path(__file__).parents[1] / "samples" / "records").glob("*.json"))
KINDS = {"h:", "i:", "p:", "r:", "a:", "c:", "w:", "y:", "d:", "f:", "m:", "e:", "v:"}
TTL_S = 100.0
"""For records that expire and do not say when."""
EXPIRING = {"r:", "w:", "f:", "e:", "v:"}

Sample = dict[str, Any]


@pytest.fixture(params=SAMPLES, ids=lambda path: path.stem)
def sample(request) -> Sample:
    found: Sample = json.loads(request.param.read_text())
    return found


@pytest.fixture
def world(sample) -> World:
    """A worker of today on the store of the earlier release."""
    clock = ManualClock()
    state = MemoryState(clock, hold_timeout_s=10.0)
    for scope, entries in sample["records"].items():
        puts = [put(key, value, clock.time_s()) for key, value in entries.items()]
        state.write(scope, [Transaction(puts)])
    others = (AvailabilityZoneFilter, NUMATopologyFilter, PciPassthroughFilter, IsolatedHostsFilter)
    world = World(state=state, clock=clock, filters=(*FILTERS, *others))
    world.fleet.load(clock)
    return world


def put(key: str, value: str, now_s: float) -> Put:
    expires_at_s = None
    if key[:2] == records.RESERVATION:
        expires_at_s = json.loads(value)["expires_at_s"]
    elif key[:2] in EXPIRING:
        expires_at_s = now_s + TTL_S
    return Put(key, value.encode(), expires_at_s)


def keys(sample: Sample, scope: str, kind: str) -> set[str]:
    return {key[2:] for key in sample["records"].get(scope, {}) if key[:2] == kind}


def test_the_samples_have_all_kinds_of_records():
    found = {
        key[:2]
        for path in SAMPLES
        for entries in json.loads(path.read_text())["records"].values()
        for key in entries
    }
    assert found == KINDS


def test_every_record_is_read(sample, world):
    fleet = world.fleet
    assert set(fleet.globals.names) == keys(sample, "@global", records.CLUSTER)
    assert set(fleet.globals.aggregates) == keys(sample, "@global", "a:")
    for replica in fleet.clusters():
        scope = replica.scope
        assert {each.uuid for each in replica.table.records} == keys(sample, scope, records.HOST)
        assert set(replica.reservations) == keys(sample, scope, records.RESERVATION)
        assert set(replica.answers) == keys(sample, scope, records.ANSWER)
        assert set(replica.released) == keys(sample, scope, records.RELEASED)
        assert set(replica.departures) == keys(sample, scope, records.DEPARTURE)
        assert set(replica.finished) == keys(sample, scope, records.FINISHED)
        assert (replica.policy is not None) == bool(keys(sample, scope, records.POLICY))
        for host in keys(sample, scope, records.INSTANCES):
            stored = json.loads(sample["records"][scope][records.INSTANCES + host])
            assert replica.table.reported_instances(host) == stored


def test_what_is_written_again_has_all_that_was_read(sample):
    """During an upgrade, workers of the earlier release read it too."""
    readers: dict[str, Any] = {
        records.HOST: (records.read_host, records.put_host),
        records.AGGREGATE: (records.read_aggregate, records.put_aggregate),
        records.POLICY: (records.read_policy, records.put_policy),
        records.DEPARTURE: (records.read_departure, records.put_departure),
        records.RESERVATION: (records.read_reservation, records.put_reservation),
    }
    for entries in sample["records"].values():
        for key, value in entries.items():
            if key[:2] in readers:
                read, write = readers[key[:2]]
                assert without_new(json.loads(write(read(value)).value), json.loads(value)) == (
                    json.loads(value)
                )


def without_new(written: Any, stored: Any) -> Any:
    """What is written now, less the fields that were added since."""
    if isinstance(written, dict) and isinstance(stored, dict):
        return {
            key: without_new(each, stored[key]) for key, each in written.items() if key in stored
        }
    if isinstance(written, list) and isinstance(stored, list) and len(written) == len(stored):
        return [without_new(*each) for each in zip(written, stored, strict=True)]
    return written


def test_the_same_is_decided(sample, world):
    for step in sample["decisions"]:
        if "request" in step:
            asked = dict(step["request"])
            try:
                found = world.place(*asked.pop("uuids"), **asked)
            except NoValidHost:
                found = None
            assert found == step["hosts"], asked["request_id"]
        elif "release" in step:
            assert world.inventory.release([step["release"]]) == step["released"]
        else:
            verdict = world.scheduler._verdicts.record(step["verdict"], Verdict("another"))
            assert verdict.refusal == step["refusal"]
    reserved = {host: sorted(uuids) for host, uuids in world.reserved().items()}
    assert reserved == sample["reserved"]
