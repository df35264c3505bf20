"""Loads the units named in the configuration into the catalogue and the policy ``nova``.

A name is an entry point, a ``module.Class`` path, or a group that means all entry points. A path of
Nova's names what has the same name here: its own classes could not be used.
"""

import difflib
import importlib
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import structs

from scheduler_worker.components import Periodic
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.scheduling.catalogue import Catalogue, CatalogueEntry, UnitKind, entry
from scheduler_worker.scheduling.compiler import MANDATORY, compile_policy, nova_policy
from scheduler_worker.scheduling.external.contract import PluginClass, PluginFile
from scheduler_worker.scheduling.external.units import unit_class
from scheduler_worker.scheduling.options import (
    ALL_FILTERS,
    ALL_WEIGHERS,
    Options,
)
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.plugin import Filter, Unit, Weigher
from scheduler_worker.scheduling.selectors import (
    BasicWeighting,
    NormalizedSum,
    RankSelector,
    RankSum,
    WeightedSum,
)

AnyUnit = TypeVar("AnyUnit", bound=Unit)
Registered = Mapping[str, type]
"""Unit name -> class, as the installed packages declare them."""

_NOVA = "nova.scheduler."

SELECTORS = (NormalizedSum, WeightedSum, RankSum, BasicWeighting, RankSelector)


def load_units(
    options: Options, filters: Registered, weighers: Registered, *policy_units: Registered
) -> tuple[Catalogue, ClusterPolicy]:
    """The catalogue of all available units, and the policy ``nova``.

    ``policy_units`` are units that only policies may name, never the options of ``nova``.

    Raises ConfigError: names are unknown or no filter or weigher; the message lists all of them.
    """
    problems: list[str] = []
    available = _classes(
        "[filter_scheduler] available_filters",
        options.available_filters,
        filters,
        ALL_FILTERS,
        Filter,
        problems,
    )
    weighing = _classes(
        "[filter_scheduler] weight_classes",
        options.weight_classes,
        weighers,
        ALL_WEIGHERS,
        Weigher,
        problems,
    )
    enabled = options.enabled_filters
    if available and (unknown := [name for name in enabled if name not in available]):
        problems.append(_unknown("[filter_scheduler] enabled_filters", unknown, available))
    if problems:
        raise ConfigError("; ".join(problems))
    catalogue = unit_catalogue({**filters, **available}, {**weighers, **weighing}, *policy_units)
    return catalogue, nova_policy(enabled, tuple(weighing), options, catalogue)


def nova_pipeline(options: Options, filters: Registered, weighers: Registered) -> Pipeline:
    """The pipeline of the policy ``nova``, compiled from the options.

    Raises:
        ConfigError: as :func:`load_units`.
        ClusterPolicyError: an option has a value that a unit refuses.
    """
    catalogue, nova = load_units(options, filters, weighers)
    return compile_policy(nova, catalogue, options)


def unit_catalogue(*units: Registered) -> Catalogue:
    """The catalogue of these units, the selectors, and the units that every policy has.

    Each mapping has names of its own: the same name may be a filter in one, a weight in another.

    Raises ConfigError: a class is not a unit, or declares invalid parameters.
    """
    selectors = {unit.__name__: unit for unit in SELECTORS}
    pairs = dict.fromkeys(item for kind in (*units, selectors, MANDATORY) for item in kind.items())
    try:
        return Catalogue(
            entry(name, unit, is_mandatory=name in MANDATORY and MANDATORY[name] is unit)
            for name, unit in pairs
        )
    except TypeError as error:
        raise ConfigError(f"A unit cannot be used: {error}") from None


