"""Compiles a cluster's policy to a pipeline. Only the compiler makes units."""

import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from scheduler_worker.conversion import convert
from scheduler_worker.errors import ClusterPolicyError
from scheduler_worker.model.policies import (
    NOVA,
    ClusterPolicy,
    FilterUse,
    UnitUse,
    WeightUse,
    write_policy,
)
from scheduler_worker.scheduling.catalogue import (
    Catalogue,
    UnitKind,
    declared_parameters,
    parameter_values,
)
from scheduler_worker.scheduling.destination import LABEL, RequestedDestination
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.ovirt import host_facts, resources
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.plugin import Balance, Filter, Unit, UnitContext, Weigher
from scheduler_worker.scheduling.prefilters.units import (
    Inventories,
    PlacementCandidates,
    RequestFilters,
    ResourceProviders,
)
from scheduler_worker.scheduling.selections import PlacementOptions
from scheduler_worker.scheduling.selectors import Selector

OF_OVIRT: Mapping[str, type[Filter]] = {
    "Compatibility-Version": host_facts.CompatibilityVersionFilter,
    "CPU-Level": resources.CpuLevelFilter,
    "CPUTopology": resources.CpuTopologyFilter,
    "CpuPinning": resources.CpuPinningFilter,
    "HostDevice": host_facts.HostDeviceFilter,
    "PinToHost": host_facts.PinToHostFilter,
    "VM leases ready": host_facts.LeasesReadyFilter,
    "MDevice": host_facts.MediatedDevicesFilter,
}
"""oVirt's filters that are asked first under every policy, by oVirt's name. They concern requests
that say what they need of a host in ``vm``."""
MANDATORY: Mapping[str, type[Filter]] = {
    RequestedDestination.__name__: RequestedDestination,
    RequestFilters.__name__: RequestFilters,
    Inventories.__name__: Inventories,
    ResourceProviders.__name__: ResourceProviders,
    PlacementCandidates.__name__: PlacementCandidates,
    **OF_OVIRT,
}
"""The filters that are asked first under every policy, in this order, by name."""
AnyUnit = TypeVar("AnyUnit", bound=Unit)


def compile_policy(
    policy: ClusterPolicy,
    catalogue: Catalogue,
    options: Options,
    collaborators: Mapping[type, Any] | None = None,
) -> Pipeline:
    """Compiles a policy.

    ``options`` set the parameters that the policy does not. ``collaborators`` are the worker's
    objects by type, for units that declare to need them.

    Raises ClusterPolicyError: lists all problems, each with policy, unit and parameter.
    """
    return _Compiler(policy, catalogue, options, collaborators or {}).compile()


def nova_policy(
    filters: Sequence[str], weights: Sequence[str], options: Options, catalogue: Catalogue
) -> ClusterPolicy:
    """The policy that ``[filter_scheduler]`` describes, for clusters that have no other.

    Its version is a checksum of everything that influences decisions, so that replicas with
    different configuration files show different versions.
    """
    policy = ClusterPolicy(
        id=NOVA,
        name=NOVA,
        version=1,
        description="The policy that the worker's options describe",
        filters=tuple(_numbered(filters)),
        weights=tuple(
            WeightUse(unit=name, factor=_factor(catalogue, name, options)) for name in weights
        ),
    )
    values = sorted((name, repr(value)) for name, value in options.values.items())
    checksum = zlib.crc32(write_policy(policy) + repr(values).encode())
    return structs.replace(policy, version=1 + checksum)


