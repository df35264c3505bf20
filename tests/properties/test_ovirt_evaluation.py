"""The evaluation cache never changes a decision under oVirt's policies."""

from typing import Any

import pytest
from conformance import ovirt

from scheduler_worker.scheduling.compiler import compile_policy
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.ovirt.policies import LOCKED_POLICIES
from scheduler_worker.scheduling.ovirt.resources import CpuFilter, CpuOverloadFilter, MemoryFilter
from scheduler_worker.scheduling.ovirt.weights import (
    EvenCpuWeight,
    EvenGuestsWeight,
)
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.scales import CountedRanks, Rescaling
from tests.properties.test_evaluation import MEMBERS, Run, differs, few
from tests.support.hosts import request_spec

__all__ = ["few"]

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


@pytest.mark.usefixtures("few")
def test_cached_and_fresh_evaluations_decide_alike():
    assert [seed for seed in range(25) if differs(seed, OvirtRun)] == []


def test_the_requests_get_hosts():
    run = OvirtRun(0)
    chosen = [run.decide(each, 1)[0] is not None for each in run.specs]
    assert sum(chosen) > len(chosen) / 2


@pytest.mark.parametrize(
    ("unit", "name", "wrong"),
    [
        (MemoryFilter, "reads_use", False),
        (MemoryFilter, "host_passes", lambda self, host, spec: True),
        (CpuFilter, "host_passes", lambda self, host, spec: True),
        (CpuOverloadFilter, "lasts_until_s", lambda self, hosts, spec: float("inf")),
        (EvenGuestsWeight, "reads_use", False),
        (EvenCpuWeight, "weigh_host", lambda self, host, spec: 30.0),
        (Rescaling, "moved", lambda self: False),
        (CountedRanks, "change", lambda self, at, score: True),
    ],
)
def test_these_tests_notice_a_wrong_unit(monkeypatch, unit, name, wrong):
    monkeypatch.setattr(unit, name, wrong)
    assert any(differs(seed, OvirtRun) for seed in range(100))
