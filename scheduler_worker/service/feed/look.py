"""Looks at the source of hosts when requests ask for one, if it is this worker's turn to feed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from scheduler_worker import events
from scheduler_worker.components import Periodic
from scheduler_worker.errors import BackendError, Conflict, RequestError, StateUnavailable
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, Store
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.state.looks import LookRecords

LOG = logging.getLogger(__name__)

_STEP_S = 1.0
"""How long one wait for a request may last: so long a stop of the worker waits for it."""


class HostLook(Protocol):
    """Reads the resource providers of hosts."""

    def look(self, queries: Iterable[str]) -> None:
        """Read hosts that may serve one of these queries of allocation candidates, and report them.

        Raises BackendError, Conflict, RequestError.
        """


class Looker(Periodic):
    """Answers requests for looks, one look after the other."""

    def __init__(
        self,
        feeder: Feeder,
        providers: HostLook | None,
        store: Store,
        clock: Clock,
        observer: Observer | None = None,
    ) -> None:
        super().__init__("look", self.run_due, _STEP_S)
        self._feeder = feeder
        self._providers = providers
        self._store = store
        self._clock = clock
        self._observer = observer or Observer()
        self._records = LookRecords()

    def run_due(self) -> float:
        """Look, if that is asked for here; returns the seconds until the next call."""
        if not self._feeder.has_turn():
            return _STEP_S
        try:
            if not self.look_if_asked():
                records = self._records
                self._store.await_change(records.scope, records.seen, timeout_s=_STEP_S)
        except StateUnavailable:
            self._observer.count(events.STATE_ERRORS)
            return _STEP_S
        except Conflict as error:
            LOG.info("Hosts are looked at again in a moment: %s", error)
            return _STEP_S
        return 0.0

    def look_if_asked(self) -> bool:
        """Whether a look was asked for, which is done then. Raises Conflict, StateUnavailable."""
        begun = self._records.begin(self._store)
        if begun is None:
            return False
        number, queries = begun
        began_s = self._clock.monotonic_s()
        self._feeder.look()
        self._look_at_placement(queries)
        if self._feeder.has_turn():  # else another worker begins one anew
            self._records.finish(self._store, number)
            self._observer.time(events.LOOK_TIME, self._clock.monotonic_s() - began_s)
        return True

    def _look_at_placement(self, queries: Iterable[str]) -> None:
        if self._providers is None:
            return
        try:
            self._providers.look(queries)
        except (StateUnavailable, Conflict):
            raise
        except (BackendError, RequestError) as error:
            # What is known without it may be enough; nobody is helped by waiting for it.
            LOG.warning("Placement was not looked at for requests that found no host: %s", error)
