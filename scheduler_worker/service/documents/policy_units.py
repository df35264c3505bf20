"""The units that policies may use, as administrators see them: one entry for each kind of a unit.

Units that come with the worker are in the catalogue. User units are listed once they have
been registered in the book, so that one which is not installed any more is still known, as
disabled, and one that was removed is not offered.
"""

from collections.abc import Iterable, Iterator

from scheduler_worker.model.documents import StoredUnit
from scheduler_worker.model.policies import UnitFacts
from scheduler_worker.scheduling.catalogue import Catalogue, CatalogueEntry, Parameter, UnitKind


class PolicyUnit(UnitFacts, frozen=True, kw_only=True):
    """One kind of a unit."""

    kind: UnitKind
    is_internal: bool = True
    """Whether it comes with the worker."""
    parameters: tuple[Parameter, ...] = ()


class PolicyUnits:
    """All units that an administrator may see, by id and by name."""

    def __init__(self, catalogue: Catalogue, stored: Iterable[StoredUnit]) -> None:
        known = {unit.id: unit for unit in stored}
        enabled = {key for key, unit in known.items() if unit.is_enabled}
        self.catalogue = catalogue.limited_to(enabled)
        """Units that wait to be enabled are disabled in it."""
        self._by_id = {key: _uninstalled(unit) for key, unit in known.items()}
        for entry in self.catalogue:
            for unit in () if entry.is_mandatory else _kinds(entry):
                if unit.id in known or not _is_registered(entry):
                    self._by_id[unit.id] = unit
        self._by_use = {(unit.name, unit.kind): unit for unit in self._by_id.values()}

    def __iter__(self) -> Iterator[PolicyUnit]:
        return iter(sorted(self._by_id.values(), key=lambda unit: (unit.kind, unit.name)))

    def find(self, unit_id: str) -> PolicyUnit | None:
        return self._by_id.get(unit_id)

    def problem(self, name: str, kind: UnitKind) -> str | None:
        """Why a policy cannot use the unit as that kind; None: it can."""
        unit = self.used(name, kind)
        if unit is not None and unit.is_enabled:
            return None
        removed = "the unit was removed; restart a process that has it to register it again"
        return self.catalogue.problem(name, kind) or removed

    def used(self, name: str, kind: UnitKind) -> PolicyUnit | None:
        """The unit that a policy means by a name."""
        return self._by_use.get((name, kind))


def installed_units(catalogue: Catalogue) -> list[StoredUnit]:
    """The user units of the catalogue, as they are registered."""
    return [
        StoredUnit(
            id=unit.id,
            name=unit.name,
            kind=unit.kind,
            description=unit.description,
            is_enabled=unit.is_enabled,
            parameters={parameter.name: parameter.regex or "" for parameter in unit.parameters},
        )
        for entry in catalogue
        if _is_registered(entry)
        for unit in _kinds(entry)
    ]


def _is_registered(entry: CatalogueEntry) -> bool:
    """Of a user unit that is broken nothing is known but its problem."""
    return not entry.unit.is_internal() and entry.problem is None


def _uninstalled(unit: StoredUnit) -> PolicyUnit:
    return PolicyUnit(
        id=unit.id,
        name=unit.name,
        kind=UnitKind(unit.kind),
        description=unit.description,
        is_internal=False,
        is_enabled=False,
        parameters=tuple(
            Parameter(name=name, type="text", default="", regex=regex or None)
            for name, regex in sorted(unit.parameters.items())
        ),
    )


def _kinds(entry: CatalogueEntry) -> Iterator[PolicyUnit]:
    for kind in sorted(entry.kinds):
        yield PolicyUnit(
            id=entry.id_as(kind),
            name=entry.name,
            kind=kind,
            description=entry.description,
            is_internal=entry.unit.is_internal(),
            is_enabled=entry.is_enabled,
            parameters=entry.parameters,
        )
