"""How raw weights are spread over 0 to 1."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from scheduler_worker.scheduling.scales import Ends, spread

EXACT = 1e-9


class Bounds(msgspec.Struct, frozen=True):
    """The bounds that a weigher declares."""

    minval: float | None = None
    maxval: float | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Raw values, bounds, and the normalised values."""

    values: list[float] = msgspec.field(name="list")
    kw: Bounds
    result: list[float]


def recognise(document: Any) -> bool:
    return isinstance(document, dict) and {"list", "kw"} <= document.keys()


def run(document: Any) -> Iterator[str]:
    case = msgspec.convert(document, Case)
    values, ends = np.array(case.values, "f8"), Ends(case.kw.minval, case.kw.maxval)
    if case.values:
        ends.find(values)
    is_constant = ends.low == ends.high
    found = np.zeros(len(values)) if is_constant else spread(values, ends.low, ends.high)
    if len(found) != len(case.result) or not np.allclose(found, case.result, rtol=0, atol=EXACT):
        yield f"{case.values} becomes {found.tolist()}; recorded is {case.result}"
