"""What happened in the last five minutes, for the worker's report.

Events are counted in steps of ten seconds, durations by their length: an event costs a lookup and
an addition, and nothing is kept of it but a number.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from scheduler_worker.events import BUS_LOST, LOCK_HOLD, LOCK_WAIT, REQUESTS, Count, Duration, Event
from scheduler_worker.model.worker_reports import Lately, LockTimes, Spread, bucket_of
from scheduler_worker.monitoring.health import Load
from scheduler_worker.monitoring.metrics import Metrics
from scheduler_worker.observer import Outcome

_STEP_S = 10.0
_STEPS = 30
_MAX_KEYS = 10_000
_TIMED: Mapping[Event, str] = {LOCK_WAIT: "wait", LOCK_HOLD: "hold"}
_RESULTS = {"placed": "placed", "NoValidHost": "refused"}

Key = tuple[str, str, int]
"""A kind of event, a label of it, and for durations their bucket."""


class Window:
    """Counts of events in the last 290 to 300 seconds."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._began_s = monotonic_s()
        self._guard = threading.Lock()
        self._steps: deque[tuple[int, dict[Key, int]]] = deque(maxlen=_STEPS)
        """Those with events, the last one last: its number since the clock's zero, and counts."""
        self._current: dict[Key, int] = {}
        self._ends_s = float("-inf")
        """When the current step does."""

    def add(self, key: Key, count: int = 1) -> None:
        """Count an event; beyond 10,000 different ones in ten seconds it is left out."""
        with self._guard:
            now_s = self._monotonic_s()
            if now_s >= self._ends_s:
                self._begin_step(now_s)
            current = self._current
            if key in current:
                current[key] += count
            elif len(current) < _MAX_KEYS:
                current[key] = count

    def _begin_step(self, now_s: float) -> None:
        number = int(now_s // _STEP_S)
        self._current = {}
        self._ends_s = (number + 1) * _STEP_S
        self._steps.append((number, self._current))

    def counts(self) -> Counter[Key]:
        """How often each happened."""
        oldest = int(self._monotonic_s() // _STEP_S) - _STEPS
        counts: Counter[Key] = Counter()
        with self._guard:
            for number, step in self._steps:
                if number > oldest:
                    counts.update(step)
        return counts

    @property
    def over_s(self) -> float:
        """For how many seconds it counts, up to now."""
        now_s = self._monotonic_s()
        return min(now_s - self._began_s, (_STEPS - 1) * _STEP_S + now_s % _STEP_S)


class Recent(Metrics):
    """Metrics that also know what happened lately."""

    def __init__(
        self, load: Callable[[], Load], monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(load)
        self._window = Window(monotonic_s)

    def lately(self) -> Lately:
        """What happened in the last minutes."""
        counts = self._window.counts()
        placed, refused, failed = (
            _spread(counts, result, "") for result in ("placed", "refused", "failed")
        )
        return Lately(
            over_s=round(self._window.over_s, 1),
            placed=placed.total,
            refused=refused.total,
            failed=failed.total,
            durations=Spread.summed((placed, refused, failed)),
            errors={label: count for (kind, label, _), count in counts.items() if kind == "error"},
        )

    def lock_times(self) -> dict[str, LockTimes]:
        """For each cluster whose lock was used in these minutes."""
        counts = self._window.counts()
        by_scope: dict[str, Counter[Key]] = {}
        for key, count in counts.items():
            if key[0] in {"wait", "hold"}:
                by_scope.setdefault(key[1], Counter())[key] = count
        return {
            scope: LockTimes(_spread(events, "wait", scope), _spread(events, "hold", scope))
            for scope, events in by_scope.items()
        }

    # Events

    def count(self, event: Count, *labels: str, by: float = 1) -> None:
        super().count(event, *labels, by=by)
        if (trouble := event.trouble(labels)) is not None:
            self._window.add(("error", trouble.text, 0), int(by))
        elif event is REQUESTS and labels[1] not in {"ok", "NoValidHost"}:
            self._window.add(("error", ": ".join(labels), 0))

    def time(self, event: Duration, seconds: float, *labels: str) -> None:
        super().time(event, seconds, *labels)
        if (kind := _TIMED.get(event)) is not None:
            self._window.add((kind, labels[0], bucket_of(seconds)))

    def decided(self, outcome: Outcome) -> None:
        super().decided(outcome)
        result = _RESULTS.get(outcome.result, "failed")
        self._window.add((result, "", bucket_of(outcome.duration_s)))

    def bus_lost(self) -> None:
        super().bus_lost()
        self._window.add(("error", BUS_LOST.text, 0))


def _spread(counts: Counter[Key], kind: str, label: str) -> Spread:
    return Spread(
        {
            bucket: count
            for (its_kind, its_label, bucket), count in counts.items()
            if (its_kind, its_label) == (kind, label)
        }
    )
