"""VMs that would have no other host are found as if each were asked about by itself."""

import pytest
from conformance import ovirt
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec import structs

from scheduler_worker.model.host_table import HostTable
from scheduler_worker.scheduling.compiler import compile_policy
from scheduler_worker.scheduling.drain_safety import DrainSafety, RunningVms
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.ovirt.policies import POWER_SAVING
from tests.support.hosts import host_record, host_table

PARAMETERS = {**POWER_SAVING.parameters, "HeSparesCount": "1"}
PIPELINE = compile_policy(
    structs.replace(POWER_SAVING, parameters=PARAMETERS),
    ovirt.catalogue(),
    Options.of(service_down_time_s=60),
)
GROUPS = [
    {"vms_rule": "negative", "vms_enforcing": True, "vms": ["a0", "b0", "c0"]},
    {"vms_rule": "positive", "vms_enforcing": True, "vms": ["a0", "b0"]},
    {"hosts_rule": "positive", "hosts": ["b", "c"], "hosts_enforcing": True},
]
NEEDS = st.sampled_from(
    [
        None,
        None,
        {"affinity_groups": [GROUPS[0]]},
        {"affinity_groups": [GROUPS[1]]},
        {"affinity_groups": [GROUPS[2]]},
        {"use_tsc": True},
        {"pinned_to_host": True, "dedicated_hosts": ["b"]},
    ]
)
VM = st.fixed_dictionaries(
    {
        "vcpus": st.integers(1, 4),
        "memory_mb": st.sampled_from([512, 2048, 6000]),
        "highly_available": st.booleans(),
        "migratable": st.sampled_from([True, True, False]),
        "needs": NEEDS,
    }
)
HOST = st.fixed_dictionaries(
    {
        "host_ip": st.sampled_from(["192.0.2.1", "192.0.2.2", "192.0.2.3", None]),
        "power": st.sampled_from([{}, {}, {"state": "maintenance"}]),
        "service": st.sampled_from([{}, {}, {}, {"disabled": True}]),
        "memory_mb": st.sampled_from([4096, 8192]),
        "vms": st.lists(VM, max_size=3),
        "engine": st.sampled_from([False, False, True]),
        "tsc": st.sampled_from([1, 1, 2]),
    }
)


def table(hosts) -> HostTable:
    return host_table([_record(name, **facts) for name, facts in zip("abcd", hosts, strict=False)])


def _record(name, *, vms, engine, tsc, **facts):
    running = [{"id": f"{name}{number}", **vm} for number, vm in enumerate(vms)]
    if engine:
        running.append({"id": "engine", "memory_mb": 1024, "hosted_engine": True})
    virt = {
        "sockets": 1,
        "cores": 4,
        "threads": 4,
        "cpu_percent": 10,
        "committed_mb": 0,
        "free_mb": facts["memory_mb"],
        "tsc_frequency_hz": tsc * 10**9,
        "hosted_engine": {"configured": True, "active": True, "score": 3400},
        "vms": running,
    }
    return host_record(host=name, virt=virt, **facts)


@pytest.mark.parametrize("host", ["a", "b"])
@given(hosts=st.lists(HOST, min_size=2, max_size=4))
def test_every_vm_that_needs_a_host_by_all_filters_is_among_the_doubtful(host, hosts):
    found = table(hosts)
    vms = RunningVms(PIPELINE, found)
    for record in found.records:
        vms.read(record.host)
    drain_safety = DrainSafety(vms, host)
    needing = {
        vm
        for kind, some in vms.kinds.items()
        for source, vm in some.items()
        if source != host and drain_safety.is_needed(kind, source, vm)
    }
    doubtful = {
        some[source]
        for kind, some in vms.kinds.items()
        for source in drain_safety.doubtful(kind, some)
    }
    assert needing <= doubtful
    event("some VM needs it" if needing else "none needs it")
    event("some are doubtful" if doubtful else "none is doubtful")
