"""Counters and histograms that cost a fraction of a microsecond, exported by prometheus_client.

The library's own take several times as long, for features that are not needed here.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from copy import copy
from itertools import accumulate
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler_worker.events import OTHER, Duration, Event, Level

Labels = tuple[str, ...]


class _Bounded(Collector):
    """One family, with a value for each combination of labels.

    Beyond the event's ``limit`` of them all labels are ``other``.
    """

    family: Callable[..., Any]
    """Of the library."""

    def __init__(self, event: Event) -> None:
        self._event = event
        self._guard = threading.Lock()
        self._values: dict[Labels, Any] = {} if event.labels else {(): self._zero()}

    def _known(self, labels: Labels) -> Labels:
        if labels not in self._values and len(self._values) >= self._event.limit:
            return (OTHER,) * len(labels)
        return labels

    def _zero(self) -> Any:
        return 0.0

    def describe(self) -> Iterable[Metric]:
        event = self._event
        return [self.family(f"scheduler_{event.name}", event.text, labels=event.labels)]

    def collect(self) -> Iterable[Metric]:
        [family] = self.describe()
        with self._guard:
            values = sorted((labels, copy(value)) for labels, value in self._values.items())
        for labels, value in values:
            self._add(family, labels, value)
        return [family]

    def _add(self, family: Any, labels: Labels, value: Any) -> None:
        family.add_metric(labels, value)


class _Counts(_Bounded):
    """A counter."""

    family = CounterMetricFamily

    def add(self, labels: Labels, count: float) -> None:
        with self._guard:
            labels = self._known(labels)
            self._values[labels] = self._values.get(labels, 0.0) + count


class _Levels(_Bounded):
    """A gauge."""

    family = GaugeMetricFamily

    def set(self, value: float, labels: Labels) -> None:
        with self._guard:
            self._values[self._known(labels)] = value


class _Durations(_Bounded):
    """A histogram: the count of each bucket, the count above all of them, and the sum."""

    family = HistogramMetricFamily

    def __init__(self, event: Duration) -> None:
        self._bounds_s = event.bounds_s
        super().__init__(event)

    def observe(self, seconds: float, labels: Labels) -> None:
        bucket = bisect_left(self._bounds_s, seconds)
        with self._guard:
            found = self._values.get(labels)
            if found is None:
                found = self._values.setdefault(self._known(labels), self._zero())
            found[bucket] += 1
            found[-1] += seconds

    def _zero(self) -> list[float]:
        return [0.0] * (len(self._bounds_s) + 2)

    def _add(self, family: Any, labels: Labels, value: Any) -> None:
        bounds = [*(str(float(each)) for each in self._bounds_s), "+Inf"]
        *counts, total_s = value
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        family.add_metric(labels, buckets, sum_value=total_s)


def series_of(event: Event) -> Collector:
    """The series of an event's metric."""
    if isinstance(event, Duration):
        return _Durations(event)
    return _Levels(event) if isinstance(event, Level) else _Counts(event)
