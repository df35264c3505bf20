"""What is kept of hosts between requests never changes a decision."""

import random
from typing import Any

import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.aggregates import by_host
from scheduler_worker.model.claims import Claim, PendingResource
from scheduler_worker.model.decisions import Diagnosis
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.filters.affinity import DifferentHostFilter, SameHostFilter
from scheduler_worker.scheduling.filters.aggregates import AggregateMultiTenancyIsolation
from scheduler_worker.scheduling.filters.availability_zone import AvailabilityZoneFilter
from scheduler_worker.scheduling.filters.capacity import CoreFilter, DiskFilter, RamFilter
from scheduler_worker.scheduling.filters.compute import ComputeFilter
from scheduler_worker.scheduling.filters.compute_capabilities import ComputeCapabilitiesFilter
from scheduler_worker.scheduling.filters.counts import AggregateNumInstancesFilter
from scheduler_worker.scheduling.filters.json_filter import JsonFilter
from scheduler_worker.scheduling.filters.server_groups import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.scheduling.standing import Standing, Survey, _Scale
from scheduler_worker.scheduling.weighers import figures
from tests.support.hosts import aggregate, host_record, request_spec

OPTIONS = Options(service_down_time_s=60)
FILTERS = (
    AvailabilityZoneFilter,
    ComputeFilter,
    CoreFilter,
    RamFilter,
    DiskFilter,
    ServerGroupAntiAffinityFilter,
    ServerGroupAffinityFilter,
    DifferentHostFilter,
    SameHostFilter,
    ComputeCapabilitiesFilter,
    AggregateMultiTenancyIsolation,
    AggregateNumInstancesFilter,
    JsonFilter,
)
WEIGHERS = (
    figures.RAMWeigher,
    figures.CPUWeigher,
    figures.DiskWeigher,
    figures.IoOpsWeigher,
    figures.NumInstancesWeigher,
    figures.HypervisorVersionWeigher,
    figures.BuildFailureWeigher,
)
MEMBERS = tuple(f"i{number}" for number in range(12))
SPECS = tuple(
    request_spec(
        flavor={"vcpus": size, "memory_mb": size * 900, "root_gb": size, "extra_specs": extra},
        availability_zone=zone,
        **more,
    )
    for size, zone, extra, more in (
        (1, None, {}, {}),
        (1, "az1", {}, {"project_id": "p"}),
        (3, None, {}, {}),
        (1, None, {"capabilities:hypervisor_type": "QEMU"}, {}),
        (1, None, {"capabilities:free_ram_mb": ">= 3000"}, {}),
        (1, None, {}, {"scheduler_hints": {"query": ['["<", "$num_instances", 2]']}}),
        (1, None, {}, {"scheduler_hints": {"different_host": list(MEMBERS)}}),
        (1, None, {}, {"scheduler_hints": {"same_host": list(MEMBERS)}}),
        (1, None, {}, {"instance_group": {"policy": "affinity", "hosts": ["h1", "h4"]}}),
        (1, None, {}, {"instance_group": {"policy": "anti-affinity", "members": MEMBERS}}),
        (3, "az1", {}, {"instance_group": {"policy": "anti-affinity", "members": MEMBERS}}),
    )
)


class Forgetful(Pipeline):
    """Which keeps nothing."""

    def _kept(self, hosts, spec):
        return None


