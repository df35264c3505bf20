"""Observers that remember what they were told."""

from collections import Counter
from typing import Any, ClassVar

from scheduler_worker import events
from scheduler_worker.events import Count, Duration, Event, Level
from scheduler_worker.observer import Observer, Outcome


class CountingObserver(Observer):
    """Counts events, of durations how often they were timed, and the last levels."""

    def __init__(self) -> None:
        self._counts: dict[Event, Counter[Any]] = {}

    def count(self, event: Count, *labels: str, by: float = 1) -> None:
        self.of(event)[_key(labels)] += by  # type: ignore[assignment]

    def time(self, event: Duration, seconds: float, *labels: str) -> None:
        assert seconds >= 0
        self.of(event)[_key(labels)] += 1

    def level(self, event: Level, value: float, *labels: str) -> None:
        self.of(event)[_key(labels)] = value  # type: ignore[assignment]

    def of(self, event: Event) -> Counter[Any]:
        """How often an event happened, by its label, or by all of them."""
        return self._counts.setdefault(event, Counter())


def _key(labels: tuple[str, ...]) -> Any:
    return labels[0] if len(labels) == 1 else labels


class Recorder(CountingObserver):
    """Records outcomes, and in their order the events of deciding as (name, label, number)."""

    _NAMES: ClassVar[dict[Event, str]] = {
        events.LOCK_WAIT: "granted",
        events.LOCK_HOLD: "ended",
        events.LEASES_EXPIRED: "hold expired",
        events.LOCK_TIMEOUTS: "timed out",
        events.COMMITS_FENCED: "fenced",
        events.COMMIT_CONFLICTS: "conflicted",
        events.VERIFIED: "verified",
        events.CANDIDATES: "asked",
    }
    _NUMBERED: ClassVar[dict[Event, tuple[str, ...]]] = {
        events.RESERVATIONS_EXPIRED: ("expired",),
        events.RESERVATIONS_ENDED: (),
        events.CLAIM_CONSUMERS: ("posted",),
        events.CLAIMS: ("claimed",),
    }

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[Outcome] = []
        self.events: list[tuple[Any, ...]] = []

    def decided(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def count(self, event: Count, *labels: str, by: float = 1) -> None:
        super().count(event, *labels, by=by)
        if event in self._NUMBERED:
            self.events.append((*self._NUMBERED[event], *labels, by))
        elif event in self._NAMES:
            self.events.append((self._NAMES[event], *labels))

    def time(self, event: Duration, seconds: float, *labels: str) -> None:
        super().time(event, seconds, *labels)
        if event in self._NAMES:
            self.events.append((self._NAMES[event], *labels))
