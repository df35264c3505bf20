"""Requests of one process that wait for a cluster's lock, ordered by rank. Pure.

A request's rank is its arrival time less its priority boost. Ranks do not change while requests
wait, so a request is overtaken only by requests that arrive at most the largest priority boost
after it: none starves.
"""

from bisect import insort_left, insort_right
from operator import attrgetter

from scheduler_worker.model.decisions import Decision
from scheduler_worker.service.state.attempt import PlacementAttempt
from scheduler_worker.service.state.waits import Deferred

_rank_s = attrgetter("rank_s")


class QueuedRequest(Deferred[Decision]):
    """A request in a cluster queue. It is resumed when it is settled or becomes the leader."""

    def __init__(
        self, attempt: PlacementAttempt, *, deadline_s: float, priority_boost_s: float = 0.0
    ) -> None:
        super().__init__()
        self.attempt = attempt
        self.deadline_s = deadline_s
        """Until when it waits to be decided, in seconds of the monotonic clock."""
        self.priority_boost_s = priority_boost_s
        self.rank_s = attempt.arrived_s - priority_boost_s
        self.decided = 0
        """How often it was decided."""
        self.leads = False

    def lead(self) -> None:
        """Make the request the leader of its queue."""
        self.leads = True
        self.end()


class WaitingList(list[QueuedRequest]):
    """Queued requests by rank; equal ranks in the order of their arrival."""

    def add(self, queued: QueuedRequest) -> None:
        """Insert a new request, behind the requests of its rank."""
        insort_right(self, queued, key=_rank_s)

    def put_back(self, queued: QueuedRequest) -> None:
        """Insert a request that was taken, before the requests of its rank."""
        insort_left(self, queued, key=_rank_s)

    def take(self, count: int) -> list[QueuedRequest]:
        """Remove and return the first requests, at most ``count``."""
        taken = self[:count]
        del self[:count]
        return taken

    def take_overdue(self, now_s: float) -> list[QueuedRequest]:
        """Remove and return the requests whose deadline has passed."""
        # Ranks say nothing of deadlines: the last in the queue may have the first one.
        overdue = [queued for queued in self if queued.deadline_s <= now_s]
        self[:] = [queued for queued in self if queued.deadline_s > now_s]
        return overdue
