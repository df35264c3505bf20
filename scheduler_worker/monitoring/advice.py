"""Warns of server settings that endanger the shared state, at the start and periodically.

Settings can be changed while a server runs, and a failover may lead to one with other settings.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from scheduler_worker.errors import StateUnavailable

LOG = logging.getLogger(__name__)

EVERY_S = 60.0


class Advice:
    """Calls ``check`` for warnings, and logs each once for as long as it applies."""

    def __init__(self, check: Callable[[], Sequence[str]], *, every_s: float = EVERY_S) -> None:
        self._find = check
        self._every_s = every_s
        self._logged: frozenset[str] = frozenset()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="advice", daemon=True)

    def check(self) -> None:
        """Check now. Raises StateUnavailable."""
        found = frozenset(self._find())
        for sentence in sorted(found - self._logged):
            LOG.warning(sentence)
        for sentence in sorted(self._logged - found):
            LOG.info("No longer applies: %s", sentence)
        self._logged = found

    def start(self) -> None:
        """Check now, then periodically in a thread. Raises StateUnavailable."""
        self.check()
        self._thread.start()

    def stop(self) -> None:
        """Stop checking."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self.check()
            except StateUnavailable:
                LOG.debug("The state's settings cannot be read", exc_info=True)
