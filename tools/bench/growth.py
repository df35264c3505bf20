"""How the cost of a call grows: a model with few terms, and virtual workers to compare it with.

A call costs something by itself. It shares the cost of its batch: the lock and the commit of one
cluster. A batch costs more if it follows one of another worker. Each further worker that leads the
cluster, too, applies what it has reserved. And each thousand hosts of a cluster cost a little.
"""

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from bench.table import percentile
from scheduler_worker.rpc.defaults import SLOTS

OF_PART = {"worker": "server_cpu_ms", "redis": "redis_cpu_ms", "rabbit": "rabbit_cpu_ms"}
"""Who works on a call, and its figure in a measured row."""
_ALONE_S = 0.002
"""How long a call takes where nothing waits."""
_MOST = 256
BUSY = 0.7
"""How much of a core is planned for: beyond it waits grow fast."""


class Load(NamedTuple):
    """Calls in flight, and who leads them."""

    leaders: int
    """The workers that have calls in hand: others are idle."""
    clusters: int
    hosts: int
    """Of each cluster."""
    in_flight: int

    @property
    def batches(self) -> float:
        """How many batches a call takes: 1 if it is alone."""
        return min(1.0, self.leaders * self.clusters / self.in_flight)

    @property
    def terms(self) -> tuple[float, ...]:
        """By what each term of the model is multiplied."""
        others = self.leaders - 1.0
        return 1.0, self.batches, others / self.leaders, others, self.hosts / 1000


TERMS = ("a call", "its batch", "after another's", "each further leader", "each 1,000 hosts")


class Model(NamedTuple):
    """CPU milliseconds of each of :data:`TERMS`."""

    worker: tuple[float, ...]
    redis: tuple[float, ...]
    rabbit: tuple[float, ...]
    error: float
    """The largest difference from a measured cost of workers, as a share of it."""

    def cpu_ms(self, part: str, load: Load) -> float:
        return float(np.dot(getattr(self, part), load.terms))

    def terms(self) -> list[dict]:
        return [
            {"of": part, **dict(zip(TERMS, getattr(self, part), strict=True))} for part in OF_PART
        ]


def fitted(rows: Sequence[tuple[Load, dict]]) -> Model:
    """The model of least squares whose terms are not negative."""
    terms = {
        part: _least_squares([(load.terms, row[name]) for load, row in rows])
        for part, name in OF_PART.items()
    }
    model = Model(**terms, error=0.0)
    errors = [abs(model.cpu_ms("worker", load) / row[OF_PART["worker"]] - 1) for load, row in rows]
    return model._replace(error=max(errors))


def _least_squares(points: Sequence[tuple[tuple[float, ...], float]]) -> tuple[float, ...]:
    """Of relative errors; a term that would be negative, or that nothing shows, is 0."""
    factors = np.array([[each / figure for each in terms] for terms, figure in points])
    rows = np.array([terms for terms, _ in points])
    used = [at for at in range(len(TERMS)) if at == 0 or np.ptp(rows[:, at]) > 0]
    while True:
        found, *_ = np.linalg.lstsq(factors[:, used], np.ones(len(points)), rcond=None)
        worst = int(np.argmin(found))
        if found[worst] >= 0 or len(used) == 1:
            solved = dict(zip(used, found.tolist(), strict=True))
            return tuple(max(0.0, solved.get(at, 0.0)) for at in range(len(TERMS)))
        del used[worst]


class Cloud(NamedTuple):
    """What is asked of a deployment."""

    calls_per_s: int
    clusters: int
    hosts: int
    """Of each cluster."""


CLOUDS = (
    Cloud(100, 5, 1000),
    Cloud(1000, 1, 5000),
    Cloud(1000, 20, 5000),
    Cloud(5000, 200, 500),
    Cloud(20_000, 200, 500),
)


