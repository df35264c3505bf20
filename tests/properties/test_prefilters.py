"""Properties of the request filters and of matching, for any hosts and requests."""

import itertools
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.providers import Inventory, ResourceProvider, read_providers
from scheduler_worker.scheduling.plugin import UnitContext
from scheduler_worker.scheduling.prefilters.matching import match, uses_of
from scheduler_worker.scheduling.prefilters.needs import Group, Supply
from scheduler_worker.scheduling.prefilters.traits import RequestFilterParameters
from scheduler_worker.scheduling.prefilters.units import RequestFilters
from tests.support.hosts import host_record, host_table, request_spec

TRAITS = ("A", "B", "C")
CLASSES = ("VGPU", "FPGA")
some_traits = st.frozensets(st.sampled_from(TRAITS), max_size=2)


# Matching against trying everything


inventories = st.builds(
    Inventory,
    total=st.integers(0, 4),
    reserved=st.integers(0, 1),
    max_unit=st.integers(1, 4),
    step_size=st.integers(1, 2),
)


@st.composite
def trees(draw):
    count = draw(st.integers(0, 4))
    reported = [
        ResourceProvider(
            uuid=f"p{number}",
            parent_provider_uuid=draw(st.sampled_from([None, *(f"p{n}" for n in range(number))])),
            inventories=draw(st.dictionaries(st.sampled_from(CLASSES), inventories)),
            usages=draw(st.dictionaries(st.sampled_from(CLASSES), st.integers(0, 2))),
            traits=tuple(draw(some_traits)),
        )
        for number in range(count)
    ]
    return read_providers("host", draw(some_traits), reported)


amounts = st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 3), max_size=2)


@st.composite
def supplies(draw):
    names = ["", *draw(st.sampled_from([[], ["1"], ["1", "2"], ["1", "2", "3"]]))]
    groups = tuple(
        Group(
            name=name,
            resources=tuple(sorted(draw(amounts).items())),
            required=draw(some_traits),
            forbidden=draw(st.frozensets(st.sampled_from(TRAITS), max_size=1)),
        )
        for name in names
    )
    subtree = draw(st.sampled_from([(), (frozenset({"1", "2"}),)]))
    return Supply(groups=groups, isolates=draw(st.booleans()), same_subtree=subtree)


def is_served(tree, supply: Supply, places: tuple[int, ...]) -> bool:
    """Whether these providers serve all demands, by brute force.

    What all demands take of a provider may not be more than one instance may take.
    """
    providers = list(tree.providers)
    used: list[tuple[str, int]] = []
    taken: Counter[tuple[int, str]] = Counter()
    for place, (group, resources) in zip(places, wishes_of(supply), strict=True):
        if not all(providers[place].has(*item) for item in resources):
            return False
        providers[place] = providers[place].taken(dict(resources))
        taken.update({(place, name): amount for name, amount in resources})
        traits = providers[place].traits
        if group.forbidden & traits or (group.name and not group.required <= traits):
            return False
        used.append((group.name, place))
    if any(
        taken[place, name] > known.max_unit
        for place, provider in enumerate(providers)
        for name, known in provider.inventories
    ):
        return False
    flavor = supply.groups[0]
    found = frozenset().union(*(providers[at].traits for name, at in [*used, ("", 0)] if not name))
    if not flavor.required <= found or flavor.forbidden & found:
        return False
    alone = [at for name, at in used if name]
    if supply.isolates and len(set(alone)) < len(alone):
        return False
    return all(
        any(all(top in above(tree, at) for at in some) for top in some)
        for names in supply.same_subtree
        for some in [[at for name, at in used if name in names]]
        if some
    )


def above(tree, place: int) -> set[int]:
    found = {place}
    while place:
        place = tree.providers[place].parent
        found.add(place)
    return found


def wishes_of(supply: Supply):
    for group in supply.groups:
        parts = [group.resources] if group.name else [(item,) for item in group.resources]
        yield from ((group, part) for part in parts)


@given(trees(), supplies())
def test_matching_agrees_with_exhaustive_search(tree, supply):
    found = match(tree.providers, frozenset(), supply)
    count = len(list(wishes_of(supply)))
    ways = itertools.product(range(len(tree.providers)), repeat=count)
    exists = any(is_served(tree, supply, places) for places in ways)
    assert exists is not isinstance(found, str), found


@given(trees(), supplies())
def test_what_was_taken_is_within_capacity_and_given_back_exactly(tree, supply):
    found = match(tree.providers, frozenset(), supply)
    if isinstance(found, str):
        return
    uses = uses_of(tree, found)
    after = tree.taken(uses)
    for before, provider in zip(tree.providers, after.providers, strict=True):
        for (_, inventory), was, now in zip(
            provider.inventories, before.used, provider.used, strict=True
        ):
            assert now == was or now <= inventory.capacity
    assert after.taken(uses, -1) == tree


# Column and row methods


metadata = st.dictionaries(
    st.sampled_from(["availability_zone", "filter_tenant_id", "filter_tenant_id2", "trait:A"]),
    st.sampled_from(["z", "y", "p", "required"]),
    max_size=3,
)


@st.composite
def fleets(draw):
    names = "abcdef"[: draw(st.integers(1, 6))]
    records = [
        host_record(
            host=name,
            traits=sorted(draw(some_traits)),
            networks=draw(st.sampled_from([[], ["n"]])),
            service={"disabled": draw(st.booleans())},
        )
        for name in names
    ]
    aggregates = [
        Aggregate(
            id=number,
            uuid=f"g{number}",
            hosts=tuple(draw(st.sets(st.sampled_from(names)))),
            metadata=draw(metadata),
        )
        for number in range(draw(st.integers(0, 3)))
    ]
    return host_table(records, aggregates=aggregates)


@st.composite
def requests(draw):
    destination = {
        "aggregates": draw(st.sampled_from([[], ["g0"], ["g0,g1", "g2"]])),
        "forbidden_aggregates": draw(st.sampled_from([[], ["g1"]])),
    }
    intent = st.sampled_from(["required", "forbidden"])
    intents = draw(st.dictionaries(st.sampled_from(TRAITS), intent, max_size=2))
    return request_spec(
        project_id="p",
        availability_zone=draw(st.sampled_from([None, "z", "nova"])),
        requested_destination=destination,
        extra_specs={f"trait:{trait}": said for trait, said in intents.items()},
        requested_networks=draw(st.sampled_from([[], [{"network_id": "n"}]])),
    )


options = st.builds(
    RequestFilterParameters,
    limit_tenants_to_placement_aggregate=st.booleans(),
    enable_isolated_aggregate_filtering=st.booleans(),
    query_placement_for_routed_network_aggregates=st.booleans(),
)


@given(fleets(), requests(), options)
def test_both_methods_agree_and_requests_of_a_class_get_equal_answers(hosts, spec, options):
    unit = RequestFilters(UnitContext(name="RequestFilters", parameters=options))
    mask = unit.passes(hosts, spec)
    rows = [unit.host_passes(host, spec) for host in hosts.states()]
    assert mask.tolist() == rows
    taken = hosts.take(np.flatnonzero(mask))
    assert unit.passes(taken, spec).all()
    assert hash(unit.reads(spec)) == hash(unit.reads(spec))
    for host, passes in zip(hosts.states(), rows, strict=True):
        assert passes or unit.reason(host, spec) != "does not pass"
