"""Sends a stream to a worker and plays the agents of its hosts. Reads no files, prints nothing.

Any number of client threads take the arrivals in the order of their times; instances whose lifetime
has ended are deleted before the next arrival is taken. One more thread sends the hosts' reports, in
batches and sequentially, so that an older report never overtakes a newer one.
"""

import heapq
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from replay.books import Books
from replay.streams import Arrival, Plain, Stream
from scheduler_worker.errors import NoValidHost, SchedulerWorkerError

HOSTS_PER_REPORT = 250
ZONES_READY_S = 10.0
EXPLAINED_HOSTS, EXPLAINED_REFUSALS = 200, 30


class Client(Protocol):
    """The methods of ``scheduler_worker.client.SchedulerClient`` that are used."""

    def update_hosts(self, hosts: list[Plain]) -> dict[str, int]: ...
    def update_aggregates(self, aggregates: list[Plain]) -> None: ...
    def select_destinations(
        self, spec: Plain, instance_uuids: list[str]
    ) -> Sequence[Sequence[Any]]: ...
    def release(self, instance_uuids: list[str]) -> int: ...
    def explain(
        self, spec: Plain, instance_uuids: list[str] | None = None, *, limit: int | None = None
    ) -> Plain: ...
    def list_hosts(self, *, marker: str | None = None) -> Plain: ...
    def list_reservations(self, *, marker: str | None = None) -> Plain: ...


class Settings(NamedTuple):
    """Settings of a replay.

    ``speed`` is stream seconds per second, 0 for as fast as possible. Changed hosts report after
    ``batch`` changes or ``report_s``, whichever is first; every host after ``heartbeat_s``. A
    failed report ends the replay, unless it ``persists``: then every host reports next time.
    """

    clients: int = 4
    batch: int = 400
    speed: float = 0.0
    report_s: float = 0.25
    heartbeat_s: float = 20.0
    persists: bool = False


@dataclass
class Outcome:
    """The results of a replay. Latencies and ``elapsed_s`` are seconds."""

    length: int
    placed: int = 0
    refused: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    first_failure: str = ""
    latencies_s: "array[float]" = field(default_factory=lambda: array("d"))
    elapsed_s: float = 0.0
    refused_spec: Plain | None = None
    explanation: Plain | None = None
    """Explains ``refused_spec``: of the first refusals, the one that most filters took part in."""

    @property
    def decided(self) -> int:
        """Answers so far, errors included."""
        return self.placed + self.refused + self.failed.total()


Watch = Callable[[Outcome], None]
"""Called a few times a second from the calling thread."""


