"""What happened in the last five minutes, for the worker's report.

Events are counted in steps of ten seconds, durations by their length: an event costs a lookup and
an addition, and nothing is kept of it but a number.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from scheduler_worker.model.spreads import Spread, bucket_of
from scheduler_worker.model.worker_reports import Lately, LockTimes, Trouble
from scheduler_worker.monitoring.health import Load
from scheduler_worker.monitoring.metrics import NOT_SERVED, Metrics
from scheduler_worker.monitoring.series import OTHER
from scheduler_worker.observer import Outcome

_STEP_S = 10.0
_STEPS = 30
_MAX_KEYS = 10_000
_DROPPED = {
    "expired": Trouble.EXPIRED,
    "dead-lettered": Trouble.DEAD_LETTERED,
    "discarded": Trouble.DISCARDED,
    "unroutable": Trouble.UNROUTABLE,
    "refused": Trouble.REFUSED,
}
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
        found: Counter[Key] = Counter()
        with self._guard:
            for number, step in self._steps:
                if number > oldest:
                    found.update(step)
        return found

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
            _spread(counts, each, "") for each in ("placed", "refused", "failed")
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
            scope: LockTimes(_spread(found, "wait", scope), _spread(found, "hold", scope))
            for scope, found in by_scope.items()
        }

    # Events

    def _note(self, trouble: str, count: int = 1) -> None:
        self._window.add(("error", trouble, 0), count)

    def decided(self, outcome: Outcome) -> None:
        super().decided(outcome)
        result = _RESULTS.get(outcome.result, "failed")
        self._window.add((result, "", bucket_of(outcome.duration_s)))

    def request_served(self, method: str, result: str, duration_s: float) -> None:
        super().request_served(method, result, duration_s)
        if result not in {"ok", "NoValidHost"}:
            self._note(f"{OTHER if result in NOT_SERVED else method}: {result}")

    def lock_granted(self, scope: str, waited_s: float) -> None:
        super().lock_granted(scope, waited_s)
        self._window.add(("wait", scope, bucket_of(waited_s)))

    def lock_ended(self, scope: str, held_s: float) -> None:
        super().lock_ended(scope, held_s)
        self._window.add(("hold", scope, bucket_of(held_s)))

    def lock_timed_out(self, scope: str) -> None:
        super().lock_timed_out(scope)
        self._note(Trouble.LOCK_TIMED_OUT)

    def lease_expired(self, scope: str) -> None:
        super().lease_expired(scope)
        self._note(Trouble.LEASE_EXPIRED)

    def commit_fenced(self, scope: str) -> None:
        super().commit_fenced(scope)
        self._note(Trouble.COMMIT_FENCED)

    def state_failed(self) -> None:
        super().state_failed()
        self._note(Trouble.STATE_FAILED)

    def message_dropped(self, why: str) -> None:
        super().message_dropped(why)
        self._note(_DROPPED.get(why, f"messages {why}"))

    def bus_lost(self) -> None:
        super().bus_lost()
        self._note(Trouble.BUS_LOST)

    def feed_failed(self, part: str) -> None:
        super().feed_failed(part)
        self._note(Trouble.FEED_FAILED)

    def providers_failed(self, what: str) -> None:
        super().providers_failed(what)
        self._note(Trouble.PROVIDERS_FAILED)

    def tuning_failed(self, scope: str) -> None:
        super().tuning_failed(scope)
        self._note(Trouble.TUNING_FAILED)

    def balancing_failed(self, scope: str) -> None:
        super().balancing_failed(scope)
        self._note(Trouble.BALANCING_FAILED)

    def migration_target_failed(self, scope: str) -> None:
        super().migration_target_failed(scope)
        self._note(Trouble.TARGET_FAILED)

    def external_called(self, unit: str, result: str, duration_s: float) -> None:
        super().external_called(unit, result, duration_s)
        if result != "ok":
            self._note(Trouble.UNIT_FAILED)

    def decisions_kept(self, result: str, count: int) -> None:
        super().decisions_kept(result, count)
        if result == "dropped":
            self._note(Trouble.RECORDS_DROPPED, count)


def _spread(counts: Counter[Key], kind: str, label: str) -> Spread:
    return Spread(
        {
            bucket: count
            for (its_kind, its_label, bucket), count in counts.items()
            if (its_kind, its_label) == (kind, label)
        }
    )
