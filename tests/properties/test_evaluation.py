"""The evaluation cache never changes a decision, under Nova's units and under oVirt's policies."""

import itertools
import random
from typing import Any

import pytest
from conformance import ovirt
from msgspec import structs

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.aggregates import by_host
from scheduler_worker.model.claims import Claim, Resources
from scheduler_worker.model.decisions import Diagnosis
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling import evaluation, scales
from scheduler_worker.scheduling.compiler import compile_policy
from scheduler_worker.scheduling.evaluation import Evaluation
from scheduler_worker.scheduling.filter_results import FilterResults
from scheduler_worker.scheduling.filters.affinity import (
    DifferentHostFilter,
    SameHostFilter,
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from scheduler_worker.scheduling.filters.aggregates import (
    AggregateMultiTenancyIsolation,
    AvailabilityZoneFilter,
)
from scheduler_worker.scheduling.filters.capacity import (
    AggregateNumInstancesFilter,
    CoreFilter,
    DiskFilter,
    RamFilter,
)
from scheduler_worker.scheduling.filters.compute import ComputeFilter
from scheduler_worker.scheduling.filters.compute_capabilities import ComputeCapabilitiesFilter
from scheduler_worker.scheduling.filters.json_filter import JsonFilter
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.ovirt.policies import LOCKED_POLICIES
from scheduler_worker.scheduling.ovirt.resources import CpuFilter, CpuOverloadFilter, MemoryFilter
from scheduler_worker.scheduling.ovirt.weights import EvenCpuWeight, EvenGuestsWeight
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.scheduling.plugin import Filter, Weigher
from scheduler_worker.scheduling.scales import CountedRanks, Ends, NormalizedScale, RankScale
from scheduler_worker.scheduling.selectors import NormalizedSum, RankSum, Selector, WeightedSum
from scheduler_worker.scheduling.weighers import resources
from tests.support.hosts import aggregate, host_record, request_spec
from tests.support.trials import times
from tests.support.units import made, pipeline_of

OPTIONS = Options.of(service_down_time_s=60, ranked_hosts=3)
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
    resources.RAMWeigher,
    resources.CPUWeigher,
    resources.DiskWeigher,
    resources.IoOpsWeigher,
    resources.NumInstancesWeigher,
    resources.HypervisorVersionWeigher,
    resources.BuildFailureWeigher,
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


SELECTORS = (NormalizedSum, RankSum, WeightedSum)


class UndeclaredRows(Filter):
    """Reads what changes with every reservation, and does not declare it."""

    def host_passes(self, host_state, spec_obj):
        return host_state.num_instances < 4


class UndeclaredColumns(Filter):
    def passes(self, hosts, spec):
        return hosts.free_disk_mb > spec.flavor.vcpus * 9000


class UndeclaredWeigher(Weigher):
    def weigh(self, hosts, spec):
        return (hosts.vcpus_used % 3) * float(spec.flavor.vcpus)


class Run:
    """Random changes of a table, with decisions in between."""

    specs: tuple[RequestSpec, ...] = SPECS

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = itertools.count()
        filters, weighers = list(FILTERS), list(WEIGHERS)
        if seed % 2:
            filters += [UndeclaredRows, UndeclaredColumns]
            weighers += [UndeclaredWeigher]  # type: ignore[list-item]
        units = (
            [made(each, OPTIONS) for each in filters],
            [made(each, OPTIONS) for each in weighers],
            OPTIONS,
        )
        selector = SELECTORS[seed % 3]
        self.pipeline = self.compiled(units, selector)
        self.uncached = self.compiled(units, selector)
        vars(self.uncached.evaluator)["_cached"] = lambda *_, **__: None
        self.table = HostTable()
        self.table.now_s = 1000.0
        self.hosts = self.rng.choice([2, 20, 60])
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

    def compiled(self, units: Any, selector: type[Selector]) -> Pipeline:
        return pipeline_of(*units, selector=selector)

    def more_facts(self) -> dict[str, Any]:
        """What hosts report further."""
        return {}

    def report(self, number: int | None = None) -> None:
        number = self.rng.randrange(self.hosts) if number is None else number
        pick = self.rng.choice
        reported: dict[str, Any] = {
            "uuid": f"u{number}",
            "host": pick([f"h{number}"] * 9 + [f"h{(number + 2) % 8}"]),  # some are renamed
            "vcpus": pick([8, 8, 16]),
            "memory_mb": pick([8192, 8192, 16384]),
            "local_gb": 40,
            "vcpus_used": pick([0, 0, 0, 2]),
            "hypervisor_type": pick(["QEMU", "QEMU", "xen"]),
            "hypervisor_version": pick([6000, 7000]),
            "stats": {"failed_builds": pick(["0", "1"])},
            "service": {"disabled": self.rng.random() < 0.1},
            "reported_at_s": self.table.now_s - pick([0, 5, 50]),
        }
        self.table.put(host_record(**reported | self.more_facts()), 1)

    def consume(self) -> None:
        record = self.table.records[self.rng.randrange(len(self.table))]
        size = self.rng.randrange(3)
        self.table.consume(
            Claim(
                instance_uuid=f"i{self.rng.randrange(30)}",
                host_uuid=record.uuid,
                host=record.host,
                nodename=record.nodename,
                resources=Resources(vcpus=size, memory_mb=size * 512, disk_mb=size * 700),
                host_version=1,
            )
        )

    def end(self) -> None:
        ids = sorted(
            each.id
            for record in self.table.records
            for each in self.table.reservations_of_host(record.uuid)
        )
        if ids:
            self.table.give_back(self.rng.choice(ids))

    def wait(self) -> None:
        self.table.now_s += self.rng.choice([0.5, 3.0])

    def forget(self) -> None:
        if len(self.table) > 2:
            self.table.remove(self.rng.choice(self.table.records).uuid)

    def change(self) -> None:
        often = [self.consume] * 6 + [self.end] * 4 + [self.wait, self.report]
        change = self.forget if self.rng.random() < 0.01 else self.rng.choice(often)
        change()

    def decide(
        self, spec: RequestSpec, count: int, *, stays: bool = False, by: Pipeline | None = None
    ) -> tuple[object, Diagnosis, object]:
        """The outcome of a decision; its claims are given back unless it ``stays``."""
        uuids = tuple(f"n{next(self.numbers)}" for _ in range(count))
        request = Request(spec=spec, instance_uuids=uuids, num_alternates=2)
        try:
            decision = (by or self.pipeline).decide(self.table, request, random.Random(1))
        except NoValidHost as error:
            return None, error.diagnosis, None  # type: ignore[return-value]
        for claim in () if stays else decision.claims:
            self.table.give_back(claim.id)
        ranked = decision.ranked.hosts
        for each in ranked:
            assert each.total == pytest.approx(sum(each.shares.values()))  # type: ignore[arg-type]
        shares = [each.shares for each in ranked]
        named = [(each.host, each.total) for each in ranked]
        return decision.selections, decision.diagnosis, (named, shares)

    def step(self) -> None:
        self.change()
        spec, count = self.rng.choice(self.specs), self.rng.choice([1, 1, 1, 3])
        kept = self.decide(spec, count)
        saved = dict(self.table.evaluation_cache)
        self.table.evaluation_cache.clear()
        assert self.decide(spec, count) == kept
        self.table.evaluation_cache.clear()
        self.table.evaluation_cache.update(saved)
        compared = slice(
            None if count == 1 else 1
        )  # later instances begin with the hosts that are left
        assert self.decide(spec, count, by=self.uncached)[compared] == kept[compared]
        if self.rng.random() < 0.3:
            self.decide(spec, count, stays=True)


GROUPS = [
    {"vms_rule": "negative", "vms_enforcing": True, "vms": MEMBERS[:3]},
    {"vms_rule": "positive", "vms": MEMBERS[3:6], "priority": 2.0},
    {"hosts_rule": "positive", "hosts": ["h1", "h2"], "hosts_enforcing": True},
]
VMS: tuple[dict[str, Any], ...] = (
    {},
    {"run_on": "h1", "cpu_percent": 30},
    {"run_on": "h3", "use_tsc": True, "highly_available": True},
    {"highly_available": True, "ha_reservation": True},
    {"hugepage_kb": 2048},
    {"pinning": "dedicated"},
    {"high_performance": True, "sockets": 2},
    {"dedicated_hosts": ["h2", "h5"]},
    {"hosted_engine": True},
    *({"affinity_groups": [each]} for each in GROUPS),
    {"affinity_groups": GROUPS},
)


class OvirtRun(Run):
    """The same changes, of hosts and requests that say what oVirt's units read."""

    specs = tuple(
        request_spec(vcpus=size, memory_mb=size * 900, vm=vm) for vm in VMS for size in (1, 3)
    )

    def __init__(self, seed: int) -> None:
        self._seed = seed
        super().__init__(2 * seed)

    def compiled(self, units: Any, selector: Any) -> Pipeline:
        policy = LOCKED_POLICIES[self._seed % len(LOCKED_POLICIES)]
        options = Options.of(service_down_time_s=60)
        return compile_policy(policy, ovirt.catalogue(), options)

    def more_facts(self) -> dict[str, Any]:
        pick = self.rng.choice
        vms = [{"id": f"r{n}", "vcpus": n, "highly_available": n > 1} for n in range(pick([1, 3]))]
        engine = {"id": "engine", "memory_mb": 2048, "hosted_engine": True}
        return {
            "over_commit_since_s": pick([None, self.table.now_s - 119]),
            "virt": {
                "sockets": pick([1, 2]),
                "cores": pick([4, 8]),
                "threads": 8,
                "cpu_percent": pick([None, 5, 40, 95]),
                "overcommit_percent": pick([100, 200]),
                "free_mb": pick([None, 4096, 8192, 8192]),
                "swap_free_mb": pick([0, 1024]),
                "free_hugepages": pick([[], [[2048, 1000]]]),
                "hosted_engine": {"configured": True, "active": True, "score": pick([0, 3000])},
                "vms": [*vms, engine] if pick([False] * 9 + [True]) else vms,
                "spm": pick([False, True]),
            },
        }


def differs(seed: int, kind: type[Run] = Run) -> bool:
    run = kind(seed)
    try:
        for _ in range(60):
            run.step()
    except AssertionError:
        return True
    return False


@pytest.fixture(params=[8, 0], ids=["one by one", "at once"])
def few(monkeypatch, request) -> None:
    """Up to how many hosts are updated one by one; others are updated at once."""
    monkeypatch.setattr(evaluation, "FEW", request.param)
    monkeypatch.setattr(scales, "FEW", request.param)
    monkeypatch.setattr(evaluation, "_ONE_IN", 1)
    monkeypatch.setattr(evaluation, "_BLOCK", 3)


@pytest.mark.parametrize("kind", [Run, OvirtRun])
@pytest.mark.usefixtures("few")
def test_cached_and_fresh_evaluations_decide_alike(kind):
    assert [seed for seed in range(times(12)) if differs(seed, kind)] == []


def test_the_requests_get_hosts():
    run = OvirtRun(0)
    chosen = [run.decide(each, 1)[0] is not None for each in run.specs]
    assert sum(chosen) > len(chosen) / 2


def test_an_old_heartbeat_shortens_the_validity():
    run = Run(0)
    run.decide(SPECS[0], 1)
    reported = {"uuid": "u1", "host": "h1", "vcpus": 8, "memory_mb": 8192, "local_gb": 40}
    run.table.put(host_record(**reported, reported_at_s=run.table.now_s - 59), 1)
    run.decide(SPECS[0], 1)
    run.table.now_s += 2
    kept = run.decide(SPECS[0], 1)
    run.table.evaluation_cache.clear()
    assert run.decide(SPECS[0], 1) == kept


@pytest.mark.parametrize("seed", range(30))
def test_a_host_with_another_name_has_the_multipliers_of_that_name(seed):
    """Its scores are as before, and what they count for is not."""
    run = Run(seed)
    for name in ("h9", "h1", "h9"):
        run.decide(SPECS[0], 1)
        [record] = (each for each in run.table.records if each.uuid == "u1")
        run.table.put(structs.replace(record, host=name), 1)
        kept = run.decide(SPECS[0], 1)
        run.table.evaluation_cache.clear()
        assert run.decide(SPECS[0], 1) == kept


def test_most_decisions_use_the_cache(monkeypatch):
    rests = []
    catch_up = Evaluation.catch_up

    def spy(self, hosts, spec):
        rests.append(catch_up(self, hosts, spec))
        return rests[-1]

    monkeypatch.setattr(Evaluation, "catch_up", spy)
    assert not any(differs(seed) for seed in range(5))
    assert rests.count(True) > 100


def test_requests_of_different_server_groups_share_an_evaluation():
    run = Run(1)
    group = {"policy": "anti-affinity"}
    for members in ((), ("i1",), ("i1", "i2")):
        run.decide(request_spec(instance_group=group | {"members": members}), 1)
    assert len(run.table.evaluation_cache) == 1


@pytest.mark.parametrize(
    ("unit", "name", "wrong"),
    [
        (resources.RAMWeigher, "reads_use", False),
        (RamFilter, "reads_use", False),
        (ComputeCapabilitiesFilter, "reads", lambda self, spec: ()),
        (ComputeFilter, "lasts_until_s", lambda self, hosts, spec: float("inf")),
        (HostTable, "touched_since", lambda self, marks: (set(), set())),
        (FilterResults, "narrowed", lambda self, hosts, spec, quick, undeclared: self),
        (Evaluation, "narrowed", lambda self, hosts, spec, results, weights: self),
        (Evaluation, "_scales_by_rows", lambda self: [(self, self._scales or [])]),
        (NormalizedScale, "unchanged_without", lambda self, some: True),
        (RankScale, "unchanged_without", lambda self, some: True),
        (NormalizedScale, "update_products", lambda self, touched: False),
        (RankScale, "update_products", lambda self, touched: False),
    ],
)
@pytest.mark.usefixtures("few")
def test_these_tests_notice_a_wrong_unit(monkeypatch, unit, name, wrong):
    monkeypatch.setattr(unit, name, wrong)
    assert any(differs(seed) for seed in range(25))


@pytest.mark.parametrize(
    ("unit", "name", "wrong"),
    [
        (MemoryFilter, "reads_use", False),
        (MemoryFilter, "host_passes", lambda self, host, spec: True),
        (CpuFilter, "host_passes", lambda self, host, spec: True),
        (CpuOverloadFilter, "lasts_until_s", lambda self, hosts, spec: float("inf")),
        (EvenGuestsWeight, "reads_use", False),
        (EvenCpuWeight, "weigh_host", lambda self, host, spec: 30.0),
        (Ends, "note", lambda self, *some: None),
        (CountedRanks, "change", lambda self, at, score: True),
    ],
)
def test_they_notice_a_wrong_unit_of_ovirt(monkeypatch, unit, name, wrong):
    monkeypatch.setattr(unit, name, wrong)
    assert any(differs(seed, OvirtRun) for seed in range(100))
