"""The weigher for hosts whose instances have similar images."""

from collections.abc import Hashable, Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.image_properties import image_object
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.options import MULTIPLIERS
from scheduler_worker.scheduling.plugin import UnitContext, Weigher
from scheduler_worker.scheduling.ratios import ratios

_PREFIX = "image_"


class ImagePropertiesParameters(msgspec.Struct, frozen=True):
    """``property=ratio`` items; if there are any, only these image properties count."""

    image_props_weight_setting: Annotated[tuple[str, ...], Opt(form="ratios", mutable=True)] = ()
    """property=ratio items; with any, only these image properties count."""

    def __post_init__(self) -> None:
        ratios(self.image_props_weight_setting)


class ImagePropertiesWeigher(Weigher):
    """Counts, over the host's instances, image properties equal to the requested image's.

    With ``image_props_weight_setting`` each property counts its ratio and others nothing. Is not
    applied at all while its option is 0.0, whatever aggregates say.

    Reads: ``system_metadata`` of the host's instances; the image's properties.
    Options: ``image_props_weight_setting``.
    Example: ``image_props_weight_multiplier = 1.0`` and ``image_props_weight_setting =
    os_distro=2.0``.
    """

    option = "image_props_weight_multiplier"
    default_factor = MULTIPLIERS.image_props_weight_multiplier
    parameters_type = ImagePropertiesParameters

    def __init__(self, context: UnitContext | None = None) -> None:
        super().__init__(context)
        self._ratios = dict(ratios(self.parameters.image_props_weight_setting))

    def applies(self, spec: RequestSpec) -> bool:
        return bool(self.default_multiplier() and spec.image_properties)

    def reads(self, spec: RequestSpec) -> Hashable:
        return frozenset(_pairs(spec.image_properties))

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        if not self.applies(spec):
            return np.zeros(len(hosts))
        properties = _pairs(spec.image_properties)
        raw = (self._alike(host, properties) for host in hosts.states())
        return np.fromiter(raw, "f8", len(hosts))

    def _alike(self, host: HostState, properties: set[tuple[str, str]]) -> float:
        return sum(
            self._ratios.get(name, 0.0) if self._ratios else 1.0
            for facts in host.instances.values()
            for name, _ in properties & _image_properties(facts)
        )


def _image_properties(facts: Mapping[str, Any]) -> set[tuple[str, str]]:
    """An instance's image properties: the ``image_`` keys of its system metadata."""
    stored: Mapping[str, Any] = facts.get("system_metadata") or {}
    properties = {
        key.removeprefix(_PREFIX): value for key, value in stored.items() if key.startswith(_PREFIX)
    }
    return _pairs(image_object(properties))


def _pairs(properties: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(name, str(value)) for name, value in properties.items()}