def needs(model: Model, cloud: Cloud) -> dict:
    """How many workers and Redis servers, each with a core, a cloud takes, and what ends it.

    As many as _MOST where no number is enough.
    """
    workers = next((n for n in range(1, _MOST) if _carries(model, cloud, n)), _MOST)
    load = _at(cloud, workers)
    per_call = {part: model.cpu_ms(part, load) for part in OF_PART}
    redis = math.ceil(cloud.calls_per_s * per_call["redis"] / (1000 * BUSY))
    limits = {
        "one cluster on one worker": cloud.clusters * 1000 * BUSY / per_call["worker"],
        "one Redis server": 1000 * BUSY / per_call["redis"],
        "one core of RabbitMQ": 1000 * BUSY / per_call["rabbit"],
    }
    ahead = [name for name, rate in limits.items() if rate > cloud.calls_per_s]
    name = min(ahead, key=limits.__getitem__, default="-")
    return {
        **cloud._asdict(),
        "workers": workers,
        "redis_servers": redis,
        "worker_ms": per_call["worker"],
        "redis_ms": per_call["redis"],
        "rabbit_ms": per_call["rabbit"],
        "next_limit": name,
        "at_calls_per_s": round(limits.get(name, 0.0)),
    }


def _at(cloud: Cloud, workers: int) -> Load:
    """The load of workers of which the first ones have their slots full, and the last one none."""
    leaders = math.ceil(BUSY * workers)
    in_flight = leaders * SLOTS if leaders > 1 else max(1, int(cloud.calls_per_s * _ALONE_S))
    return Load(leaders, cloud.clusters, cloud.hosts, in_flight)


def _carries(model: Model, cloud: Cloud, workers: int) -> bool:
    return cloud.calls_per_s * model.cpu_ms("worker", _at(cloud, workers)) <= 1000 * BUSY * workers


# Virtual workers

LEASE_SHARE = 0.6
"""The part of a call's own cost that is spent under the lock of its cluster, by profile."""
ROUND_TRIP_MS = 0.2
MAX_BATCH = 64
_CALLS, _WARM_UP = 60_000, 20_000


