"""The load during faults: sixteen tenants, and the hosts that report their use.

A tenant requests one instance after the other, by call or by cast, as a conductor would: it repeats
a request until it is answered. It releases an instance, or builds it, so that the hosts report it,
and deletes it later; sometimes it forgets it.
"""

import random
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scheduler_worker import codec, errors
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import NoValidHost, SchedulerWorkerError
from tests.support.patience import SOON_S
from tests.support.services import host

SPEC = {"flavor": {"vcpus": 1, "memory_mb": 64, "root_gb": 1}, "num_instances": 1}
PAUSE_S = 0.1
PATIENCE_S = 15.0
"""After so long without an answer a tenant asks for something else."""
LOST_S = 2 * SOON_S
"""A cast that was not answered by then is lost."""
YOUNG_S = 5.0
"""Only younger requests are built: their reservations must last until then."""
REPORT_EVERY_S = 0.25
LIFE_S = 4 * REPORT_EVERY_S


class Racks:
    """The truth about instances and hosts, which reports carry."""

    def __init__(self, clusters: Mapping[str, Sequence[str]], vcpus: int) -> None:
        self._clusters = {cluster: list(names) for cluster, names in clusters.items()}
        self._vcpus = vcpus
        self._lock = threading.Lock()
        self.instances: dict[str, set[str]] = {
            name: set() for names in clusters.values() for name in names
        }

    def build(self, instance: str, name: str) -> None:
        with self._lock:
            self.instances[name].add(instance)

    def delete(self, instance: str, name: str) -> None:
        with self._lock:
            self.instances[name].remove(instance)

    def move(self, name: str, cluster: str) -> None:
        """From the next report on the host is in another cluster."""
        with self._lock:
            for names in self._clusters.values():
                if name in names:
                    names.remove(name)
            self._clusters[cluster].append(name)

    def reports(self, cluster: str) -> list[dict[str, Any]]:
        """A report of each host of a cluster, as of now."""
        with self._lock:
            return [
                host(
                    name,
                    cluster=cluster,
                    vcpus=self._vcpus,
                    vcpus_used=len(self.instances[name]),
                    cpu_allocation_ratio=1.0,
                    instances=sorted(self.instances[name]),
                    updated_at=time.time(),
                )
                for name in self._clusters[cluster]
            ]


class Mailbox:
    """Where the answers to casts come in."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._answers: dict[str, list[dict[str, Any]]] = {}

    def take(self, _context: object, request_id: str, **answer: Any) -> None:
        with self._arrived:
            self._answers.setdefault(request_id, []).append(answer)
            self._arrived.notify_all()

    def wait_for(self, request_id: str, timeout_s: float) -> dict[str, Any] | None:
        with self._arrived:
            self._arrived.wait_for(lambda: request_id in self._answers, timeout_s)
            return next(iter(self._answers.get(request_id, ())), None)

    def hosts(self, request_id: str) -> set[str]:
        """The hosts that were answered to a request for one instance: one, if all is well."""
        answers = self._answers.get(request_id, ())
        chosen = [each["selections"][0][0] for each in answers if "selections" in each]
        return {codec.decode_selection(each).service_host for each in chosen}


class Served:
    """When tenants were served, to measure outages. Monotonic seconds."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.ends_s: list[float] = []
        self._begun: list[tuple[float, float]] = []
        self.last_begun_s: dict[str, float] = {}
        """Tenant -> when it made the request that was served last."""
        self.errors: Counter[str] = Counter()
        self.broken: list[str] = []
        """Broken guarantees: lost casts, contradictory answers."""

    def note(self, who: str, begun_s: float) -> None:
        with self._changed:
            self.ends_s.append(time.monotonic())
            self.last_begun_s[who] = begun_s
            self._begun.append((begun_s, self.ends_s[-1]))
            self._changed.notify_all()

    def begun_after(self, when_s: float) -> list[float]:
        """When requests that were made after that time were served."""
        return [end_s for begun_s, end_s in self._begun if begun_s > when_s]

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(is_so, timeout_s)


class Tenant(threading.Thread):
    """One client; runs until it is stopped."""

    def __init__(
        self, name: str, client: SchedulerClient, racks: Racks, mailbox: Mailbox, served: Served
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._client = client
        self._racks = racks
        self._mailbox = mailbox
        self._served = served
        self._rng = random.Random(name)
        self._over = threading.Event()
        self._built: deque[tuple[float, str, str]] = deque()

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        while not self._over.wait(self._rng.uniform(0, 2 * PAUSE_S)):
            try:
                self._live()
            except Exception as error:
                self._served.broken.append(f"{self.name}: {error!r}")
                raise

    def _live(self) -> None:
        instance, begun_s = str(uuid.uuid4()), time.monotonic()
        ask = self._by_cast if self._rng.random() < 0.3 else self._by_call
        where = self._persist(lambda: ask(instance))
        self._served.note(self.name, begun_s)
        self._delete_old()
        if where is None:
            return
        is_young = time.monotonic() - begun_s < YOUNG_S
        fate = self._rng.random()
        if is_young and fate < 0.3:
            self._build(instance, where)
        elif fate < 0.998:
            self._persist(lambda: self._client.release([instance]))

    def _build(self, instance: str, where: str) -> None:
        self._racks.build(instance, where)
        self._built.append((time.monotonic(), instance, where))
        if self._rng.random() < 0.3:
            facts = [{"uuid": instance, "host": where}]
            self._persist(lambda: self._client.update_instance_info(where, facts))

    def _delete_old(self) -> None:
        """Not before it was reported, which absorbs its reservation."""
        while self._built and time.monotonic() - self._built[0][0] > LIFE_S:
            _, *built = self._built.popleft()
            self._racks.delete(*built)

    def _persist(self, work: Callable[[], Any]) -> Any:
        """Until it is done, or for as long as the tenant cares."""
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < PATIENCE_S:
            try:
                return work()
            except NoValidHost:
                return None
            except SchedulerWorkerError as error:
                self._served.errors[type(error).__name__] += 1
                self._over.wait(PAUSE_S)
        self._served.errors["gave up"] += 1
        return None

    def _by_call(self, instance: str) -> str:
        context = {"request_id": f"req-{instance}"}
        [[chosen, *_]] = self._client.select_destinations(SPEC, [instance], context=context)
        return chosen.service_host

    def _by_cast(self, instance: str) -> str:
        request_id = f"req-{uuid.uuid4()}"
        reply_to = {"topic": "tenants"}
        self._client.request_destinations(
            SPEC, [instance], reply_to=reply_to, request_id=request_id
        )
        answer = self._mailbox.wait_for(request_id, LOST_S)
        if answer is None:
            self._served.broken.append(f"the cast {request_id} was not answered")
            raise NoValidHost("lost")
        if answer.get("error"):
            raise getattr(errors, answer["error"]["type"])("by cast")
        hosts = self._mailbox.hosts(request_id)
        if len(hosts) > 1:
            self._served.broken.append(f"the cast {request_id} was answered with {sorted(hosts)}")
        return min(hosts)


class Reporter(threading.Thread):
    """Casts the reports of one cluster's hosts, again and again."""

    def __init__(self, cluster: str, racks: Racks, cast: Callable[..., None]) -> None:
        super().__init__(name=f"reporter-{cluster}", daemon=True)
        self._cluster = cluster
        self._racks = racks
        self._cast = cast
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(REPORT_EVERY_S):
            try:
                self._cast("update_hosts", {}, hosts=self._racks.reports(self._cluster))
            except SchedulerWorkerError:
                continue  # the next report is complete
