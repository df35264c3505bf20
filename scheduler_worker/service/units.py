"""From the names in a configuration to filters and weighers.

A name is a registered one (an entry point), a ``module.Class`` path, or the name of a group: all
registered ones, under our spelling or Nova's.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

from scheduler_worker.errors import ConfigError
from scheduler_worker.scheduling.options import (
    ALL_FILTERS,
    ALL_WEIGHERS,
    NOVA_ALL_FILTERS,
    NOVA_ALL_WEIGHERS,
    Options,
)
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.plugin import Filter, Unit, Weigher

AnyUnit = TypeVar("AnyUnit", bound=Unit)
Registered = Mapping[str, type]
"""Unit name -> class, as the installed packages declare them."""


def build_pipeline(options: Options, filters: Registered, weighers: Registered) -> Pipeline:
    """The pipeline that the options name.

    Raises:
        ConfigError: a name is unknown or is not a filter or weigher; all bad ones are listed.
    """
    available = _classes(
        "[filter_scheduler] available_filters",
        options.available_filters,
        filters,
        (ALL_FILTERS, NOVA_ALL_FILTERS),
        Filter,
    )
    weighing = _classes(
        "[filter_scheduler] weight_classes",
        options.weight_classes,
        weighers,
        (ALL_WEIGHERS, NOVA_ALL_WEIGHERS),
        Weigher,
    )
    return Pipeline(
        [each(options) for each in _enabled(options.enabled_filters, available)],
        [each(options) for each in weighing.values()],
        options,
    )


def _enabled(names: Sequence[str], available: Mapping[str, type[Filter]]) -> list[type[Filter]]:
    unknown = [name for name in names if name not in available]
    if unknown:
        raise _unknown("[filter_scheduler] enabled_filters", unknown, available)
    return [available[name] for name in names]


def _classes(
    option: str,
    names: Sequence[str],
    registered: Registered,
    groups: tuple[str, str],
    kind: type[AnyUnit],
) -> dict[str, type[AnyUnit]]:
    found: dict[str, type[AnyUnit]] = {}
    unknown: list[str] = []
    for name in names:
        if name in groups:
            found.update({key: _checked(option, registered[key], kind) for key in registered})
        elif name in registered:
            found[name] = _checked(option, registered[name], kind)
        elif (imported := _imported(name)) is not None:
            found[imported.__name__] = _checked(option, imported, kind)
        else:
            unknown.append(name)
    if unknown:
        raise _unknown(option, unknown, registered)
    return found


def _imported(path: str) -> type | None:
    module, _, name = path.rpartition(".")
    if not module:
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) else None


def _checked(option: str, found: type, kind: type[AnyUnit]) -> type[AnyUnit]:
    if not issubclass(found, kind):
        raise ConfigError(
            f"{option}: {found.__module__}.{found.__name__} is not a {kind.__name__}; "
            f"derive it from scheduler_worker.scheduling.plugin.{kind.__name__}"
        )
    return found


def _unknown(option: str, names: Sequence[str], known: Mapping[str, type]) -> ConfigError:
    hints = []
    for name in names:
        near = difflib.get_close_matches(name, known, n=1)
        hints.append(f"{name} (did you mean {near[0]}?)" if near else name)
    return ConfigError(
        f"{option}: nothing is known under {', '.join(hints)}; known are {', '.join(sorted(known))}"
        " and importable module.Class paths"
    )