def _classes(
    option: str,
    names: Sequence[str],
    registered: Registered,
    everything: str,
    kind: type[AnyUnit],
    problems: list[str],
) -> dict[str, type[AnyUnit]]:
    """Name -> class, for the valid names; adds what is wrong with the others to ``problems``."""
    classes: dict[str, type] = {}
    unknown: list[str] = []
    groups = {everything, everything.rpartition(".")[2]}
    for path in names:
        name = _name(path)
        if name in groups:
            classes.update(registered)
        elif name in registered:
            classes[name] = registered[name]
        else:
            try:
                imported = _imported(path)
            except ConfigError as error:
                problems.append(f"{option}: {error}")
                continue
            if imported is None:
                unknown.append(path)
            else:
                classes[imported.__name__] = imported
    if unknown:
        problems.append(_unknown(option, unknown, (*registered, everything)))
    problems += [
        f"{option}: {unit.__module__}.{unit.__name__} is not a {kind.__name__}; "
        f"derive it from scheduler_worker.scheduling.plugin.{kind.__name__}"
        for unit in classes.values()
        if not issubclass(unit, kind)
    ]
    return {name: unit for name, unit in classes.items() if issubclass(unit, kind)}


def _name(path: str) -> str:
    """The name that a path of Nova's stands for, which is at its end; other paths as they are."""
    return path.rpartition(".")[2] if path.startswith(_NOVA) else path


def _imported(path: str) -> type | None:
    """The class at a path; None: there is no such module. Raises ConfigError where it is broken."""
    module, _, name = path.rpartition(".")
    if not module:
        return None
    try:
        imported = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            return None
        raise ConfigError(f"{path} cannot be loaded: {why_not_loaded(error)}") from error
    if not isinstance(imported, type):
        raise ConfigError(f"{path} cannot be loaded: {module} has no class {name}")
    return imported


def why_not_loaded(error: BaseException) -> str:
    """What was raised while a module was imported, and on which line of which file."""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return what  # it names file and line
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.line]
    where = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    return f"{where}{what}"


def _unknown(option: str, names: Sequence[str], known: Collection[str]) -> str:
    hints = []
    for name in names:
        near = difflib.get_close_matches(_name(name), known, n=1)
        hints.append(f"{name} (did you mean {near[0]}?)" if near else name)
    return (
        f"{option}: nothing is known under {', '.join(hints)}; known are {', '.join(sorted(known))}"
        " and importable module.Class paths"
    )


WATCH_S = 5.0
"""How often files are checked for changes."""


def watch(has_changed: Callable[[], bool], read_again: Callable[[], object]) -> Periodic:
    """A thread, not started, that has files read again where one is new, changed or gone."""

    def look() -> float:
        if has_changed():
            read_again()
        return WATCH_S

    return Periodic("unit-files", look, WATCH_S)


def with_external(catalogue: Catalogue, files: Iterable[PluginFile]) -> Catalogue:
    """The catalogue with the units of files. A name that is taken stays with who has it.

    Units that cannot be used are there too, and say why.
    """
    return Catalogue([*catalogue, *_entries(catalogue, files)])


def _entries(catalogue: Catalogue, files: Iterable[PluginFile]) -> Iterator[CatalogueEntry]:
    taken: dict[tuple[UnitKind, str], str] = {}
    for file in files:
        problems = [file.problem] if file.problem else []
        for plugin in file.classes:
            if catalogue.find(plugin.name, plugin.kind) is not None:
                problems.append(f"the worker has a {plugin.kind} {plugin.name} already; rename it")
            elif owner := taken.get((plugin.kind, plugin.name)):
                problems.append(f"{owner} has a {plugin.kind} {plugin.name} already; rename one")
            else:
                taken[plugin.kind, plugin.name] = file.name
                try:
                    new_entry = entry(plugin.name, unit_class(plugin))
                except (TypeError, ValueError) as error:
                    problems.append(f"a parameter of {plugin.name} is invalid: {error}")
                else:
                    yield new_entry
        if problems:
            yield _broken(file.name, "; ".join(problems))


def _broken(file: str, problem: str) -> CatalogueEntry:
    """Stands for a file under its own name, which no class can have."""
    description = f"{file} cannot be used: {problem}"
    plugin = PluginClass(file=file, name=file, kind=UnitKind.FILTER, description=description)
    return structs.replace(entry(file, unit_class(plugin)), is_enabled=False, problem=problem)
