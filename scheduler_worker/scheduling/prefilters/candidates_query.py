"""Asks Placement for the allocation candidates of a request as nova-scheduler would: the query, and
what its answer means.

Everything that Placement can decide is in the query, so that its limit cuts off no host that the
filters here would keep. A forced host is not: ``in_tree`` would leave out what is shared with it.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from msgspec import structs

from scheduler_worker.errors import RequestError
from scheduler_worker.model.aggregates import AVAILABILITY_ZONE, Aggregate
from scheduler_worker.model.providers import (
    AllocationCandidate,
    AllocationRequest,
    CandidatesAnswer,
    ProviderRoom,
    ProviderUse,
)
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.prefilters.hosts import isolates, names_tenant
from scheduler_worker.scheduling.prefilters.needs import Group, Needs, Resources

Parameters = Iterator[tuple[str, str]]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_OF_OTHER_HOSTS = ("group", "same_host", "different_host")
"""Scheduler hints for which the best host may be any of all."""


class Query(NamedTuple):
    """A question to Placement."""

    text: str
    """The query of ``GET /allocation_candidates``."""
    unpinned: bool = False
    """Whether it asks for shared CPUs in place of pinned ones."""


def asked_classes(needs: Needs) -> frozenset[str]:
    """The resource classes that a request takes from anywhere."""
    of_groups = (item for group in needs.groups for item in group.resources)
    return frozenset(name for name, _ in (*needs.amounts, *needs.amounts_unpinned, *of_groups))


def queries(
    spec: RequestSpec, needs: Needs, aggregates: Iterable[Aggregate], limit: int
) -> tuple[Query, ...]:
    """What to ask; two questions where pinned CPUs may come from shared ones on some hosts.

    ``aggregates`` are all there are; ``limit`` bounds the candidates of requests that are not bound
    to certain hosts.

    Raises RequestError: Placement accepts no such name of a group.
    """
    common = [*_common(spec, needs), *_of_aggregates(needs, tuple(aggregates))]
    if not _is_bound(spec):
        common.append(("limit", str(limit)))
    kinds = (False, True) if needs.amounts != needs.amounts_unpinned else (False,)
    parameters = ([*_of_flavor(needs, unpinned=unpinned), *common] for unpinned in kinds)
    texts = (urlencode(some, safe=":,!") for some in parameters)
    return tuple(map(Query, texts, kinds))


def _resources(needs: Needs, *, unpinned: bool) -> Resources:
    """What the flavor takes of whichever providers."""
    amounts = needs.amounts_unpinned if unpinned else needs.amounts
    return tuple(sorted((*amounts, *needs.groups[0].resources)))


def _is_bound(spec: RequestSpec) -> bool:
    destination = spec.requested_destination
    named = destination is not None and (destination.host or destination.node)
    listed = spec.force_hosts or spec.force_nodes or spec.only_hosts is not None
    return bool(named or listed or any(map(spec.hint, _OF_OTHER_HOSTS)))


def _of_flavor(needs: Needs, *, unpinned: bool) -> Parameters:
    group, resources = needs.groups[0], _resources(needs, unpinned=unpinned)
    required, forbidden = needs.of_root
    if not unpinned:
        group = structs.replace(
            group,
            required=group.required | needs.threads[0],
            forbidden=group.forbidden | needs.threads[1],
        )
    if resources:
        yield from _of_group("", resources, group)
    else:
        required |= group.required
        forbidden |= group.forbidden
    if root := _traits(required, forbidden):
        yield "root_required", root


def _common(spec: RequestSpec, needs: Needs) -> Parameters:
    named = needs.groups[1:]
    for group in named:
        if not _NAME.match(group.name):
            problem = "needs 1 to 64 letters, digits, _ and -, for Placement is asked by it"
            raise RequestError("spec_obj.requested_resources.requester_id", problem)
        yield from _of_group(group.name, group.resources, group)
    isolates = needs.supply is not None and needs.supply.isolates
    if len(named) > 1 or isolates:
        yield "group_policy", "isolate" if isolates else "none"
    for names in needs.supply.same_subtree if needs.supply is not None else ():
        yield "same_subtree", ",".join(sorted(names))


def _of_group(name: str, resources: Resources, group: Group) -> Parameters:
    if resources:
        yield f"resources{name}", ",".join(f"{kind}:{amount}" for kind, amount in resources)
    if traits := _traits(group.required, group.forbidden):
        yield f"required{name}", traits
    for uuids in group.member_of:
        yield f"member_of{name}", _any_of(uuids)
    if group.forbidden_aggregates:
        yield f"member_of{name}", f"!{_any_of(group.forbidden_aggregates)}"
    if group.in_tree is not None:
        yield f"in_tree{name}", group.in_tree


def _of_aggregates(needs: Needs, aggregates: Sequence[Aggregate]) -> Parameters:
    """The allowed destinations of the request, as uuids of aggregates."""
    zone, tenant, traits = (AVAILABILITY_ZONE, needs.zone), needs.tenant, needs.traits
    items = [(aggregate.uuid, aggregate.metadata.items()) for aggregate in aggregates]
    in_zone = {uuid for uuid, metadata in items if zone in metadata}
    of_tenant = {
        uuid for uuid, metadata in items if tenant is not None and names_tenant(metadata, tenant)
    }
    for uuids in (*needs.member_of, *filter(None, (in_zone, of_tenant))):
        yield "member_of", _any_of(uuids)
    forbidden = set(needs.forbidden_aggregates)
    if traits is not None:
        forbidden.update(uuid for uuid, metadata in items if isolates(metadata, traits))
    if forbidden:
        yield "member_of", f"!{_any_of(forbidden)}"


def _traits(required: Iterable[str], forbidden: Iterable[str]) -> str:
    return ",".join((*sorted(required), *(f"!{trait}" for trait in sorted(forbidden))))


def _any_of(uuids: Iterable[str]) -> str:
    return f"in:{','.join(sorted(uuids))}"


def suits(query: str, aggregates: Collection[str]) -> bool:
    """Whether a host with providers in these aggregates has all that a query asks of aggregates."""
    for name, value in parse_qsl(query):
        if name.startswith("member_of"):
            uuids = set(value.removeprefix("!").removeprefix("in:").split(","))
            if uuids.isdisjoint(aggregates) != value.startswith("!"):
                return False
    return True


# The answer


def by_root(
    needs: Needs, answer: CandidatesAnswer, *, unpinned: bool = False
) -> dict[str, tuple[AllocationCandidate, ...]]:
    """The candidates of each host: those with a provider of its tree that does not share."""
    candidates: dict[str, list[AllocationCandidate]] = {}
    of_flavor = _resources(needs, unpinned=unpinned)
    for request in answer.requests:
        known = {uuid: answer.summaries[uuid] for uuid in request.held if uuid in answer.summaries}
        own = {summary.root for summary in known.values() if not summary.shares}
        candidate = AllocationCandidate(uses=_uses(needs, of_flavor, request), unpinned=unpinned)
        for root in own or {summary.root for summary in known.values()}:
            candidates.setdefault(root, []).append(candidate)
    return {root: tuple(options) for root, options in candidates.items()}


def rooms(answer: CandidatesAnswer) -> dict[str, Mapping[str, ProviderRoom]]:
    """Provider uuid -> its rooms."""
    return {uuid: summary.rooms for uuid, summary in answer.summaries.items()}


def _uses(needs: Needs, amounts: Resources, request: AllocationRequest) -> tuple[ProviderUse, ...]:
    """What each group takes of which provider.

    The mappings say so of groups with a name. The flavor's takes each class from the provider that
    has more of it in the request than these take. How much more does not count: if several
    groups take a class of one provider, Placement (16.0) adds their amounts up again for each
    request of an answer.
    """
    named = [
        ProviderUse(provider=provider, resources=dict(group.resources), group=group.name)
        for group in needs.groups[1:]
        for provider in request.mappings.get(group.name, ())
    ]
    taken = Counter[tuple[str, str]]()
    for use in named:
        taken.update({(use.provider, name): amount for name, amount in use.resources.items()})
    serving = request.mappings.get("", ())
    options = {
        name: [p for p in serving if request.held.get(p, {}).get(name, 0) > taken[p, name]]
        for name, _ in amounts
    }
    chosen: dict[str, dict[str, int]] = {}
    for name, amount in sorted(amounts, key=lambda item: len(options[item[0]])):
        # One that serves nothing else of the flavor must be there for this.
        for provider in sorted(options[name], key=lambda provider: provider in chosen)[:1]:
            chosen.setdefault(provider, {})[name] = amount
    own = (ProviderUse(provider=uuid, resources=amounts) for uuid, amounts in chosen.items())
    return *own, *named
