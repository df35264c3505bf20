"""Work for Placement, and for other sources of hosts, done by a bounded number of threads.

While Placement is away jobs wait until their deadlines; no thread pauses with them.
"""

import logging
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Generic, TypeVar

from scheduler_worker.errors import PlacementUnavailable, SchedulerWorkerError, WorkerStops
from scheduler_worker.ports import Clock
from scheduler_worker.service.state.waits import DeadlineWatch
from scheduler_worker.waiters import Deferred

LOG = logging.getLogger(__name__)

_SHORTEST_S, LONGEST_S = 1.0, 10.0
"""Bounds of how long one request to Placement may take."""
FOR_THE_ANSWER = 0.1
"""The share of a caller's time that is left for the answer."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
T = TypeVar("T")
Answer = TypeVar("Answer")


def deadline_of(now_s: float, caller_deadline_s: float, timeout_s: float, *, kept: float) -> float:
    """Until when a request waits: this share of its caller's time is kept for what follows.

    ``timeout_s`` is how long it waits if its caller does not say.
    """
    left_s = caller_deadline_s - now_s
    return now_s + (left_s * (1 - kept) if math.isfinite(left_s) else timeout_s)


class Pauses:
    """Until when something is left alone: growing times of random length between its attempts.

    Random lengths let jobs that collided go on apart.
    """

    def __init__(self) -> None:
        self.until_s = -math.inf
        self._longest_s = _FIRST_PAUSE_S

    def begin(self, now_s: float, until_s: float) -> None:
        """Pause from now on, but not beyond ``until_s``; seconds of the monotonic clock."""
        self.until_s = min(now_s + random.uniform(0, self._longest_s), until_s)
        self._longest_s = min(2 * self._longest_s, _LONGEST_PAUSE_S)

    def end(self) -> None:
        """No pause is under way, and the next one is a first one."""
        self.until_s, self._longest_s = -math.inf, _FIRST_PAUSE_S


class Job(Deferred[T]):
    """What one request waits for, at most until ``deadline_s`` of the monotonic clock."""

    def __init__(self, deadline_s: float = math.inf) -> None:
        super().__init__()
        self.deadline_s = deadline_s
        self.pauses = Pauses()
        self.trouble: SchedulerWorkerError | None = None
        """Why it has not been done yet."""

    @property
    def keys(self) -> frozenset[Hashable]:
        """What no other thread may work on meanwhile."""
        raise NotImplementedError

    def fail_late(self) -> None:
        """Its time is over."""
        self.fail(self.trouble or PlacementUnavailable("it was too slow for the caller"))


AnyJob = TypeVar("AnyJob", bound=Job)  # type: ignore[type-arg]


class JobThreads(Generic[AnyJob]):
    """The threads, started as they are needed, and the jobs that wait for them."""

    def __init__(self, clock: Clock, *, name: str, workers: int) -> None:
        """``name`` is that of the threads."""
        self._clock = clock
        self._name = name
        self._workers = workers
        # Guards all below. Placement is asked, and jobs end, without it. The lock of the deadlines
        # is taken under it, and never before it.
        self._changed = threading.Condition()
        self._jobs: deque[AnyJob] = deque()
        self._busy: set[Hashable] = set()
        """The keys of what threads work on now."""
        self._threads = self._idle = self._started = 0
        self._closing = self._hurrying = False
        self._away = Pauses()
        """While Placement is away."""
        self._deadlines = DeadlineWatch(clock, self._end_late, f"{name}-deadlines")

    def submit(self, job: AnyJob) -> None:
        """Do it as soon as a thread is free; the job has its outcome then."""
        # By the slot of the request, which then waits without its thread.
        with self._changed:
            if not self._closing:
                self._jobs.append(job)
                self._wake()
                self._deadlines.set(job.deadline_s)
                return
        job.fail(WorkerStops("The worker stops; try again."))

    def stop_waiting(self) -> None:
        """From now on try jobs that pause once more, and let none pause again."""
        with self._changed:
            self._hurrying = True
            self._changed.notify_all()

    def close(self, timeout_s: float = 0.0) -> list[AnyJob]:
        """End after what is begun; fail and return the jobs that were not done in time."""
        with self._changed:
            self._closing = self._hurrying = True
            self._changed.notify_all()
            # The wait gives the lock up, so threads that are not done yet can end their jobs.
            if timeout_s:
                self._changed.wait_for(lambda: not self._threads, timeout_s)
            unfinished = list(self._jobs)
            self._jobs.clear()
        for job in unfinished:
            job.fail(WorkerStops("The worker stops; try again."))
        return unfinished

    def _take(self, now_s: float) -> list[AnyJob]:
        """Remove and return what a thread is to do next; called under the lock."""
        raise NotImplementedError

    def _do(self, batch: list[AnyJob]) -> None:
        """Do these jobs, or put them off."""
        raise NotImplementedError

    def _pauses_until_s(self, job: AnyJob) -> float:
        return -math.inf if self._hurrying else max(job.pauses.until_s, self._away.until_s)

    def _is_in_time(self, job: AnyJob) -> bool:
        if self._clock.monotonic_s() < job.deadline_s:
            return True
        job.fail_late()
        return False

    def _time_for(self, deadline_s: float) -> float:
        """How long a request to Placement may take."""
        return min(max(deadline_s - self._clock.monotonic_s(), _SHORTEST_S), LONGEST_S)

    def _put_off(self, jobs: Sequence[AnyJob], trouble: SchedulerWorkerError) -> None:
        """Try them again after a pause, unless the worker stops or their time is over by then."""
        with self._changed:
            if not self._hurrying:
                now_s = self._clock.monotonic_s()
                is_away = isinstance(trouble, PlacementUnavailable)
                for job in jobs:
                    job.trouble = trouble
                    if not is_away:
                        job.pauses.begin(now_s, job.deadline_s)
                if is_away:
                    self._away.begin(now_s, min(job.deadline_s for job in jobs))
                self._jobs.extendleft(reversed(jobs))
                self._deadlines.set(min(job.deadline_s for job in jobs))
                return
        for job in jobs:
            job.fail(WorkerStops(f"The worker stops; try again. {trouble}"))

    def _end_late(self, now_s: float) -> float:
        """Fail the waiting jobs whose time is over, though all threads work; the next deadline."""
        with self._changed:
            late = [job for job in self._jobs if job.deadline_s <= now_s]
            self._jobs = deque(job for job in self._jobs if job not in late)
            next_s = min((job.deadline_s for job in self._jobs), default=math.inf)
        # No longer in the queue, so no thread of Placement can take them meanwhile.
        for job in late:
            job.fail_late()
        return next_s

    # Threads

    def _wake(self) -> None:
        if self._idle:
            self._changed.notify()
        elif self._threads < self._workers:
            self._threads += 1
            self._started += 1
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                batch = self._await_work()
                if not batch:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                keys = frozenset[Hashable]().union(*(job.keys for job in batch))
                self._busy |= keys
                if self._jobs and self._idle:
                    self._changed.notify()  # the batch may be full, or its jobs ended others' wait
            # Without the lock, for up to 10 s a request to Placement. It catches what may fail: an
            # error here would end the thread, and leave its keys busy for ever.
            self._do(batch)
            with self._changed:
                self._busy -= keys
                if self._idle:
                    self._changed.notify()  # what waited for these keys

    def _await_work(self) -> list[AnyJob]:
        """The next jobs; none at the end."""
        now_s = self._clock.monotonic_s()
        while True:
            batch = self._take(now_s)
            if batch or self._closing:
                return batch
            ends_s = map(self._pauses_until_s, self._jobs)
            next_s = min((end_s for end_s in ends_s if end_s > now_s), default=None)
            self._idle += 1
            is_woken = self._changed.wait(None if next_s is None else next_s - now_s)
            self._idle -= 1
            now_s = self._clock.monotonic_s()
            if next_s is not None and not is_woken:
                now_s = max(now_s, next_s)


class Question(Job[Answer]):
    """What a request wants to know.

    ``ask`` gets the seconds that an attempt may take, and what all questions of the ``key`` that
    are asked together are about.
    """

    def __init__(
        self,
        key: Hashable,
        ask: Callable[[float, Collection[str]], Answer],
        deadline_s: float,
        about: Collection[str] = (),
    ) -> None:
        super().__init__(deadline_s)
        self.key = key
        self.ask = ask
        self.about = about

    @property
    def keys(self) -> frozenset[Hashable]:
        """The key alone."""
        return frozenset((self.key,))


class Singleflight(JobThreads[Question[Answer]]):
    """Asks questions; questions of one key that wait together are asked once."""

    def _take(self, now_s: float) -> list[Question[Answer]]:
        for first in self._jobs:
            if self._pauses_until_s(first) <= now_s and first.key not in self._busy:
                alike = [job for job in self._jobs if job.key == first.key]
                self._jobs = deque(job for job in self._jobs if job.key != first.key)
                return alike
        return []

    def _do(self, batch: list[Question[Answer]]) -> None:
        alike = [each for each in batch if self._is_in_time(each)]
        if not alike:
            return
        about = {each for one in alike for each in one.about}
        try:
            answer = alike[0].ask(self._time_for(max(each.deadline_s for each in alike)), about)
            self._away.end()
        except PlacementUnavailable as error:
            self._put_off(alike, error)
        except Exception as error:
            for each in alike:
                each.fail(error)
        else:
            for each in alike:
                each.succeed(answer)
