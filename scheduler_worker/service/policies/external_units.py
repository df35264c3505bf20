"""Units from files in the catalogue; those that cannot be used are there too, and say why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import structs

from scheduler_worker.components import Periodic
from scheduler_worker.scheduling.catalogue import Catalogue, CatalogueEntry, UnitKind, entry
from scheduler_worker.scheduling.external.contract import PluginClass, PluginFile
from scheduler_worker.scheduling.external.units import unit_class

WATCH_S = 5.0
"""How often it is looked whether files have changed."""


def watch(has_changed: Callable[[], bool], read_again: Callable[[], object]) -> Periodic:
    """A thread, not started, that has files read again where one is new, changed or gone."""

    def look() -> float:
        if has_changed():
            read_again()
        return WATCH_S

    return Periodic("unit-files", look, WATCH_S)


def with_external(catalogue: Catalogue, files: Iterable[PluginFile]) -> Catalogue:
    """The catalogue with the units of files. A name that is taken stays with who has it."""
    return Catalogue([*catalogue, *_entries(catalogue, files)])


def _entries(catalogue: Catalogue, files: Iterable[PluginFile]) -> Iterator[CatalogueEntry]:
    taken: dict[tuple[UnitKind, str], str] = {}
    for file in files:
        problems = [file.problem] if file.problem else []
        for each in file.classes:
            if catalogue.find(each.name, each.kind) is not None:
                problems.append(f"the worker has a {each.kind} {each.name} already; rename it")
            elif other := taken.get((each.kind, each.name)):
                problems.append(f"{other} has a {each.kind} {each.name} already; rename one")
            else:
                taken[each.kind, each.name] = file.name
                try:
                    found = entry(each.name, unit_class(each))
                except (TypeError, ValueError) as error:
                    problems.append(f"a parameter of {each.name} is invalid: {error}")
                else:
                    yield found
        if problems:
            yield _broken(file.name, "; ".join(problems))


def _broken(file: str, problem: str) -> CatalogueEntry:
    """Stands for a file under its own name, which no class can have."""
    description = f"{file} cannot be used: {problem}"
    unit = unit_class(
        PluginClass(file=file, name=file, kind=UnitKind.FILTER, description=description)
    )
    return structs.replace(entry(file, unit), is_enabled=False, problem=problem)
