"""Warns of server settings that endanger the shared state, at the start and periodically.

Settings can be changed while a server runs, and a failover may lead to one with other settings.
"""

import logging
from collections.abc import Callable, Sequence

from scheduler_worker.components import Periodic
from scheduler_worker.errors import StateUnavailable

LOG = logging.getLogger(__name__)

EVERY_S = 60.0


class Advice(Periodic):
    """Calls ``check`` for warnings, and logs each once for as long as it applies."""

    def __init__(self, check: Callable[[], Sequence[str]], *, every_s: float = EVERY_S) -> None:
        super().__init__("advice", self.run_due, every_s, first_s=every_s)
        self._find = check
        self._logged: frozenset[str] = frozenset()

    def check(self) -> None:
        """Check now. Raises StateUnavailable."""
        warnings = frozenset(self._find())
        for sentence in sorted(warnings - self._logged):
            LOG.warning(sentence)
        for sentence in sorted(self._logged - warnings):
            LOG.info("No longer applies: %s", sentence)
        self._logged = warnings

    def start(self) -> None:
        """Check now, then periodically in a thread. Raises StateUnavailable."""
        self.check()
        super().start()

    def run_due(self) -> float:
        """Check; returns the seconds until the next time."""
        try:
            self.check()
        except StateUnavailable:
            LOG.debug("The state's settings cannot be read", exc_info=True)
        return self._interval_s