class VirtualWorkers:
    """Workers with a core each, a broker that serves them in their order, locks, and Redis.

    Time is virtual, in milliseconds. Only waits and work are played, nothing is decided.
    """

    def __init__(self, model: Model, cloud: Cloud, workers: int, redis_servers: int) -> None:
        own, self._batch_ms, self._switch_ms, self._apply_ms, hosts_ms = model.worker
        self._lease_ms = LEASE_SHARE * own + hosts_ms * cloud.hosts / 1000
        self._bus_ms = (1 - LEASE_SHARE) * own / 2
        """To receive a call, and to answer it."""
        self._redis_ms = model.redis
        self._cloud = cloud
        self._random = random.Random(1)
        self._now_ms = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._core_free_ms = [0.0] * workers
        self._redis_free_ms = [0.0] * redis_servers
        self._queue: deque[tuple[int, float]] = deque()
        self._in_hand = [0] * workers
        self._pending: dict[tuple[int, int], list[float]] = {}
        """Worker and cluster -> when the calls arrived that wait for the lock."""
        self._waiting: list[deque[int]] = [deque() for _ in range(cloud.clusters)]
        """The workers that hold the lock of each cluster, or wait for it, in their order."""
        self._writes = [0] * cloud.clusters
        self._seen: dict[tuple[int, int], int] = {}
        self.times_ms: list[float] = []
        self.batches = 0
        self.busy_ms = 0.0

    def run(self, calls: int) -> None:
        """Until so many are answered."""
        self._arrive()
        while len(self.times_ms) < calls:
            self._now_ms, _, then = heapq.heappop(self._due)
            then()

    def leaders(self) -> int:
        """How many workers have led a batch."""
        return len({worker for worker, _ in self._seen})

    def now_s(self) -> float:
        return self._now_ms / 1000

    def _after(self, ms: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self._now_ms + ms, next(self._numbers), then))

    def _work(self, worker: int, ms: float, then: Callable[[], None]) -> None:
        begins_ms = max(self._now_ms, self._core_free_ms[worker])
        self._core_free_ms[worker] = begins_ms + ms
        self.busy_ms += ms
        self._after(begins_ms + ms - self._now_ms, then)

    def _ask_redis(self, cluster: int, ms: float, then: Callable[[], None]) -> None:
        server = cluster % len(self._redis_free_ms)
        begins_ms = max(self._now_ms, self._redis_free_ms[server])
        self._redis_free_ms[server] = begins_ms + ms
        self._after(begins_ms + ms - self._now_ms + ROUND_TRIP_MS, then)

    def _arrive(self) -> None:
        self._after(1000 * self._random.expovariate(self._cloud.calls_per_s), self._arrive)
        self._queue.append((self._random.randrange(self._cloud.clusters), self._now_ms))
        self._deliver()

    def _deliver(self) -> None:
        while self._queue:
            worker = next((at for at, n in enumerate(self._in_hand) if n < SLOTS), None)
            if worker is None:
                return
            cluster, arrived_ms = self._queue.popleft()
            self._in_hand[worker] += 1
            self._work(worker, self._bus_ms, partial(self._wait, worker, cluster, arrived_ms))

    def _wait(self, worker: int, cluster: int, arrived_ms: float) -> None:
        pending = self._pending.setdefault((worker, cluster), [])
        pending.append(arrived_ms)
        waiting = self._waiting[cluster]
        if worker not in waiting:
            waiting.append(worker)
            if waiting[0] == worker:
                self._acquire(worker, cluster)

    def _acquire(self, worker: int, cluster: int) -> None:
        self._ask_redis(cluster, self._redis_ms[1] / 2, partial(self._lead, worker, cluster))

    def _lead(self, worker: int, cluster: int) -> None:
        pending = self._pending[worker, cluster]
        batch, pending[:] = pending[:MAX_BATCH], pending[MAX_BATCH:]
        missed = self._writes[cluster] - self._seen.get((worker, cluster), 0)
        self.batches += 1
        ms = self._batch_ms + missed * self._apply_ms + len(batch) * self._lease_ms
        if missed:
            ms += len(batch) * self._switch_ms
        redis_ms = self._redis_ms[1] / 2 + len(batch) * self._redis_ms[0]
        committed = partial(self._committed, worker, cluster, batch)
        self._work(worker, ms, partial(self._ask_redis, cluster, redis_ms, committed))

    def _committed(self, worker: int, cluster: int, batch: Sequence[float]) -> None:
        self._writes[cluster] += len(batch)
        self._seen[worker, cluster] = self._writes[cluster]
        waiting = self._waiting[cluster]
        waiting.popleft()
        if self._pending[worker, cluster]:
            waiting.append(worker)
        if waiting:
            self._acquire(waiting[0], cluster)
        for arrived_ms in batch:
            self._work(worker, self._bus_ms, partial(self._answered, worker, arrived_ms))

    def _answered(self, worker: int, arrived_ms: float) -> None:
        self._in_hand[worker] -= 1
        self.times_ms.append(self._now_ms - arrived_ms)
        self._deliver()


def compared(model: Model) -> list[dict]:
    """What virtual workers show beside what the model says of the same load."""
    rows = []
    for cloud in CLOUDS:
        needed = needs(model, cloud)
        for workers in sorted({needed["workers"], 64}):
            virtual = VirtualWorkers(model, cloud, workers, needed["redis_servers"])
            virtual.run(_CALLS)
            cpu_ms = virtual.busy_ms / len(virtual.times_ms)
            in_flight = cloud.calls_per_s * sum(virtual.times_ms) / len(virtual.times_ms) / 1000
            load = Load(virtual.leaders(), cloud.clusters, cloud.hosts, max(1, round(in_flight)))
            rows.append(
                {
                    **cloud._asdict(),
                    "workers": workers,
                    "leaders": load.leaders,
                    "answered_per_s": round(len(virtual.times_ms) / virtual.now_s()),
                    "p50_ms": percentile(virtual.times_ms[_WARM_UP:], 0.5),
                    "p99_ms": percentile(virtual.times_ms[_WARM_UP:], 0.99),
                    "batch": len(virtual.times_ms) / virtual.batches,
                    "cpu_ms": cpu_ms,
                    "model_ms": model.cpu_ms("worker", load),
                }
            )
    return rows
