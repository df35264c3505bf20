"""The units that policies may use, as administrators see them: one entry for each kind of a unit.

Units that come with the worker are those of the catalogue. User units are listed once they have
been registered in the policy store, so that one which is not installed any more is still known, as
disabled, and one that was removed is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler_worker.model.policies import UnitFacts
from scheduler_worker.policy_store import StoredUnit
from scheduler_worker.scheduling.catalogue import (
    Catalogue,
    CatalogueEntry,
    Parameter,
    UnitKind,
)


class PolicyUnit(UnitFacts, frozen=True, kw_only=True):
    """One kind of a unit."""

    kind: UnitKind
    is_internal: bool = True
    """Whether it comes with the worker."""
    parameters: tuple[Parameter, ...] = ()


class PolicyUnits:
    """All units that an administrator may see, by id and by name."""

    def __init__(self, catalogue: Catalogue, stored: Iterable[StoredUnit]) -> None:
        self._by_id: dict[str, PolicyUnit] = {}
        self._by_use: dict[tuple[str, UnitKind], PolicyUnit] = {}
        known = list(stored)
        self.catalogue = catalogue = limited(catalogue, known)
        """Those that wait to be enabled are disabled in it."""
        for unit in (*_internal(catalogue), *_registered(catalogue, known), *_broken(catalogue)):
            self._by_id[unit.id] = unit
            self._by_use[unit.name, unit.kind] = unit

    def __iter__(self) -> Iterator[PolicyUnit]:
        return iter(sorted(self._by_id.values(), key=lambda each: (each.kind, each.name)))

    def find(self, unit_id: str) -> PolicyUnit | None:
        """The unit with this id."""
        return self._by_id.get(unit_id)

    def used(self, name: str, kind: UnitKind) -> PolicyUnit | None:
        """The unit that a policy means by a name."""
        return self._by_use.get((name, kind))


def limited(catalogue: Catalogue, stored: Iterable[StoredUnit]) -> Catalogue:
    """The catalogue, where what needs to be enabled is so only if that is stored."""
    return catalogue.limited_to({each.id for each in stored if each.is_enabled})


def installed_units(catalogue: Catalogue) -> list[StoredUnit]:
    """The user units of the catalogue, as they are registered."""
    return [
        StoredUnit(
            id=unit.id,
            name=unit.name,
            kind=unit.kind,
            description=unit.description,
            is_enabled=unit.is_enabled,
            parameters={each.name: each.regex or "" for each in unit.parameters},
        )
        for unit in _installed(catalogue)
    ]


def _internal(catalogue: Catalogue) -> Iterator[PolicyUnit]:
    for entry in catalogue:
        if entry.is_internal and not entry.is_mandatory:
            yield from _kinds(entry)


def _registered(catalogue: Catalogue, stored: Iterable[StoredUnit]) -> Iterator[PolicyUnit]:
    installed = {unit.id: unit for unit in _installed(catalogue)}
    for each in stored:
        yield installed.get(each.id) or PolicyUnit(
            id=each.id,
            name=each.name,
            kind=UnitKind(each.kind),
            description=each.description,
            is_internal=False,
            is_enabled=False,
            parameters=tuple(
                Parameter(name=name, type="text", default="", regex=regex or None)
                for name, regex in sorted(each.parameters.items())
            ),
        )


def _installed(catalogue: Catalogue) -> Iterator[PolicyUnit]:
    for entry in catalogue:
        if not entry.is_internal and entry.problem is None:
            yield from _kinds(entry)


def _broken(catalogue: Catalogue) -> Iterator[PolicyUnit]:
    """What is not registered, since nothing is known of it but its problem."""
    for entry in catalogue:
        if entry.problem is not None:
            yield from _kinds(entry)


def _kinds(entry: CatalogueEntry) -> Iterator[PolicyUnit]:
    for kind in sorted(entry.kinds):
        yield PolicyUnit(
            id=entry.id_as(kind),
            name=entry.name,
            kind=kind,
            description=entry.description,
            is_internal=entry.is_internal,
            is_enabled=entry.is_enabled,
            parameters=entry.parameters,
        )
