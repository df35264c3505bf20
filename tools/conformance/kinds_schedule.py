"""Whole requests: the chosen hosts, their alternates, and the hosts' use afterwards."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from conformance import inside, nova
from conformance.placement import Placed
from scheduler_worker import codec
from scheduler_worker.errors import (
    ComputeHostMetricNotFound,
    NoValidHost,
    RequestError,
    SchedulerWorkerError,
)
from scheduler_worker.model.decisions import Decision, Selection
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.scheduling.pipeline import Request

NOVAS_FILTERS = (
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
)
"""The filters that are enabled where a case has none."""
CONSUMED = ("free_ram_mb", "free_disk_mb", "vcpus_used", "num_instances", "num_io_ops")
RAISED_HERE_TOO = ComputeHostMetricNotFound.__name__
OF_PLACEMENT = ("allocation_request", "allocation_request_version")


class Case(msgspec.Struct, frozen=True):
    """A request for one or more instances, and its result or exception."""

    config: nova.NovaConfig
    hosts: list[nova.Host]
    request_spec: dict[str, Any]
    instance_uuids: list[str] | None
    return_alternates: bool
    refused_claims: list[str | tuple[str, str]]
    """Providers that refuse every claim, or (instance, provider) pairs."""
    weigher_order: list[str]
    expect: dict[str, Any]


def recognise(document: Any) -> bool:
    return isinstance(document, dict) and {"refused_claims", "request_spec"} <= document.keys()


def run(document: Any) -> Iterator[str]:
    case = msgspec.convert(document, Case)
    enabled = case.config.get("filter_scheduler.enabled_filters", NOVAS_FILTERS)
    weighers = [name.rpartition(".")[2] for name in case.weigher_order]
    missing = nova.unknown("filter", enabled, nova.FILTERS)
    missing += nova.unknown("weigher", weighers, nova.WEIGHERS)
    if missing:
        yield from missing
        return
    hosts = nova.table(case.hosts)
    before = consumption(hosts)
    pipeline = Placed(
        nova.pipeline(case.config, filters=enabled, weighers=weighers), case.hosts, _claims(case)
    )
    try:
        decision = pipeline.decide(hosts, _request(case), nova.LowRandomSource())
    except (NoValidHost, RequestError, ComputeHostMetricNotFound) as error:
        yield from _refused(case, error)
        if consumption(hosts) != before:
            yield "something stays consumed of a request that was refused"
        return
    yield from _selected(case, decision)
    if "selections" in case.expect:
        yield from _consumed(case, hosts)


def _request(case: Case) -> Request:
    spec = codec.decode_request_spec(case.request_spec)
    uuids = case.instance_uuids or [f"instance-{each}" for each in range(spec.num_instances)]
    attempts = nova.options(case.config).values["max_attempts"]
    alternates = attempts - 1 if case.return_alternates else 0
    return Request(spec=spec, instance_uuids=tuple(uuids), num_alternates=alternates)


def _claims(case: Case) -> Any:
    return lambda instance, provider: (
        not (provider in case.refused_claims or (instance, provider) in case.refused_claims)
    )


def _refused(case: Case, error: SchedulerWorkerError) -> Iterator[str]:
    message, raised = str(error), case.expect.get("raises")
    if "selections" in case.expect:
        yield f"is refused: {message}; recorded are {case.expect['selections']}"
    elif raised:
        mine = type(error).__name__
        if mine != raised and RAISED_HERE_TOO in {mine, raised}:
            yield f"is refused with {mine}, where Nova raises {raised}"
    elif case.expect["NoValidHost"] != message:
        yield f"is refused with {message!r}; recorded is {case.expect['NoValidHost']!r}"


def _selected(case: Case, decision: Decision) -> Iterator[str]:
    found = [[_named(each) for each in some] for some in decision.selections]
    if "selections" not in case.expect:
        recorded = {
            key: case.expect[key] for key in ("raises", "NoValidHost") if key in case.expect
        }
        yield f"is placed: {found}; recorded is {recorded}"
        return
    if found != case.expect["selections"]:
        yield f"selections are {found}; recorded are {case.expect['selections']}"
        return
    claims = [[claim.instance_uuid, claim.host_uuid] for claim in decision.claims]
    if case.instance_uuids and claims != case.expect["claims"]:
        yield f"claims are {claims}; recorded are {case.expect['claims']}"
    primitives = case.expect.get("selection_primitives")
    for mine, its in zip(decision.selections, primitives or decision.selections, strict=True):
        if primitives:
            yield from _primitives(mine, its)


def _named(selection: Selection) -> list[str | None]:
    return [selection.service_host, selection.nodename, selection.availability_zone]


def _primitives(mine: Sequence[Selection], its: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Selections in wire form, without the allocations of Placement."""
    for found, recorded_one in zip(mine, its, strict=True):
        wire = codec.plain(codec.encode_selection(found), "selection")
        recorded = codec.plain(recorded_one, "selection")
        for name in recorded.keys() - set(OF_PLACEMENT):
            if wire.get(name) != recorded[name]:
                yield f"{name} is {wire.get(name)!r}; recorded is {recorded[name]!r}"


def consumption(hosts: HostTable) -> list[list[Any]]:
    """The columns of all hosts that reservations change."""
    names = (*CONSUMED, "numa_topology", "pci_pools")
    return [[getattr(host, name) for name in names] for host in hosts.states()]


def _consumed(case: Case, hosts: HostTable) -> Iterator[str]:
    """The differences in the remaining resources of each host.

    Nova stops half-way when it cannot consume a NUMA topology, which happens on cells without
    pages, and then leaves out the last step: for such requests ``num_io_ops`` is not compared,
    unless the resources inside the hosts are recorded.
    """
    after = case.expect.get("after", {})
    forgotten = {"num_io_ops"} if _has_topology(case) and not after else set()
    for host in hosts.states():
        recorded = case.expect["host_states_after"].get(host.host, {})
        names = [name for name in CONSUMED if name in recorded.keys() - forgotten]
        found = {name: getattr(host, name) for name in names}
        expected = {name: recorded[name] for name in names}
        if found != expected:
            yield f"{host.host} has {found} left; recorded is {expected}"
        yield from inside.differences(host, after.get(host.host, {}))


def _has_topology(case: Case) -> bool:
    return bool(codec.decode_request_spec(case.request_spec).numa_topology)
