"""Counters and histograms that cost a fraction of a microsecond, exported by prometheus_client.

The library's own take several times as long, for features that are not needed here.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

OTHER = "other"
"""The label of everything beyond the limit of labels."""

Labels = tuple[str, ...]


class Counts(Collector):
    """A counter for each combination of labels; beyond ``limit`` of them all labels are ``other``.

    ``name`` ends in ``_total``.
    """

    def __init__(self, name: str, help_text: str, labels: Labels = (), *, limit: int = 100) -> None:
        self._family = name, help_text, labels
        self._limit = limit
        self._guard = threading.Lock()
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, labels: Labels = (), count: float = 1.0) -> None:
        """Count an event."""
        with self._guard:
            values = self._values
            if labels not in values and len(values) >= self._limit:
                labels = (OTHER,) * len(labels)
            values[labels] = values.get(labels, 0.0) + count

    def describe(self) -> Iterable[Metric]:
        name, help_text, labels = self._family
        return [CounterMetricFamily(name, help_text, labels=labels)]

    def collect(self) -> Iterable[Metric]:
        name, help_text, labels = self._family
        family = CounterMetricFamily(name, help_text, labels=labels)
        with self._guard:
            values = list(self._values.items())
        for key, value in values:
            family.add_metric(key, value)
        return [family]


class Durations(Collector):
    """A histogram of seconds for each combination of labels, bounded as :class:`Counts` is."""

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Labels = (),
        *,
        bounds_s: Sequence[float],
        limit: int = 100,
    ) -> None:
        self._family = name, help_text, labels
        self._bounds_s = tuple(bounds_s)
        self._limit = limit
        self._guard = threading.Lock()
        self._values: dict[Labels, list[float]] = {}
        """The count of each bucket, the count above all of them, and the sum."""
        if not labels:
            self._values[()] = self._zeros()

    def observe(self, seconds: float, labels: Labels = ()) -> None:
        """Record a duration."""
        bucket = bisect_left(self._bounds_s, seconds)
        with self._guard:
            found = self._values.get(labels) or self._added(labels)
            found[bucket] += 1
            found[-1] += seconds

    def _added(self, labels: Labels) -> list[float]:
        if len(self._values) >= self._limit:
            labels = (OTHER,) * len(labels)
        return self._values.setdefault(labels, self._zeros())

    def _zeros(self) -> list[float]:
        return [0.0] * (len(self._bounds_s) + 2)

    def describe(self) -> Iterable[Metric]:
        name, help_text, labels = self._family
        return [HistogramMetricFamily(name, help_text, labels=labels)]

    def collect(self) -> Iterable[Metric]:
        name, help_text, labels = self._family
        family = HistogramMetricFamily(name, help_text, labels=labels)
        with self._guard:
            values = [(key, list(found)) for key, found in self._values.items()]
        bounds = [*(str(float(each)) for each in self._bounds_s), "+Inf"]
        for key, (*counts, total_s) in values:
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric(key, buckets, sum_value=total_s)
        return [family]
