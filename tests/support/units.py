"""Units and pipelines as the compiler makes them, without a catalogue."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from scheduler_worker.model.decisions import Decision, Diagnosis
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.catalogue import parameter_values
from scheduler_worker.scheduling.destination import LABEL, RequestedDestination
from scheduler_worker.scheduling.explain import explain
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.scheduling.plugin import Filter, Unit, UnitContext, Weigher
from scheduler_worker.scheduling.prefilters.units import (
    Inventories,
    PlacementCandidates,
    RequestFilters,
    ResourceProviders,
)
from scheduler_worker.scheduling.selections import PlacementOptions
from scheduler_worker.scheduling.selectors import NormalizedSum, Selector

AnyUnit = TypeVar("AnyUnit", bound=Unit)


def made(
    unit: type[AnyUnit], options: Options | None = None, /, *, name: str = "", **values: Any
) -> AnyUnit:
    """The unit with these options (of the configuration) for its parameters and factor."""
    known = {**(options.values if options else {}), **values}
    factor = 1.0
    if issubclass(unit, Weigher):
        factor = known.get(unit.option or "", unit.default_factor)
    parameters = parameter_values(unit.parameters_type, (known,))
    return unit(UnitContext(name=name or unit.__name__, parameters=parameters, factor=factor))


def decided(
    pipeline: Pipeline,
    hosts: HostTable,
    spec: RequestSpec,
    *uuids: str,
    alternates: int = 0,
    reserved: Mapping[str, int] | None = None,
) -> Decision:
    """The decision about these instances, or about ``i``; by the same draws each time."""
    asked = Request(spec=spec, instance_uuids=uuids or ("i",), num_alternates=alternates)
    return pipeline.decide(hosts, asked, random.Random(1), reserved)


def explained(pipeline: Pipeline, hosts: HostTable, spec: RequestSpec, limit: int = 9) -> Diagnosis:
    """The diagnosis of the decision about ``i``, by the same draws."""
    asked = Request(spec=spec, instance_uuids=("i",))
    return explain(pipeline, hosts, asked, random.Random(1), limit=limit)


def pipeline_of(
    filters: Sequence[Filter] = (),
    weights: Sequence[Weigher] = (),
    options: Options | None = None,
    *,
    selector: type[Selector] = NormalizedSum,
) -> Pipeline:
    """A pipeline of these units, with Nova's selector unless another is given."""
    options = options or Options()
    inventories, providers = made(Inventories, options), made(ResourceProviders, options)
    candidates = made(PlacementCandidates, options)
    fields = PlacementOptions.__struct_fields__
    return Pipeline(
        PolicyReference("nova", "nova", 1),
        inventories=inventories,
        providers=providers,
        candidates=candidates,
        mandatory=[
            made(RequestedDestination, name=LABEL),
            made(RequestFilters, options),
            inventories,
            providers,
            candidates,
        ],
        filters=filters,
        weights=weights,
        selector=made(selector, options),
        options=msgspec.convert(
            {name: value for name, value in options.values.items() if name in fields},
            PlacementOptions,
        ),
    )
