"""One hold of a cluster's lock serves many requests.

Requests that want the same cluster line up here. The first becomes the leader and waits for the
lock on behalf of all; whoever joined meanwhile is served under the same hold, at most
``max_batch`` of them. Then the leader steps down, and the next in line leads. With nobody else
about, a batch is one request and costs nothing extra.

The line is in order of arrival, where each request counts as if it had come earlier by its head
start. All wait at the same pace, so a head start never grows: nobody is overtaken by a request
that comes later than the largest head start after it.
"""

from __future__ import annotations

import threading
from bisect import insort_left, insort_right
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, cast

from scheduler_worker.pauses import Pause

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Job(Generic[Asked, Answer]):
    """A request in line, and its outcome once it has one. Times are of the monotonic clock."""

    def __init__(
        self,
        asked: Asked,
        deadline_s: float,
        *,
        arrived_s: float = 0.0,
        head_start_s: float = 0.0,
    ) -> None:
        self.asked = asked
        self.deadline_s = deadline_s
        self.head_start_s = head_start_s
        self.rank_s = arrived_s - head_start_s
        self.attempts = 0
        self.leads = False
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self.done = False
        self.turn = Pause()
        """Ends when it is settled, or leads."""

    def succeed(self, answer: Answer) -> None:
        """Settle it."""
        self._answer, self.done = answer, True
        self.turn.end()

    def fail(self, error: BaseException) -> None:
        """Settle it with an error."""
        self._error, self.done = error, True
        self.turn.end()

    def lead(self) -> None:
        """It leads from now on."""
        self.leads = True
        self.turn.end()

    def result(self) -> Answer:
        if self._error is not None:
            raise self._error
        return cast("Answer", self._answer)


class Ranked(Generic[Asked, Answer]):
    """Jobs in the order of their turns: by rank, then as they came."""

    def __init__(self) -> None:
        self._jobs: list[Job[Asked, Answer]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job[Asked, Answer]]:
        return iter(self._jobs)

    def add(self, job: Job[Asked, Answer]) -> None:
        """A job comes."""
        insort_right(self._jobs, job, key=_rank_s)

    def put_back(self, job: Job[Asked, Answer]) -> None:
        """A job that was taken comes back, before those of its rank."""
        insort_left(self._jobs, job, key=_rank_s)

    def take(self, count: int) -> list[Job[Asked, Answer]]:
        """The first jobs, at most so many."""
        taken = self._jobs[:count]
        del self._jobs[:count]
        return taken

    def take_overdue(self, now_s: float) -> list[Job[Asked, Answer]]:
        """The jobs whose deadline is over."""
        overdue = [job for job in self._jobs if job.deadline_s <= now_s]
        self._jobs = [job for job in self._jobs if job.deadline_s > now_s]
        return overdue


class Batch(Generic[Asked, Answer]):
    """The line of one cluster in this process.

    ``serve(take)`` is called by the leader: it gets the lock, calls ``take()`` for the jobs, and
    settles them; a job it leaves unsettled goes back to its place in the line.
    """

    def __init__(
        self,
        serve: Callable[[Callable[[], Sequence[Job[Asked, Answer]]]], None],
        *,
        max_batch: int,
    ) -> None:
        self._serve = serve
        self._max_batch = max_batch
        self._line: Ranked[Asked, Answer] = Ranked()
        self._taken: list[Job[Asked, Answer]] = []
        self._has_leader = False
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Job[Asked, Answer]]:
        """Those in line now, for who only looks."""
        return iter(list(self._line))

    async def submit(self, job: Job[Asked, Answer]) -> Answer:
        """Line up, lead when it is this job's turn, and return (or raise) the outcome."""
        with self._lock:
            self._line.add(job)
            if not self._has_leader:
                self._has_leader = True
                job.lead()
        await job.turn  # even if it leads: those that came with it line up first
        while not job.done:
            self._lead_once()
        if job.leads:
            self._step_down()
        return job.result()

    def is_awaited(self) -> bool:
        """Whether somebody is in line; then somebody will lead next."""
        return bool(self._line)

    def urgency(self) -> tuple[float, float]:
        """The earliest deadline in the line, infinite for an empty one; its first's head start."""
        with self._lock:
            earliest_s = min((job.deadline_s for job in self._line), default=float("inf"))
            return earliest_s, next((job.head_start_s for job in self._line), 0.0)

    def drop_overdue(self, now_s: float) -> list[Job[Asked, Answer]]:
        """Take those out of the line whose deadline is over."""
        with self._lock:
            return self._line.take_overdue(now_s)

    def _lead_once(self) -> None:
        try:
            self._serve(self._take)
        except BaseException as error:
            self._fail_all(error)
        with self._lock:
            for job in reversed(self._taken):
                if not job.done:
                    self._line.put_back(job)
            self._taken = []

    def _fail_all(self, error: BaseException) -> None:
        """What failed for the jobs at hand, or before any was taken, failed for the whole line."""
        with self._lock:
            failed = self._taken or self._line.take(len(self._line))
            self._taken = []
        for each in failed:
            if not each.done:
                each.fail(error)

    def _take(self) -> Sequence[Job[Asked, Answer]]:
        with self._lock:
            self._taken = self._line.take(self._max_batch)
            return self._taken

    def _step_down(self) -> None:
        with self._lock:
            following = next(iter(self._line), None)
            if following is not None:
                following.lead()
            else:
                self._has_leader = False


def _rank_s(job: Job[Asked, Answer]) -> float:
    return job.rank_s
