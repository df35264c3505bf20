"""What workers agree on beside the clusters: where an instance is decided, verdicts on casts.

A cluster's lock guards the reservations of that cluster only: two copies of a request that may go
to any of several clusters could get a host each. So a leader, under its cluster's lock and before
it decides an instance there, declares so in a scope that belongs to no cluster. It may declare if

* nobody has declared anything for the instance, or
* the instance was declared to be in that cluster already, or
* the last declaration is its own, and the request was refused there under a valid lease.

Otherwise another copy may have a host in the declared cluster, and the request must be decided
there first. Each declaration gives the record a new version. So no request draws an instance away
from a cluster where another copy is being decided, and one that lost its lease meanwhile cannot
commit.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from scheduler_worker.ports import ABSENT, Clock, Guard, Store, Transaction, Written
from scheduler_worker.service.state import records
from scheduler_worker.service.state.records import Verdict
from scheduler_worker.service.state.replica import RecordKind, Replica

SCOPE = "@whereabouts"


class DecidedElsewhere(Exception):
    """The request cannot be decided here: it must search its instances' clusters again."""


class Intent(NamedTuple):
    """A request that is about to decide instances, each in a cluster."""

    declared: dict[str, int]
    """Instance uuid -> version of the intent that the request wrote last; kept up to date."""
    homes: Mapping[str, str]
    """Instance uuid -> cluster."""


class PlacementIntents(Replica):
    """The intents declared a short while ago by all workers, as this process knows them."""

    def __init__(self, store: Store, ttl_s: float) -> None:
        """``ttl_s`` is longer than a request takes from reading all clusters to its commit."""
        self._homes = RecordKind(records.HOME, bytes.decode)
        super().__init__(SCOPE, self._homes)
        self._store = store
        self._ttl_s = ttl_s

    def by_others(self, uuids: Collection[str], declared: Mapping[str, int] = {}) -> dict[str, str]:
        """Instance uuid -> cluster, without the records that have the version in ``declared``."""
        with self.lock:
            return {
                uuid: self._homes[uuid]
                for uuid in uuids
                if uuid in self._homes and self.version(records.HOME + uuid) != declared.get(uuid)
            }

    def read(self, uuids: Collection[str], declared: Mapping[str, int]) -> dict[str, str]:
        """Like :meth:`by_others`, after a read of the store. Raises StateUnavailable."""
        with self.reading(self._store):
            return self.by_others(uuids, declared)

    def declare(self, intents: Sequence[Intent], now_s: float) -> list[bool]:
        """Declare where instances are decided; returns for each intent whether that is allowed.

        The callers hold the locks of the clusters. ``now_s`` is of the store's clock. Raises
        StateUnavailable.
        """
        until_s = now_s + self._ttl_s
        declared = self._declare(intents, until_s)
        if not all(declared):
            # What this process knew may have been out of date: read once, and try those again.
            self.refresh(self._store)
            others = [intents[at] for at, is_declared in enumerate(declared) if not is_declared]
            again = iter(self._declare(others, until_s))
            declared = [is_declared or next(again) for is_declared in declared]
        return declared

    def _declare(self, intents: Sequence[Intent], until_s: float) -> list[bool]:
        """Declare on what this process knows; guards refuse what is out of date."""
        with self.lock:
            transactions = [self._transaction(intent, until_s) for intent in intents]
        writing = [transaction for transaction in transactions if transaction]
        written = self._store.write(self.scope, writing) if writing else Written(0, ())
        applied = iter(written.applied)
        declared = [transaction is not None and next(applied) for transaction in transactions]
        for intent, is_declared in zip(intents, declared, strict=True):
            # The version says later whether this request was the last to declare.
            if is_declared:
                intent.declared.update(dict.fromkeys(intent.homes, written.version))
        return declared

    def _transaction(self, intent: Intent, until_s: float) -> Transaction | None:
        others = self.by_others(intent.homes, intent.declared)
        # Another copy may have a host there, so this request has to go there first.
        if any(intent.homes[uuid] != home for uuid, home in others.items()):
            return None
        puts = [records.put_home(uuid, home, until_s) for uuid, home in intent.homes.items()]
        return self.replacing(*puts)


class Verdicts(Replica):
    """The verdicts on casts of all workers in the last ``remember_s`` seconds; safe for threads.

    Two workers may decide the same request, and when capacity changes meanwhile one finds hosts and
    the other does not. A call is answered once, but a cast would be answered twice, differently. So
    whether it gets hosts is written under a guard before the answer: the second worker finds the
    verdict of the first, and answers the same.
    """

    def __init__(self, store: Store, clock: Clock, *, remember_s: float) -> None:
        self._verdicts = RecordKind("", records.read_verdict)
        super().__init__("@verdicts", self._verdicts)
        self._store = store
        self._clock = clock
        self._remember_s = remember_s
        self._offset_s: float | None = None
        """The store's clock less the monotonic clock of this process; None until it was read."""

    def record(self, digest: str, verdict: Verdict) -> Verdict:
        """Record a verdict unless there is one; returns the verdict that stands.

        ``digest`` is the same for all copies of a request. Raises StateUnavailable.
        """
        with self.lock:
            # Reading the scope for each cast would cost a round trip; the guard needs no copy.
            if self._offset_s is None:
                self._read()
            until_s = self._clock.monotonic_s() + (self._offset_s or 0.0) + self._remember_s
            put = records.put_verdict(digest, verdict, until_s)
            guarded = Transaction([put], [Guard(put.key, ABSENT)])
            if not self._store.write(self.scope, [guarded]).applied[0]:
                self._read()
                # If the other one has expired since, no copy will answer with it any more.
                verdict = self._verdicts.get(put.key, verdict)
        return verdict

    def _read(self) -> None:
        now_s = self._clock.monotonic_s()
        self._offset_s = self.refresh(self._store) - now_s
