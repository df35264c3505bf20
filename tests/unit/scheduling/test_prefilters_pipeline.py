"""Request filters in the pipeline: what is taken from providers, reported, and given back."""

import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.scheduling.options import Options
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.units import decided, explained, pipeline_of

GPU = {"requester_id": "gpu", "resources": {"VGPU": 1}}
PIPELINE = pipeline_of([], [], Options())


@pytest.fixture
def hosts() -> HostTable:
    """One host with two GPUs, which are one provider each."""
    gpus = [{"uuid": f"gpu{n}", "inventories": {"VGPU": {"total": 1}}} for n in range(2)]
    return host_table([host_record(host="a", resource_providers=gpus)])


def decide(hosts: HostTable, *uuids: str, **asked) -> Decision:
    return decided(PIPELINE, hosts, request_spec(**asked), *uuids)


def mapped(decision: Decision) -> list[str]:
    requests = [each[0].allocation for each in decision.selections]
    return [provider for each in requests for provider in each.mappings["gpu"]]


def test_each_instance_gets_a_provider_of_its_own(hosts):
    decision = decide(hosts, "one", "two", requested_resources=[GPU])
    assert sorted(mapped(decision)) == ["gpu0", "gpu1"]
    with pytest.raises(NoValidHost):
        decide(hosts, "three", requested_resources=[GPU])


def test_what_is_given_back_can_be_claimed_again(hosts):
    before = hosts.state(0).provider_tree
    [claim] = decide(hosts, "one", requested_resources=[GPU]).claims
    assert hosts.state(0).provider_tree != before
    hosts.give_back(claim.id)
    assert hosts.state(0).provider_tree == before


def test_a_report_keeps_what_is_reserved(hosts):
    decide(hosts, "one", requested_resources=[GPU])
    hosts.put(hosts.records[0], 2)
    decide(hosts, "two", requested_resources=[GPU])
    with pytest.raises(NoValidHost):
        decide(hosts, "three", requested_resources=[GPU])


def test_a_repeated_instance_keeps_its_provider(hosts):
    first = mapped(decide(hosts, "one", requested_resources=[GPU]))
    decide(hosts, "two", requested_resources=[GPU])
    spec = request_spec(requested_resources=[GPU])
    again = decided(PIPELINE, hosts, spec, "one", reserved={"one": 0})
    assert mapped(again) == first
    assert not again.claims


def test_forcing_does_not_bypass_a_disabled_host():
    hosts = host_table([host_record(host="a", service={"disabled": True})])
    with pytest.raises(NoValidHost):
        decide(hosts, "one", force_hosts=["a"])


def test_request_filters_are_named_where_they_reject():
    hosts = host_table([host_record(host="a", traits=["X"]), host_record(host="b")])
    spec = request_spec(extra_specs={"trait:X": "required"})
    diagnosis = explained(PIPELINE, hosts, spec)
    assert [step.name for step in diagnosis.filters] == ["RequestFilters"]
    [reason] = [each.reason for each in diagnosis.verdicts if each.host == "b"]
    assert reason == "lacks trait X"
    assert not explained(PIPELINE, hosts, request_spec()).filters
