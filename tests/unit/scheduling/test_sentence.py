"""The sentence of an explanation, and the host that came nearest."""

import pytest

from scheduler_worker.model.decisions import FilterStep, NearMiss
from scheduler_worker.scheduling import sentence
from scheduler_worker.scheduling.explain import nearest
from scheduler_worker.scheduling.filters.aggregates import AvailabilityZoneFilter
from scheduler_worker.scheduling.filters.capacity import CoreFilter, DiskFilter, RamFilter
from scheduler_worker.scheduling.filters.compute import ComputeFilter
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.scheduling.weighers.resources import CPUWeigher, RAMWeigher
from tests.support.hosts import aggregate, host_record, host_table, request_spec
from tests.support.units import explained, made, pipeline_of


class Foreign(Filter):
    """Of others, in Nova's signature."""

    asked = 0

    def host_passes(self, host_state, spec_obj):
        type(self).asked += 1
        return False


def sentence_of(hosts, spec, *filters, weights=(RAMWeigher, CPUWeigher)):
    pipeline = pipeline_of([made(each) for each in filters], [made(each) for each in weights])
    return explained(pipeline, hosts, spec, limit=1).sentence


def near(hosts, spec, *filters):
    return nearest([made(each) for each in filters], hosts, spec)


def test_a_refusal_counts_hosts_filter_by_filter_and_names_the_nearest():
    hosts = host_table(
        [
            *(host_record(host=f"small{number}", memory_mb=2048) for number in range(3)),
            host_record(host="busy", memory_mb=8192, memory_mb_used=5120),
            host_record(host="elsewhere", memory_mb=8192),
        ],
        aggregates=[aggregate("busy", "small0", availability_zone="az1")],
    )
    spec = request_spec(memory_mb=4096, availability_zone="az1")
    assert sentence_of(hosts, spec, RamFilter, AvailabilityZoneFilter) == (
        "No host: of 5 hosts 2 are enabled in zone az1, of those none has 4,096 MiB of memory "
        "left; nearest is host busy, short of 1,024 MiB of memory."
    )


def test_shortages_are_those_of_the_whole_host_where_it_is_too_small():
    hosts = host_table([host_record(host="a", vcpus=2, local_gb=10, disk_allocation_ratio=9.0)])
    spec = request_spec(vcpus=3, memory_mb=0, flavor={"root_gb": 12})
    found = near(hosts, spec, CoreFilter, RamFilter, DiskFilter)
    assert found.shortages == {"VCPU": 1, "DISK_GB": 2}


def test_inventories_tell_what_is_short():
    inventories = {"VCPU": {"total": 4}, "MEMORY_MB": {"total": 4096}}
    provider = {"uuid": "uuid-a", "inventories": inventories, "usages": {"VCPU": 3}}
    record = host_record(host="a", resource_providers=[provider])
    assert sentence_of(host_table([record]), request_spec(vcpus=2, memory_mb=1024), RamFilter) == (
        "No host: of 1 host none has 1,024 MEMORY_MB, 2 VCPU left in their inventories; "
        "nearest is host a, short of 1 vCPUs."
    )


def test_units_of_others_that_do_not_say_what_they_read_are_not_asked_about_all_hosts():
    hosts = host_table([host_record(host="a"), host_record(host="b")])
    Foreign.asked = 0
    assert near(hosts, request_spec(), RamFilter, Foreign) == NearMiss(host="a")
    assert Foreign.asked == 0
    text = sentence_of(hosts, request_spec(), RamFilter, Foreign)
    assert text == (
        "No host: of 2 hosts none passes Foreign; nearest is host a, which does not pass."
    )


def test_a_placement_names_the_weighers_that_gave_most():
    hosts = host_table(
        [host_record(host="a", vcpus=4, memory_mb=4096), host_record(host="b", memory_mb=8192)]
    )
    assert sentence_of(hosts, request_spec(), RamFilter) == (
        "Host b: first of 2 hosts that pass, by RAMWeigher (1.00)."
    )
    assert sentence_of(hosts, request_spec(memory_mb=6000), RamFilter) == (
        "Host b: the only one of 2 hosts that passes."
    )
    equal = host_table([host_record(host="a"), host_record(host="b")])
    assert sentence_of(equal, request_spec(), RamFilter) == (
        "Host a: first of 2 hosts that pass, as good as the next."
    )


def test_reasons_that_are_no_amounts_are_clauses():
    hosts = host_table([host_record(host="a", service={"disabled": True})])
    found = near(
        hosts, request_spec(availability_zone="az1"), AvailabilityZoneFilter, ComputeFilter
    )
    assert found.reasons == ("is in zone nova, not in az1", "its compute service is disabled")
    assert sentence.refusal(1, [], {}, found) == (
        "No host: none passes; nearest is host a, which is in zone nova, not in az1, and its "
        "compute service is disabled."
    )


def test_without_hosts():
    assert sentence_of(host_table([]), request_spec(), RamFilter) == "No host: there are none."
    assert sentence.of_reason("There are no hosts.") == "No host: there are no hosts."


@pytest.mark.parametrize(
    ("left", "expected"),
    [(412, "412 have the trait"), (1, "1 has the trait"), (0, "none has the trait")],
)
def test_verbs_follow_the_number(left, expected):
    steps = [FilterStep("A", 1000, 1000), FilterStep("B", 1000, left)]
    text = sentence.refusal(1000, steps, {"B": "have the trait"})
    assert text == f"No host: of 1,000 hosts {expected}."


def test_the_three_weighers_that_put_it_before_the_next_are_named():
    shares = zip("abcde", range(5), (0, 1, 1, 1, 0), strict=True)
    text = sentence.placement("h", 9, 5, shares)
    assert text == "Host h: first of 5 hosts that pass, by e (4.00), d (3.00) and c (2.00)."


def test_a_host_that_was_drawn_is_not_called_the_first():
    text = sentence.placement("h", 9, 5, best="g")
    assert text == "Host h: drawn from the best of 5 hosts that pass; g has the highest weight."
