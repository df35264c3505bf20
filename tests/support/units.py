"""Units and pipelines as the compiler makes them, without a catalogue."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from scheduler_worker.model.policies import PolicyReference
from scheduler_worker.scheduling.catalogue import parameter_values
from scheduler_worker.scheduling.destination import LABEL, RequestedDestination
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Pipeline
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