class Driver:
    """One replay."""

    def __init__(self, client: Client, stream: Stream, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.books = Books(stream.hosts)
        self.outcome = Outcome(stream.length)
        self._client = client
        self._stream = stream
        self._arrivals: Iterator[Arrival] = iter(stream.arrivals)
        self._ends: list[tuple[float, str]] = []
        self._forgotten: list[str] = []
        self._changes = 0
        self._began_s = 0.0
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._due = threading.Event()
        self._stopped = threading.Event()

    def run(self, watch: Watch = lambda _: None) -> Outcome:
        """Announce the fleet, replay everything, report everything."""
        self._announce()
        self._began_s = time.monotonic()
        with ThreadPoolExecutor(self.settings.clients + 1, "replay") as pool:
            agents = pool.submit(self._report_until_stopped)
            clients = {pool.submit(self._work) for _ in range(self.settings.clients)}
            try:
                while wait(clients, timeout=0.2).not_done:
                    watch(self.outcome)
            finally:
                self.stop()
        self.outcome.elapsed_s = time.monotonic() - self._began_s
        for each in (agents, *clients):
            each.result()
        self._report()
        return self.outcome

    def stop(self) -> None:
        """Let :meth:`run` end before the stream does; of any thread."""
        self._stopped.set()
        self._due.set()

    def _announce(self) -> None:
        if self._stream.aggregates:
            self._client.update_aggregates(list(self._stream.aggregates))
        self._send(list(self._stream.hosts))
        self._await_zones()

    def _await_zones(self) -> None:
        """Aggregates are cast, not called: wait until a host of the last zone can be chosen."""
        zones = [
            aggregate["metadata"]["availability_zone"]
            for aggregate in self._stream.aggregates
            if "availability_zone" in aggregate["metadata"]
        ]
        smallest = {"flavor": {"name": "probe", "vcpus": 0, "memory_mb": 0}}
        until_s = time.monotonic() + ZONES_READY_S
        for zone in zones:
            probe = {**smallest, "availability_zone": zone}
            while self._client.explain(probe, limit=1).get("chosen") is None:
                if time.monotonic() > until_s:
                    raise TimeoutError(f"no host of zone {zone} became available at the worker")
                self._stopped.wait(0.02)

    # A client thread

    def _work(self) -> None:
        try:
            while (taken := self._take()) is not None:
                self._request(*taken)
        except BaseException:
            self.stop()
            raise

    def _take(self) -> tuple[Arrival, Plain] | None:
        """Wait for the next arrival, delete what ended before; return arrival and spec."""
        with self._taking:
            arrival = next(self._arrivals, None)
            if arrival is None or self._stops_before(arrival.at_s):
                return None
            with self._lock:
                self._end_until(arrival.at_s)
                return arrival, self.books.with_group(arrival.instance_uuid, arrival.spec)

    def _stops_before(self, at_s: float) -> bool:
        """Wait for a moment of the stream; True when the replay was stopped meanwhile."""
        if not self.settings.speed:
            return self._stopped.is_set()
        due_s = self._began_s + at_s / self.settings.speed
        return self._stopped.wait(max(0.0, due_s - time.monotonic()))

    def _end_until(self, at_s: float) -> None:
        while self._ends and self._ends[0][0] <= at_s:
            uuid = heapq.heappop(self._ends)[1]
            if not self.books.end(uuid):
                self._forgotten.append(uuid)
            self._changed()

    def _request(self, arrival: Arrival, spec: Plain) -> None:
        uuid = arrival.instance_uuid
        began_s = time.perf_counter()
        try:
            chosen = self._client.select_destinations({**spec, "instance_uuid": uuid}, [uuid])
        except NoValidHost:
            self._refused(spec, uuid, time.perf_counter() - began_s)
        except Exception as error:  # a replay outlives the faults it meets
            self._failed(uuid, error)
        else:
            self._placed(arrival, chosen[0][0].compute_node_uuid, time.perf_counter() - began_s)

    def _placed(self, arrival: Arrival, host_uuid: str, latency_s: float) -> None:
        with self._lock:
            self.books.place(arrival.instance_uuid, host_uuid, arrival.spec)
            if arrival.lifetime_s is not None:
                end_s = arrival.at_s + arrival.lifetime_s
                heapq.heappush(self._ends, (end_s, arrival.instance_uuid))
            self.outcome.placed += 1
            self.outcome.latencies_s.append(latency_s)
            self._changed()

    def _changed(self) -> None:
        self._changes += 1
        if self._changes == self.settings.batch:
            self._due.set()

    def _refused(self, spec: Plain, uuid: str, latency_s: float) -> None:
        with self._lock:
            self.outcome.refused += 1
            self.outcome.latencies_s.append(latency_s)
            explained = self.outcome.refused <= EXPLAINED_REFUSALS
        if explained:
            with suppress(SchedulerWorkerError):
                self._explain(spec, uuid)

    def _explain(self, spec: Plain, uuid: str) -> None:
        found = self._client.explain(spec, [uuid], limit=EXPLAINED_HOSTS)
        with self._lock:
            known = self.outcome.explanation
            if known is None or _rejecting_filters(found) > _rejecting_filters(known):
                self.outcome.refused_spec, self.outcome.explanation = spec, found

    def _failed(self, uuid: str, error: Exception) -> None:
        """Record an error; a reservation that may exist is released."""
        with self._lock:
            self.outcome.failed[type(error).__name__] += 1
            self.outcome.first_failure = self.outcome.first_failure or str(error)
            self._forgotten.append(uuid)

    # The agents

    def _report_until_stopped(self) -> None:
        """Report independently of the requests, which may be waiting for a report."""
        try:
            heartbeat_s = time.monotonic()
            while not self._stopped.is_set():
                self._due.wait(self.settings.report_s)
                self._due.clear()
                silent = time.monotonic() - heartbeat_s > self.settings.heartbeat_s
                if silent:
                    heartbeat_s = time.monotonic()
                try:
                    self._report(every_host=silent)
                except SchedulerWorkerError as error:
                    if not self.settings.persists:
                        raise
                    heartbeat_s = float("-inf")
                    with self._lock:
                        self.outcome.failed[type(error).__name__] += 1
        finally:
            self.stop()

    def _report(self, *, every_host: bool = False) -> None:
        with self._lock:
            reports = self.books.take_reports(every_host=every_host)
            forgotten, self._forgotten = self._forgotten, []
            self._changes = 0
        try:
            self._send(reports)
            if forgotten:
                self._client.release(forgotten)
        except SchedulerWorkerError:
            with self._lock:
                self._forgotten += forgotten
            raise

    def _send(self, reports: list[Plain]) -> None:
        for start in range(0, len(reports), HOSTS_PER_REPORT):
            self._client.update_hosts(reports[start : start + HOSTS_PER_REPORT])


def _rejecting_filters(explanation: Plain) -> int:
    """The number of filters that rejected a host."""
    return sum(step["hosts_in"] > step["hosts_out"] for step in explanation["filters"])
