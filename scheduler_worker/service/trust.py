"""The trust levels of all nodes, asked for in the background and never while a request waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from scheduler_worker.errors import BackendError
from scheduler_worker.ports import Attestation, Clock
from scheduler_worker.scheduling.filters.trusted import TrustedFilter, TrustLevels
from scheduler_worker.service.replica import Fleet


class AttestationService(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attestation service is and how it is asked; ``auth_blob`` is a secret."""

    server: str
    port: int = 8443
    api_url: str = "/OpenAttestationWebServices/V1.0"
    auth_blob: str | None = None
    ca_file: str | None = None
    insecure: bool = False
    """Takes any certificate: whoever is on the way can make every host trusted."""
    lasts_s: float = 60.0
    timeout_s: float = 5.0
    """For connecting, and for each wait for a part of the answer."""


_NOBODY = TrustLevels(number=-1)
"""What is believed when the service has not answered for too long."""


class Trust:
    """Polls an attestation service twice in the time that a level may be believed."""

    def __init__(
        self,
        attestation: Attestation,
        fleet: Fleet,
        clock: Clock,
        *,
        lasts_s: float,
        report: Callable[[str], None],
    ) -> None:
        self._attestation = attestation
        self._fleet = fleet
        self._clock = clock
        self._lasts_s = lasts_s
        self._report = report
        self._levels = TrustLevels()
        self._asked_s = float("-inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="attestation", daemon=True)

    def levels(self) -> TrustLevels:
        """What is believed now."""
        age_s = self._clock.monotonic_s() - self._asked_s
        return self._levels if age_s < self._lasts_s else _NOBODY

    def filter(self) -> type[TrustedFilter]:
        """The filter that believes this."""
        return type("TrustedFilter", (TrustedFilter,), {"levels": staticmethod(self.levels)})

    def poll(self) -> None:
        """Ask about every node; when that fails, it is reported and what is believed grows old."""
        asked_s = self._clock.monotonic_s()
        try:
            nodes = self._nodes(asked_s)
            found = self._attestation.levels(nodes) if nodes else {}
        except BackendError as error:
            self._report(str(error))
            return
        if found != self._levels.of:
            self._levels = TrustLevels(self._levels.number + 1, found)
        self._asked_s = asked_s

    def start(self) -> None:
        """Ask once, and go on asking in a thread of its own."""
        self.poll()
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a poll that is under way ends by its own time limit."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(self._lasts_s / 2):
            self.poll()

    def _nodes(self, now_s: float) -> list[str]:
        found: set[str] = set()
        self._fleet.refresh_globals()
        for replica in self._fleet.clusters():
            replica.catch_up(self._fleet.store, self._clock, now_s)
            with replica.lock:
                found.update(record.nodename for record in replica.table.records)
        return sorted(found)