class Run:
    """Random changes of a table, with decisions in between."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        units = [each(OPTIONS) for each in FILTERS], [each(OPTIONS) for each in WEIGHERS]
        self.pipeline, self.forgetful = Pipeline(*units, OPTIONS), Forgetful(*units, OPTIONS)
        self.table = HostTable()
        self.table.now_s = 1000.0
        self.hosts = self.dice.choice([2, 20, 60])
        for number in range(self.hosts):
            self.report(number)
        self.table.set_aggregates(
            by_host(
                [
                    aggregate("h1", "h2", "h3", availability_zone="az1", ram_weight_multiplier="3"),
                    aggregate("h2", "h5", id=2, cpu_weight_multiplier="0.5", filter_tenant_id="p"),
                    aggregate("h3", "h7", id=3, max_instances_per_host="1"),
                ]
            )
        )

    def report(self, number: int | None = None) -> None:
        number = self.dice.randrange(self.hosts) if number is None else number
        pick = self.dice.choice
        said: dict[str, Any] = {
            "uuid": f"u{number}",
            "host": f"h{number}",
            "vcpus": pick([8, 8, 16]),
            "memory_mb": pick([8192, 8192, 16384]),
            "local_gb": 40,
            "vcpus_used": pick([0, 0, 0, 2]),
            "hypervisor_type": pick(["QEMU", "QEMU", "xen"]),
            "hypervisor_version": pick([6000, 7000]),
            "stats": {"failed_builds": pick(["0", "1"])},
            "service": {"disabled": self.dice.random() < 0.1},
            "reported_at_s": self.table.now_s - pick([0, 5, 50]),
        }
        self.table.put(host_record(**said), 1)

    def promise(self) -> None:
        record = self.table.records[self.dice.randrange(len(self.table))]
        size = self.dice.randrange(3)
        self.table.promise(
            Claim(
                instance_uuid=f"i{self.dice.randrange(30)}",
                host_uuid=record.uuid,
                host=record.host,
                nodename=record.nodename,
                resources=PendingResource(vcpus=size, memory_mb=size * 512, disk_mb=size * 700),
                host_version=1,
            )
        )

    def end(self) -> None:
        promises = list(self.table.promises())
        if promises:
            self.table.end_promise(self.dice.choice(promises).id)

    def wait(self) -> None:
        self.table.now_s += self.dice.choice([0.5, 3.0])

    def forget(self) -> None:
        if len(self.table) > 2:
            self.table.remove(self.dice.choice(self.table.records).uuid)

    def change(self) -> None:
        often = [self.promise] * 6 + [self.end] * 4 + [self.wait, self.report]
        change = self.forget if self.dice.random() < 0.01 else self.dice.choice(often)
        change()

    def decide(
        self, spec: RequestSpec, count: int, *, stays: bool = False, by: Pipeline | None = None
    ) -> tuple[object, Diagnosis]:
        """Everything a decision says; nothing of it stays consumed unless it shall."""
        uuids = tuple(f"n{self.dice.randrange(10_000)}" for _ in range(count))
        request = Request(spec=spec, instance_uuids=uuids, num_alternates=2)
        try:
            decision = (by or self.pipeline).decide(self.table, request, random.Random(1))
        except NoValidHost as error:
            return None, error.diagnosis
        for claim in () if stays else decision.claims:
            self.table.end_promise(claim.id)
        return decision.selections, decision.diagnosis

    def step(self) -> None:
        self.change()
        spec, count = self.dice.choice(SPECS), self.dice.choice([1, 1, 1, 3])
        kept = self.decide(spec, count)
        saved = dict(self.table.kept)
        self.table.kept.clear()
        assert self.decide(spec, count) == kept
        self.table.kept.clear()
        self.table.kept.update(saved)
        told = slice(
            None if count == 1 else 1
        )  # later instances begin with the hosts that are left
        assert self.decide(spec, count, by=self.forgetful)[told] == kept[told]
        if self.dice.random() < 0.3:
            self.decide(spec, count, stays=True)


def differs(seed: int) -> bool:
    run = Run(seed)
    try:
        for _ in range(60):
            run.step()
    except AssertionError:
        return True
    return False


def test_kept_or_anew_the_decision_is_the_same():
    assert [seed for seed in range(25) if differs(seed)] == []


def test_a_host_that_was_heard_of_long_ago_is_not_kept_as_long_as_the_others():
    run = Run(0)
    run.decide(SPECS[0], 1)
    said = {"uuid": "u1", "host": "h1", "vcpus": 8, "memory_mb": 8192, "local_gb": 40}
    run.table.put(host_record(**said, reported_at_s=run.table.now_s - 59), 1)
    run.decide(SPECS[0], 1)
    run.table.now_s += 2
    kept = run.decide(SPECS[0], 1)
    run.table.kept.clear()
    assert run.decide(SPECS[0], 1) == kept


def test_most_decisions_rest_on_what_was_kept(monkeypatch):
    rests = []
    catch_up = Standing.catch_up

    def spy(self, hosts, spec):
        rests.append(catch_up(self, hosts, spec))
        return rests[-1]

    monkeypatch.setattr(Standing, "catch_up", spy)
    assert not any(differs(seed) for seed in range(5))
    assert rests.count(True) > 100


def test_requests_of_different_server_groups_share_what_is_kept():
    run = Run(1)
    group = {"policy": "anti-affinity"}
    for members in ((), ("i1",), ("i1", "i2")):
        run.decide(request_spec(instance_group=group | {"members": members}), 1)
    assert len(run.table.kept) == 1


@pytest.mark.parametrize(
    ("unit", "name", "wrong"),
    [
        (figures.RAMWeigher, "reads_use", False),
        (RamFilter, "reads_use", False),
        (ComputeCapabilitiesFilter, "reads", lambda self, spec: ()),
        (ComputeFilter, "lasts_until_s", lambda self, hosts, spec: float("inf")),
        (HostTable, "touched_since", lambda self, marks: (set(), set())),
        (Survey, "narrowed", lambda self, hosts, spec, filters: self),
        (_Scale, "stands_without", lambda self, some: True),
        (_Scale, "settle", lambda self, touched: False),
    ],
)
def test_a_unit_that_tells_wrong_things_is_noticed_here(monkeypatch, unit, name, wrong):
    monkeypatch.setattr(unit, name, wrong)
    assert any(differs(seed) for seed in range(25))
