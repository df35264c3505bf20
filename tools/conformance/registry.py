"""The kinds of cases: every module of this package whose name begins with ``kinds_``."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from conformance.reading import Document, Malformed, Skipped
from scheduler_worker.errors import SchedulerWorkerError

_PREFIX = "kinds_"


class Kind(NamedTuple):
    """A kind of cases, under the name that the report uses."""

    name: str
    recognise: Callable[[Any], bool]
    run: Callable[[Any], Iterator[str]]


class Outcome(NamedTuple):
    """How a case came out."""

    kind: str
    differences: list[str]
    raised: bool
    """Whether an exception was recorded; without differences we answer sanely there."""
    skipped: str | None = None
    """Why the case was not run."""


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds, by name."""
    found = pkgutil.iter_modules([str(Path(__file__).parent)])
    names = sorted(each.name for each in found if each.name.startswith(_PREFIX))
    modules = {name: importlib.import_module(f"conformance.{name}") for name in names}
    return tuple(
        Kind(name.removeprefix(_PREFIX).replace("_", "-"), module.recognise, module.run)
        for name, module in modules.items()
    )


def run(document: Document) -> Outcome:
    """Run a case.

    Raises:
        Malformed: no kind recognises it, or a part of it is missing or has another type.
    """
    kind = kind_of(document)
    try:
        differences = list(kind.run(document.value))
    except (msgspec.ValidationError, Malformed) as error:
        raise Malformed(f"{document.place}: malformed {kind.name} case: {error}") from None
    except Skipped as why:
        return Outcome(kind.name, [], raised=False, skipped=str(why))
    except SchedulerWorkerError as error:
        differences = [f"is refused: {error}"]
    except Exception as error:  # one case must not hide the others
        differences = [f"raises {type(error).__name__}: {error}"]
    return Outcome(kind.name, differences, _has_raised(document.value))


def kind_of(document: Document) -> Kind:
    """The kind that recognises a case. Raises Malformed where none does."""
    for kind in kinds():
        if kind.recognise(document.value):
            return kind
    keys = ", ".join(document.value) if isinstance(document.value, dict) else "no object"
    known = ", ".join(kind.name for kind in kinds())
    raise Malformed(f"{document.place}: no kind of case looks so ({keys}); known are {known}")


def _has_raised(case: dict[str, Any]) -> bool:
    expected = case.get("expect")
    if "raises" in case or (isinstance(expected, dict) and "raises" in expected):
        return True
    cycles = case.get("expected")
    return isinstance(cycles, list) and any(
        isinstance(cycle, dict) and not cycle.get("policy_ok", True) for cycle in cycles
    )
