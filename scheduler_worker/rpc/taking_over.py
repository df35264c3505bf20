"""Takes the place of a nova-scheduler that serves the same topic, once all hosts are known.

A nova-scheduler loses some of the requests that it gets while it stops, so it is to get none by
then. And a worker that does not know the hosts yet is to get no more than the other leaves.
"""

from collections.abc import Callable

from scheduler_worker.components import Periodic
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.rpc.serving.server import QueueServer

_LOOK_S, _DONE_S = 0.5, 3600.0


class TakingOver(Periodic):
    """Has a server come first when requests can be decided."""

    def __init__(self, server: QueueServer, unready: Callable[[], str | None]) -> None:
        """``unready`` says why requests must not be decided, and raises StateUnavailable."""
        super().__init__("taking over", self.run_due, _LOOK_S)
        self._server = server
        self._unready = unready

    def run_due(self) -> float:
        """Check whether it is time; returns the seconds until the next check."""
        try:
            if self._unready() is not None:
                return _LOOK_S
        except StateUnavailable:
            return _LOOK_S
        self._server.come_first()
        return _DONE_S
