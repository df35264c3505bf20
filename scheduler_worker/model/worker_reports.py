"""What a worker reports of itself for operators, every few seconds and bounded in size.

Workers of different versions read each other's reports: fields are only added, with defaults.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal

import msgspec

from scheduler_worker.model.host_records import HostCounts

_LEAST_S = 1e-4
_PER_DECADE = 10
_LAST = 7 * _PER_DECADE
_BOUNDS_S = tuple(_LEAST_S * 10 ** (bucket / _PER_DECADE) for bucket in range(_LAST))


bucket_of: Callable[[float], int] = partial(bisect_left, _BOUNDS_S)
"""Which count a duration, in seconds, belongs to."""


class Spread(msgspec.Struct, frozen=True):
    """Durations by length."""

    counts: Mapping[int, int] = {}
    """How many durations each bucket of :func:`bucket_of` has."""

    @property
    def total(self) -> int:
        """How many durations there are."""
        return sum(self.counts.values())

    def reached(self, share: float) -> float | None:
        """The seconds that this share of the durations does not exceed; None: there are none.

        A duration beyond 1000 s counts as 1000 s.
        """
        rank = math.ceil(share * self.total)
        so_far = 0
        for bucket, count in sorted(self.counts.items()):
            so_far += count
            if so_far >= rank:
                return float(f"{_LEAST_S * 10 ** (bucket / _PER_DECADE):.3g}")
        return None

    @classmethod
    def summed(cls, spreads: "Iterable[Spread]") -> "Spread":
        """All durations of several spreads."""
        counts: Counter[int] = Counter()
        for spread in spreads:
            counts.update(spread.counts)
        return cls(counts)


WorkerState = Literal["serving", "not ready", "draining", "drained", "dry run", "lost", "no report"]


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself."""

    name: str
    """``[DEFAULT] host``, unique among the workers of a topic."""
    version: str
    topic: str
    is_claiming: bool = False
    """Whether it claims in Placement."""
    is_feeding: bool = False
    """Whether its hosts come from Nova's databases."""
    is_dry_run: bool = False
    """Whether it decides on copies of requests, and answers none."""
    is_drained: bool = False
    """Whether it takes no more requests from the topic's queue, until it is resumed."""


class LockTimes(msgspec.Struct, frozen=True):
    """Waiting for a cluster's lock, and holding it."""

    wait: Spread = Spread()
    hold: Spread = Spread()


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in the last minutes."""

    over_s: float = 0.0
    """For how many seconds this counts, up to now."""
    placed: int = 0
    """Requests for destinations that got hosts."""
    refused: int = 0
    """Requests that no host could take."""
    failed: int = 0
    """Requests that ended in another error."""
    durations: Spread = Spread()
    """Of requests for destinations, from their beginning to their end."""
    errors: Mapping[str, int] = {}
    """The text of a trouble of ``events``, or a method with the class of its error -> how often.

    ``NoValidHost`` is none.
    """


class Holds(msgspec.Struct, frozen=True, kw_only=True):
    """What other workers do not have meanwhile: names of clusters, and the feed."""

    leases: tuple[str, ...] = ()
    feed: bool = False
    tuning: tuple[str, ...] = ()
    balancing: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Each in words, such as ``lease east``."""
        names = [f"lease {lease}" for lease in self.leases]
        names += ["feed"] if self.feed else []
        names += [f"tuning {cluster}" for cluster in self.tuning]
        return [*names, *(f"balancing {cluster}" for cluster in self.balancing)]


class ClusterLine(msgspec.Struct, frozen=True, kw_only=True):
    """The queue of a cluster, and its lock."""

    in_line: int = 0
    """Requests that wait in the queue or for the cluster's lock, or are being decided."""
    oldest_s: float = 0.0
    """For how long the first of them has waited."""
    waiting_for_pending: int = 0
    """Requests that wait for reserved resources to be released."""
    reservations: int = 0
    held_s: float | None = None
    """For how long the cluster's lock has been held; null: it is not, or by another worker."""


class ClusterReport(ClusterLine, frozen=True, kw_only=True):
    """A cluster as one worker sees it."""

    name: str
    times: LockTimes = LockTimes()


class PartReport(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a source of hosts, such as a cell."""

    lag_s: float | None = None
    """For how long not all of it has been known; None: it never was."""
    is_up: bool = True
    hosts: int = 0


class RequestsInHand(msgspec.Struct, frozen=True, kw_only=True):
    """The requests and records that a worker has, and its source of hosts."""

    running: int = 0
    """Requests that have a slot, or have yielded theirs."""
    waiting: int = 0
    """Requests that it has received and not begun."""
    waiting_for_pending: int = 0
    """Requests that wait for reserved resources to be released."""
    waiting_for_feed: int = 0
    """Requests that wait until hosts are known, or were looked at again."""
    unwritten_decisions: int = 0
    """Records of decisions that wait to be written."""
    feed: Mapping[str, PartReport] = {}


class WorkerLoad(RequestsInHand, frozen=True, kw_only=True):
    """What a worker does and holds; durations in seconds."""

    uptime_s: float = 0.0
    missing: tuple[str, ...] = ()
    """What keeps it from serving."""
    is_consuming: bool = True
    """Whether it is connected to the bus, and gets messages."""
    slots: int | None = None
    """How many requests it serves at a time; null: its server does not say."""
    lag_s: float | None = None
    """How long requests wait in the topic's queue before it gets them; null: it is not known."""
    holds: Holds = Holds()


class WorkerReport(WorkerLoad, frozen=True, kw_only=True):
    """How a worker is."""

    at_s: float = 0.0
    """When it was written, by the store's clock."""
    facts: WorkerFacts | None = None
    """Who reports, for readers once its presence has expired; None: an older version."""
    tuning_alarms: tuple[str, ...] = ()
    unit_alarms: tuple[str, ...] = ()
    """Files of external units that it does not load, and why."""
    contests: tuple[str, ...] = ()
    """Hosts of clusters that this worker balances, of which several machines report as one."""
    clusters: tuple[ClusterReport, ...] = ()
    """The busiest ones."""
    hosts: Mapping[str, HostCounts] | None = None
    """Of clusters that this worker balances, those with most hosts down first; None: it has not
    counted them yet."""
    known_clusters: int | None = None
    """How many clusters there are, whoever balances them; None: it cannot read that."""
    lately: Lately = Lately()
