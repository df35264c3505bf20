"""Lists of ``name=ratio``, as two weighers take them from the configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable


def ratios(items: Iterable[str]) -> dict[str, float]:
    """Name -> ratio, split at the first ``=``; an item without a name or a number is dropped.

    A ratio that is not finite would make all weights the same nothing, so it is no number here.
    """
    found: dict[str, float] = {}
    for item in items:
        name, _, text = item.partition("=")
        try:
            ratio = float(text)
        except ValueError:
            continue
        if name and math.isfinite(ratio):
            found[name] = ratio
    return found
