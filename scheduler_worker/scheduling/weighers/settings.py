"""Parses lists of ``name=ratio``, which two weighers and a filter have as a parameter."""

from __future__ import annotations

import math
from collections.abc import Iterable

Ratios = tuple[tuple[str, float], ...]


def ratios(items: Iterable[str]) -> Ratios:
    """Splits items at the first ``=``; an item without a name or a finite number is dropped.

    An infinite or NaN ratio would make every weight infinite or NaN, and so all hosts equal.
    """
    found = []
    for item in items:
        name, _, text = item.partition("=")
        try:
            ratio = float(text)
        except ValueError:
            continue
        if name and math.isfinite(ratio):
            found.append((name, ratio))
    return tuple(found)
