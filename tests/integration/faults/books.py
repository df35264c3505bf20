"""What Redis holds, read past the workers, and what must never be true of it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

LOOK_EVERY_S = 0.05
LATE_S = 3.0
"""By how much a promise may outlive its time before it counts as left behind."""


class Snapshot(msgspec.Struct):
    """All clusters at one moment. Times of the store's clock."""

    now_s: float
    hosts: list[dict[str, Any]]
    promises: list[dict[str, Any]]
    instances: dict[str, set[str]]
    """Host name -> the instances that it reported."""

    def violations(self) -> Iterator[str]:
        """What must not be so at any time."""
        taken = Counter(
            {host["uuid"]: host.get("vcpus_used", 0) for host in self.hosts},
        )
        for each in self.promises:
            taken[each["host_uuid"]] += each["resources"]["vcpus"]
        for host in self.hosts:
            if taken[host["uuid"]] > host["vcpus"]:
                yield f"{host['host']} has {host['vcpus']} vCPUs and owes {taken[host['uuid']]}"
        for instance, places in self._places().items():
            if len(places) > 1:
                yield f"instance {instance} is on {' and '.join(sorted(places))}"

    def left_behind(self) -> list[str]:
        """Promises whose time is over since long."""
        return [
            each["instance_uuid"]
            for each in self.promises
            if each["expires_at_s"] < self.now_s - LATE_S
        ]

    def _places(self) -> dict[str, set[str]]:
        places: dict[str, set[str]] = defaultdict(set)
        for each in self.promises:
            places[each["instance_uuid"]].add(each["host"])
        for host, some in self.instances.items():
            for instance in some:
                places[instance].add(host)
        return places


class Books:
    """Reads the records of some clusters; raises RedisError while the store is away."""

    def __init__(self, url: str, prefix: str, clusters: Sequence[str]) -> None:
        self._keys = [f"{prefix}:{{{cluster}}}:records" for cluster in clusters]
        self._redis = redis.Redis.from_url(
            url, socket_timeout=1.0, retry=Retry(NoBackoff(), 0), decode_responses=True
        )

    def look(self) -> Snapshot:
        with self._redis.pipeline(transaction=True) as reading:
            reading.time()
            for key in self._keys:
                reading.hgetall(key)
            (seconds, micro), *clusters = reading.execute()
        found = Snapshot(seconds + micro / 1e6, [], [], {})
        for key, text in (pair for records in clusters for pair in records.items()):
            value = msgspec.json.decode(text)
            match key[:2]:
                case "h:":
                    found.hosts.append(value)
                case "p:":
                    found.promises.append(value)
                case "i:":
                    found.instances[key[2:]] = set(value)
        return found

    def close(self) -> None:
        self._redis.close()


class Auditor:
    """Looks again and again, in a thread of its own, and keeps what must not be."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="auditor", daemon=True)
        self.violations: set[str] = set()
        self.looks = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> Snapshot:
        """As things are now."""
        return self._books.look()

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            try:
                snapshot = self._books.look()
            except RedisError:
                continue  # away: that is what the test wanted
            self.looks += 1
            self.violations |= set(snapshot.violations())
