"""The sharing providers: a short list that every worker reads for itself.

Which resource classes they give decides which requests Placement is asked about; what they have
left of these tells explanations what a host lacks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from scheduler_worker.model.providers import SHARES, SharingProvider
from scheduler_worker.placement import Providers
from scheduler_worker.ports import Clock

LOG = logging.getLogger(__name__)


class SharingProviders:
    """Read again every ``interval_s``; safe for threads."""

    def __init__(self, reader: Providers, clock: Clock, *, interval_s: float) -> None:
        self._reader = reader
        self._clock = clock
        self._interval_s = interval_s
        self._reading = threading.Lock()
        self._found: tuple[SharingProvider, ...] | None = None
        self._due_s = float("-inf")

    def run_due(self) -> None:
        """Read them if it is time. Raises PlacementUnavailable, PlacementRefused."""
        if self._clock.monotonic_s() >= self._due_s:
            self.read()

    def known(self) -> Sequence[SharingProvider] | None:
        """As they were last read; None: not yet. Does not block."""
        return self._found

    def read(self) -> Sequence[SharingProvider]:
        """As they are now. Raises PlacementUnavailable, PlacementRefused."""
        with self._reading:
            found = self._read()
            before, self._found = self._found, found
            self._due_s = self._clock.monotonic_s() + self._interval_s
        names = [each.name for each in found]
        if names != [each.name for each in before or ()]:
            LOG.info(
                "Placement is asked about requests for what these resource providers share: %s",
                ", ".join(names) or "none any more",
            )
        return found

    def _read(self) -> tuple[SharingProvider, ...]:
        listed = sorted(self._reader.having(SHARES), key=lambda each: each.name)
        if not listed:
            return ()
        uuids = [each.uuid for each in listed]
        facts, usages = self._reader.facts(uuids), self._reader.usages(uuids)
        return tuple(
            SharingProvider(
                uuid=each.uuid,
                name=each.name,
                inventories=facts[each.uuid].inventories,
                usages=usages.get(each.uuid, {}),
                aggregates=frozenset(facts[each.uuid].aggregates),
            )
            for each in listed
            if each.uuid in facts
        )
