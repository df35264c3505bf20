"""Raw weights to the range 0..1, so that weighers of different units can be added."""

from __future__ import annotations

import numpy as np

from scheduler_worker.model.hosts import Values


def clamp(values: Values, minval: float | None = None, maxval: float | None = None) -> Values:
    """Raw values, cut to a weigher's declared bounds."""
    if minval is not None:
        values = np.maximum(values, minval)
    return values if maxval is None else np.minimum(values, maxval)


def lowest(values: Values, minval: float | None = None) -> float:
    """From which bound values are spread: the declared one, else the smallest at hand."""
    return float(np.minimum.reduce(values)) if minval is None else minval


def highest(values: Values, maxval: float | None = None) -> float:
    """Up to which bound values are spread: the declared one, else the largest at hand."""
    return float(np.maximum.reduce(values)) if maxval is None else maxval


def extremes(
    values: Values, minval: float | None = None, maxval: float | None = None
) -> tuple[float, float]:
    """Between which bounds values are spread."""
    return lowest(values, minval), highest(values, maxval)


def spread(values: Values, low: float, high: float, out: Values | None = None) -> Values:
    """``(x - low) / (high - low)``, which must differ; the answer goes to ``out``."""
    found: Values = np.divide(values - low if low else values, high - low, out=out)
    return found


def normalize(values: Values, minval: float | None = None, maxval: float | None = None) -> Values:
    """``(x - lo) / (hi - lo)`` with ``lo`` and ``hi`` the declared bounds, else the extremes.

    All are 0 where ``lo`` equals ``hi``; with ``minval`` 0, equal positive values all become 1.
    """
    if len(values) == 0:
        return np.zeros(0)
    low, high = extremes(values, minval, maxval)
    return np.zeros(len(values)) if low == high else spread(values, low, high)
