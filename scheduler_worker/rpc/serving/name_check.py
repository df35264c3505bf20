"""Notices another server that has our name: each then misses messages that the other gets."""

from __future__ import annotations

import logging

from scheduler_worker.rpc.serving.settings import QueueNames

LOG = logging.getLogger(__name__)

CHECK_S = 30.0
"""How often the consumers of our own queue are counted."""
_SIGHTINGS = 2
"""How many counts in succession it takes: after a reconnect the broker may still count the
connection that we lost."""


class NameCheck:
    """Counts in succession that found more than one consumer of the server's own queue."""

    def __init__(self, names: QueueNames) -> None:
        self._names = names
        self._sightings = 0

    @property
    def has_found(self) -> bool:
        """Whether another server runs under our name."""
        return self._sightings >= _SIGHTINGS

    def counted(self, consumers: int) -> None:
        """The broker has counted the consumers of our own queue."""
        had_found = self.has_found
        self._sightings = self._sightings + 1 if consumers > 1 else 0
        if self.has_found and not had_found:
            LOG.warning(
                "Another worker runs under the name %s: the queue %s has %d consumers, and what is "
                "sent to one or to all reaches only one of them. Give each worker its own "
                "[DEFAULT] host; RabbitMQ shows where they are as the names of their connections",
                self._names.server,
                self._names.own_queue,
                consumers,
            )
        elif had_found and not self.has_found:
            LOG.info("No other worker runs under the name %s any more", self._names.server)
