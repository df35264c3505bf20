"""Lists of ``name=ratio`` items, which two of Nova's options are, and parameters of units."""

import math
from collections.abc import Iterable

Ratios = tuple[tuple[str, float], ...]


def ratio(item: str) -> tuple[str, float] | None:
    """Splits an item at the first ``=``; None: it has no name, or its ratio is no finite number.

    An infinite or NaN ratio would make every weight infinite or NaN, and so all hosts equal.
    """
    name, _, text = item.partition("=")
    try:
        number = float(text)
    except ValueError:
        return None
    return (name, number) if name and math.isfinite(number) else None


def ratios(items: Iterable[str]) -> Ratios:
    """Splits all items. Raises ValueError for one that is no ``name=ratio``."""
    pairs = []
    for item in items:
        if (pair := ratio(item)) is None:
            raise ValueError(f"{item!r} is no name=number")
        pairs.append(pair)
    return tuple(pairs)
