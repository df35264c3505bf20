"""Answers are identical to Nova's own."""

import json

import pytest

from scheduler_worker import codec
from scheduler_worker.model.decisions import (
    Allocation,
    Diagnosis,
    FilterStep,
    HostVerdict,
    Selection,
    WeightPart,
)
from scheduler_worker.model.requests import SchedulerLimits
from tests.support.samples import refused, sample

CHANGES = "nova_object.changes"

NUMA_LIMITS = {
    "cpu_allocation_ratio": 4.0,
    "ram_allocation_ratio": 1.0,
    "network_metadata": {"physnets": ["physnet1"], "tunneled": True},
}
HOST1 = Selection(
    service_host="host1",
    nodename="host1",
    compute_node_uuid="cccccccc-0000-4000-8000-000000000001",
    cell_uuid="dddddddd-0000-4000-8000-000000000001",
    limits=SchedulerLimits(vcpu=32, memory_mb=32768, disk_gb=500),
    availability_zone="az1",
    allocation=Allocation(
        allocations={
            "cccccccc-0000-4000-8000-000000000001": {
                "resources": {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}
            }
        },
        mappings={"": ["cccccccc-0000-4000-8000-000000000001"]},
    ),
)
HOST2 = Selection(
    service_host="host2",
    nodename="host2",
    compute_node_uuid="cccccccc-0000-4000-8000-000000000002",
    cell_uuid="dddddddd-0000-4000-8000-000000000001",
    availability_zone="nova",
)


def ordered(value):
    """The same, with the lists of changes (which are sets) in order."""
    if isinstance(value, dict):
        return {
            key: sorted(item) if key == CHANGES else ordered(item) for key, item in value.items()
        }
    return [ordered(each) for each in value] if isinstance(value, list) else value


def with_numa_limits(selection):
    limits = SchedulerLimits(vcpu=32, memory_mb=32768, disk_gb=500, numa_topology=NUMA_LIMITS)
    return Selection(
        **{name: getattr(selection, name) for name in Selection.__struct_fields__}
        | {"limits": limits}
    )


@pytest.mark.parametrize(
    ("selection", "name"),
    [
        (HOST1, "selection"),
        (HOST2, "selection_no_placement"),
        (with_numa_limits(HOST1), "selection_numa_limits"),
    ],
)
def test_selections_are_novas(selection, name):
    encoded = codec.encode_selection(selection)
    assert ordered(json.loads(json.dumps(encoded))) == ordered(sample(name))
    assert codec.decode_selection(sample(name)) == selection


def test_the_legacy_reply():
    encoded = codec.encode_destinations([[with_numa_limits(HOST1), HOST2], [HOST2]])
    assert ordered(encoded) == ordered(sample("select_destinations_reply_legacy"))


def test_a_host_without_a_cell_leaves_the_field_out():
    data = codec.encode_selection(Selection(service_host="h", nodename="n", compute_node_uuid="u"))[
        "nova_object.data"
    ]
    assert "cell_uuid" not in data
    assert data["allocation_request"] == "null"


def test_older_selections():
    old = {
        "nova_object.name": "Selection",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.0",
        "nova_object.data": {
            "service_host": "h",
            "nodename": "n",
            "compute_node_uuid": "u",
            "limits": None,
        },
    }
    found = codec.decode_selection(old)
    assert (found.limits, found.availability_zone) == (SchedulerLimits(), None)
    assert refused(codec.decode_selection, {}) == "selection.service_host: is missing"


def test_diagnosis():
    encoded = codec.encode_diagnosis(
        Diagnosis(
            hosts=2,
            filters=(FilterStep("RamFilter", 2, 1),),
            verdicts=(
                HostVerdict(host="a", nodename="a", rejected_by="RamFilter", reason="1 of 2 MiB"),
                HostVerdict(
                    host="b",
                    nodename="b",
                    weight=float("inf"),
                    weights=(WeightPart("RAMWeigher", 1.0, 1.0, 2.0, 2.0),),
                ),
            ),
            chosen="b",
        )
    )
    assert encoded["filters"] == [{"name": "RamFilter", "hosts_in": 2, "hosts_out": 1}]
    rejected, weighed = encoded["verdicts"]
    assert (rejected["rejected_by"], rejected["reason"]) == ("RamFilter", "1 of 2 MiB")
    assert weighed["weights"][0]["product"] == 2.0
    assert weighed["weight"] is None
    json.dumps(encoded, allow_nan=False)