def _numbered(names: Sequence[str]) -> Iterator[FilterUse]:
    """A use for each name; a repeated name gets a number."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield FilterUse(unit=name, name=f"{name}#{seen[name]}" if seen[name] > 1 else None)


def _factor(catalogue: Catalogue, name: str, options: Options) -> float:
    entry = catalogue.find(name, UnitKind.WEIGHT)
    if entry is None or not issubclass(entry.unit, Weigher):
        return 1.0
    return float(options.values.get(entry.unit.option or "", entry.unit.default_factor))


class _Compiler(msgspec.Struct):
    """One compilation, which collects all problems before it fails."""

    policy: ClusterPolicy
    catalogue: Catalogue
    options: Options
    collaborators: Mapping[type, Any]
    problems: list[str] = []
    labels: set[tuple[UnitKind, str]] = set()
    declared: set[str] = set()
    """Every parameter that a unit of the policy declares."""

    def compile(self) -> Pipeline:
        policy = self.policy
        filters = [self._used(use, UnitKind.FILTER, Filter) for use in policy.ordered_filters]
        weights = [self._used(use, UnitKind.WEIGHT, Weigher, use.factor) for use in policy.weights]
        selector = self._used(policy.selector, UnitKind.SELECTOR, Selector)
        providers = self._made(ResourceProviders.__name__, ResourceProviders)
        inventories = self._made(Inventories.__name__, Inventories)
        candidates = self._made(PlacementCandidates.__name__, PlacementCandidates)
        # Hosts must be up first of all; ``nova`` names a filter of its own for that.
        up = {"MigrationDomain": host_facts.MigrationDomainFilter} if policy.only_hosts_up else {}
        of_ovirt: Mapping[str, type[Filter]] = {**up, **OF_OVIRT}
        mandatory = [
            self._made(LABEL, RequestedDestination),
            self._made(RequestFilters.__name__, RequestFilters),
            inventories,
            providers,
            candidates,
            *(self._made(name, unit) for name, unit in of_ovirt.items()),
        ]
        balance = self._used(policy.balance, UnitKind.BALANCE, Balance) if policy.balance else None
        self._check()
        if self.problems or selector is None:
            raise ClusterPolicyError(sorted(self.problems))
        return Pipeline(
            policy.reference,
            inventories=inventories,
            providers=providers,
            candidates=candidates,
            mandatory=mandatory,
            filters=[unit for unit in filters if unit is not None],
            weights=[unit for unit in weights if unit is not None],
            selector=selector,
            balance=balance,
            options=convert(self.options.values, PlacementOptions),
        )

    def _used(
        self, use: UnitUse, kind: UnitKind, base: type[AnyUnit], factor: float = 1.0
    ) -> AnyUnit | None:
        """The unit of a use; None: it cannot be used, and the problem is recorded."""
        label = use.label
        if (kind, label) in self.labels:
            self._problem(f"{kind} {label}", "is used twice; give one of them another `name`")
        self.labels.add((kind, label))
        if (problem := self.catalogue.problem(use.unit, kind)) is not None:
            self._problem(f"{kind} {use.unit}", problem)
            return None
        entry = self.catalogue.find(use.unit, kind)
        if entry is None or not issubclass(entry.unit, base):
            return None
        return self._made(label, entry.unit, use, factor)

    def _made(
        self, label: str, unit: type[AnyUnit], use: UnitUse | None = None, factor: float = 1.0
    ) -> AnyUnit:
        settings = use.parameters if use else {}
        names = {parameter.name for parameter in declared_parameters(unit.parameters_type)}
        self.declared |= names
        for name in settings.keys() - names:
            known = ", ".join(sorted(names)) or "none"
            self._problem(f"{label}, parameter {name}", f"is not declared; known are {known}")
        parameters = unit.parameters_type()
        try:
            parameters = parameter_values(
                unit.parameters_type, (settings, self.policy.parameters, self.options.values)
            )
        except ValueError as error:
            self._problem(label, str(error))
        context = UnitContext(
            name=label, parameters=parameters, factor=factor, collaborators=self.collaborators
        )
        return unit(context)

    def _check(self) -> None:
        """Report what no single unit can; all of them are made."""
        for use in self.policy.weights:
            if not math.isfinite(use.factor):
                self._problem(f"weight {use.label}", f"factor {use.factor} is no finite number")
        for name in self.policy.parameters.keys() - self.declared:
            self._problem(f"parameter {name}", "no unit of the policy declares it")
        for position in ("first", "last"):
            labels = [use.label for use in self.policy.filters if use.position == position]
            if len(labels) > 1:
                self._problem(", ".join(labels), f"only one filter can be {position}")

    def _problem(self, where: str, what: str) -> None:
        self.problems.append(f"policy {self.policy.reference}: {where}: {what}")
