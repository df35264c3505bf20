"""Whole requests: the chosen hosts, their alternates, and what is consumed afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from conformance import nova
from conformance.placement import Placed
from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.model.decisions import Decision, Selection
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.rpc import codec
from scheduler_worker.scheduling.pipeline import Request

NOVAS_FILTERS = (
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
)
"""Those that are enabled where a case does not say."""
CONSUMED = ("free_ram_mb", "free_disk_mb", "vcpus_used", "num_instances", "num_io_ops")
OF_PLACEMENT = ("allocation_request", "allocation_request_version")


class Case(msgspec.Struct, frozen=True):
    """A request for one or more instances, and what came of it; without one, what was raised."""

    config: nova.NovaConfig
    hosts: list[nova.Host]
    request_spec: dict[str, Any]
    instance_uuids: list[str] | None
    return_alternates: bool
    refused_claims: list[str | tuple[str, str]]
    """Providers that nobody may have, or (instance, provider)."""
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
        decision = pipeline.decide(hosts, _request(case, pipeline), nova.LowDice())
    except (NoValidHost, RequestError) as error:
        yield from _refused(case, str(error))
        if consumption(hosts) != before:
            yield "something stays consumed of a request that was refused"
        return
    if "raises" not in case.expect:
        yield from _selected(case, decision)
    if "selections" in case.expect:
        yield from _consumed(case, hosts)


def _request(case: Case, pipeline: Placed) -> Request:
    spec = codec.decode_request_spec(case.request_spec)
    uuids = case.instance_uuids or [f"instance-{each}" for each in range(spec.num_instances)]
    alternates = pipeline.options.max_attempts - 1 if case.return_alternates else 0
    return Request(spec=spec, instance_uuids=tuple(uuids), num_alternates=alternates)


def _claims(case: Case) -> Any:
    return lambda instance, provider: (
        not (provider in case.refused_claims or (instance, provider) in case.refused_claims)
    )


def _refused(case: Case, said: str) -> Iterator[str]:
    if "raises" in case.expect:
        return
    expected = case.expect.get("NoValidHost")
    if expected is None:
        yield f"is refused: {said}; recorded are {case.expect['selections']}"
    elif expected != said:
        yield f"is refused with {said!r}; recorded is {expected!r}"


def _selected(case: Case, decision: Decision) -> Iterator[str]:
    found = [[_named(each) for each in some] for some in decision.selections]
    if "NoValidHost" in case.expect:
        yield f"is placed: {found}; recorded is {case.expect['NoValidHost']!r}"
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
    """Selections as they go on the wire, but for what Placement says."""
    for found, said in zip(mine, its, strict=True):
        wire = codec.plain(codec.encode_selection(found), "selection")
        recorded = codec.plain(said, "selection")
        for name in recorded.keys() - set(OF_PLACEMENT):
            if wire.get(name) != recorded[name]:
                yield f"{name} is {wire.get(name)!r}; recorded is {recorded[name]!r}"


def consumption(hosts: HostTable) -> list[list[Any]]:
    """All that promises change, of all hosts."""
    return [[getattr(host, name) for name in CONSUMED] for host in hosts.states()]


def _consumed(case: Case, hosts: HostTable) -> Iterator[str]:
    """What is left of each host.

    Nova gives up half-way where it cannot consume a NUMA topology, which happens on cells without
    pages, and then forgets the last step: ``num_io_ops`` is not compared for such requests.
    """
    forgotten = {"num_io_ops"} if _has_topology(case) else set()
    for host in hosts.states():
        recorded = case.expect["host_states_after"].get(host.host, {})
        names = [name for name in CONSUMED if name in recorded.keys() - forgotten]
        found = {name: getattr(host, name) for name in names}
        expected = {name: recorded[name] for name in names}
        if found != expected:
            yield f"{host.host} has {found} left; recorded is {expected}"


def _has_topology(case: Case) -> bool:
    return bool(codec.decode_request_spec(case.request_spec).numa_topology)
