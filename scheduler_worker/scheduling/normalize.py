"""Normalises raw scores to 0..1, so that weighers in different units can be added."""

import math

import numpy as np

from scheduler_worker.model.hosts import Values


def clamp(values: Values, minval: float | None = None, maxval: float | None = None) -> Values:
    """Raw scores, clamped to a weigher's declared bounds; a non-finite number counts as 0."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        values = np.where(np.isfinite(values), values, 0.0)
    if minval is not None:
        values = np.maximum(values, minval)
    return values if maxval is None else np.minimum(values, maxval)


def clamp_one(value: float, minval: float | None = None, maxval: float | None = None) -> float:
    """:func:`clamp` for the score of one host."""
    value = value if math.isfinite(value) else 0.0
    value = value if minval is None else max(value, minval)
    return value if maxval is None else min(value, maxval)


def lowest(values: Values, minval: float | None = None) -> float:
    """The lower end of the normalisation: the declared bound, else the smallest value but NaN."""
    return float(np.fmin.reduce(values)) if minval is None else minval


def highest(values: Values, maxval: float | None = None) -> float:
    """The upper end of the normalisation: the declared bound, else the largest value but NaN."""
    return float(np.fmax.reduce(values)) if maxval is None else maxval


def extremes(
    values: Values, minval: float | None = None, maxval: float | None = None
) -> tuple[float, float]:
    """Both ends of the normalisation."""
    return lowest(values, minval), highest(values, maxval)


def spread(values: Values, low: float, high: float, out: Values | None = None) -> Values:
    """``(x - low) / (high - low)``, written to ``out`` if given; the ends must differ."""
    scaled: Values = np.divide(values - low if low else values, high - low, out=out)
    return scaled


def normalize(values: Values, minval: float | None = None, maxval: float | None = None) -> Values:
    """``(x - lo) / (hi - lo)`` with ``lo`` and ``hi`` the declared bounds, else the extremes.

    All are 0 where ``lo`` equals ``hi``; with ``minval`` 0, equal positive values all become 1.
    """
    if len(values) == 0:
        return np.zeros(0)
    low, high = extremes(values, minval, maxval)
    return np.zeros(len(values)) if low == high else spread(values, low, high)
