"""Audits Redis directly: reads its records, and checks invariants on them."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.support.patience import SOON_S

LOOK_EVERY_S = 0.05


class Snapshot(msgspec.Struct):
    """All clusters at one moment. Times of the store's clock."""

    now_s: float
    hosts: list[dict[str, Any]]
    """The records, each with the name of the ``cluster`` that it lies in."""
    reservations: list[dict[str, Any]]
    instances: dict[str, set[str]]
    """Host name -> the instances that it reported."""
    lists: list[tuple[str, str]] = []
    """The cluster and the host of each of these, also where a host has several."""

    def violations(self) -> Iterator[str]:
        """Violations of invariants that hold at any time."""
        taken = Counter(
            {host["uuid"]: host.get("vcpus_used", 0) for host in self.hosts},
        )
        for each in self.reservations:
            taken[each["host_uuid"]] += each["resources"]["vcpus"]
        for host in self.hosts:
            if taken[host["uuid"]] > host["vcpus"]:
                yield f"{host['host']} has {host['vcpus']} vCPUs and owes {taken[host['uuid']]}"
        for instance, places in self._places().items():
            if len(places) > 1:
                yield f"instance {instance} is on {' and '.join(sorted(places))}"

    def left_behind(self, ended_s: float) -> list[str]:
        """Reservations that remained after their time, though a call had to end them."""
        return [
            each["instance_uuid"] for each in self.reservations if each["expires_at_s"] < ended_s
        ]

    def _places(self) -> dict[str, set[str]]:
        places: dict[str, set[str]] = defaultdict(set)
        for each in self.reservations:
            places[each["instance_uuid"]].add(each["host"])
        for host, some in self.instances.items():
            for instance in some:
                places[instance].add(host)
        return places


class Books:
    """Reads the records of some clusters; raises RedisError while the store is away.

    A reservation's ``expires_at_s`` is its real end: later than in its record while the store
    delays expiry, because its clock jumped or it stood still.
    """

    def __init__(self, url: str, prefix: str, clusters: Sequence[str]) -> None:
        self._keys = {each: f"{prefix}:{{{each}}}:" for each in clusters}
        self._redis = redis.Redis.from_url(
            url, socket_timeout=1.0, retry=Retry(NoBackoff(), 0), decode_responses=True
        )

    def look(self) -> Snapshot:
        with self._redis.pipeline(transaction=True) as reading:
            reading.time()
            for key in self._keys.values():
                reading.hgetall(key + "records")
                reading.hget(key + "meta", "held_back")
            (seconds, micro), *answers = reading.execute()
        found = Snapshot(seconds + micro / 1e6, [], [], {}, [])
        for cluster, records, held_back in zip(
            self._keys, answers[::2], answers[1::2], strict=True
        ):
            for key, text in records.items():
                value = msgspec.json.decode(text)
                match key[:2]:
                    case "h:":
                        found.hosts.append({**value, "cluster": cluster})
                    case "p:":
                        value["expires_at_s"] += int(held_back or 0) / 1e6
                        found.reservations.append(value)
                    case "i:":
                        found.instances[key[2:]] = set(value)
                        found.lists.append((cluster, key[2:]))
        return found


class Auditor(threading.Thread):
    """Reads the books repeatedly, and keeps the violations."""

    def __init__(self, books: Books) -> None:
        super().__init__(name="auditor", daemon=True)
        self._books = books
        self._over = threading.Event()
        self.violations: set[str] = set()
        self._looks = 0
        self._looked = threading.Condition()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def until_it_looked(self) -> None:
        """Until a look that was begun after this call is over."""
        with self._looked:
            goal = self._looks + 2  # one may be under way
            assert self._looked.wait_for(lambda: self._looks >= goal, SOON_S), (
                "the auditor has ended"
            )

    def look(self) -> Snapshot:
        """As things are now."""
        return self._books.look()

    def run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            try:
                snapshot = self._books.look()
            except RedisError:
                continue  # the store is away, as the test wants
            self.violations |= set(snapshot.violations())
            with self._looked:
                self._looks += 1
                self._looked.notify_all()
