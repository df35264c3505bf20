"""Verdicts on requests by cast, recorded so that all copies of a request answer alike.

Two workers may decide the same request, for example when the first lost its connection to the
broker and continues. When capacity changes meanwhile, one finds hosts and the other does not. A
call is answered once, but a cast would be answered twice, differently. So whether a cast gets hosts
is written under a guard before it is answered: the second worker finds the verdict of the first,
and answers the same.
"""

from __future__ import annotations

from scheduler_worker.ports import ABSENT, Clock, Guard, Store, Transaction
from scheduler_worker.service.state import records
from scheduler_worker.service.state.records import Verdict
from scheduler_worker.service.state.replica import RecordKind, Replica

SCOPE = "@verdicts"


class Verdicts(Replica):
    """The verdicts of all workers in the last ``remember_s`` seconds; safe for threads."""

    def __init__(self, store: Store, clock: Clock, *, remember_s: float) -> None:
        self._verdicts = RecordKind("", records.read_verdict)
        super().__init__(SCOPE, self._verdicts)
        self._store = store
        self._clock = clock
        self._remember_s = remember_s
        self._offset_s: float | None = None
        """The store's clock less the monotonic clock of this process; None until it was read."""

    def record(self, digest: str, verdict: Verdict) -> Verdict:
        """Record a verdict unless there is one; returns the one that stands.

        ``digest`` is the same for all copies of a request. Raises StateUnavailable.
        """
        with self.lock:
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
        self._offset_s = self.refresh(self._store).now_s - now_s
