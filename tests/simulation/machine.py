"""Simulated threads that run one at a time, and a clock that jumps from one event to the next.

A thread runs until it blocks; then the next due thread runs. A seeded random source draws all
durations, so a seed determines the interleaving, and the same seed gives the same run.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pytest
from greenlet import GreenletExit, getcurrent, greenlet

Deed = Callable[[], object]

PREEMPTED = 0.1
"""How often a thread that wants a lock is overtaken by others first."""
OVERTAKEN_S = 0.003
"""After how long such a thread tries at the latest."""
SHORT_TURN_S, LONG_TURN_S = 0.0005, 0.02
"""When a preempted thread goes on: usually, and at the latest."""
_TICK_S = 1e-6
"""No time-out is shorter, or one that rounds to nothing would never pass."""


class Process(msgspec.Struct, eq=False):
    """A simulated process, which is paused and killed as a whole."""

    name: str
    is_preempted: bool = False
    is_alive: bool = True
    resumes_s: float = 0.0
    """Until then none of its threads runs."""
    threads: dict["Thread", None] = {}


class Thread(msgspec.Struct, eq=False):
    """A thread of a process."""

    process: Process
    greenlet: Any = None
    parkings: int = 0
    is_parked: bool = False
    is_woken: bool = False


class Machine:
    """Runs processes; ``now_s`` is the time of all of them."""

    def __init__(self, seed: str, source: type[random.Random] = random.Random) -> None:
        self._seed = seed
        self.random = source(seed)
        self.now_s = 0.0
        self.broken: list[tuple[str, BaseException]] = []
        """Threads that ended with an exception, by the name of their process."""
        self._due: list[tuple[float, float, int, Deed]] = []
        self._numbers = itertools.count()
        self._hub = getcurrent()
        self._running: Thread | None = None

    # Time

    def at(self, delay_s: float, deed: Deed) -> None:
        """Schedule a call that does not block. Calls that are due at once are made in any order."""
        rng = self.random.random()
        heapq.heappush(self._due, (self.now_s + delay_s, rng, next(self._numbers), deed))

    def run(self, until_s: float) -> None:
        """Let time pass.

        Each second has a random source of its own, so that dropping a deed of one changes little
        in the others.
        """
        due, second = self._due, -1
        while due and due[0][0] <= until_s:
            self.now_s, _, _, deed = heapq.heappop(due)
            if self.now_s >= second + 1:
                second = int(self.now_s)
                self.random.seed(f"{self._seed} {second}")
            deed()
        self.now_s = until_s

    # Threads

    @property
    def running(self) -> Thread:
        """The thread that calls; one of a dead process ends here."""
        thread = self._running
        assert thread is not None, "only a thread can block"
        if not thread.process.is_alive:
            raise GreenletExit
        return thread

    @property
    def runner(self) -> Process | None:
        return self._running.process if self._running else None

    def spawn(self, process: Process, target: Callable[..., object], *args: Any) -> Thread:
        thread = Thread(process)
        thread.greenlet = greenlet(partial(self._run, thread, target, args), parent=self._hub)
        thread.is_parked = True
        process.threads[thread] = None
        self.wake(thread)
        return thread

    def park(self, timeout_s: float | None = None) -> bool:
        """Block until another thread wakes this one; False on timeout."""
        thread = self.running
        thread.parkings += 1
        thread.is_parked, thread.is_woken = True, False
        if timeout_s is not None:
            self.at(max(_TICK_S, timeout_s), partial(self._resume, thread, thread.parkings))
        self._hub.switch()
        return thread.is_woken

    def sleep(self, seconds: float) -> None:
        self.park(seconds)

    def wake(self, thread: Thread) -> None:
        if thread.is_parked and not thread.is_woken:
            thread.is_woken = True
            self.at(0.0, partial(self._resume, thread, thread.parkings))

    def pause(self, process: Process, seconds: float) -> None:
        process.resumes_s = max(process.resumes_s, self.now_s + seconds)

    def kill(self, process: Process) -> None:
        """Stop all threads of the process; their cleanup code must have no effect outside."""
        process.is_alive = False
        for thread in list(process.threads):
            self.end(thread)

    def end(self, thread: Thread) -> None:
        """Throw a blocked thread out of whatever it waits for."""
        before, self._running = self._running, thread
        thread.is_parked = False
        try:
            if not thread.greenlet.dead:
                thread.greenlet.parent = getcurrent()  # where it goes on afterwards
                thread.greenlet.throw(GreenletExit)
        finally:
            self._running = before

    def give_way(self, rate: float, *, long: float) -> Callable[[], None]:
        """Called between two statements: preempts the thread at this rate.

        ``long`` is the share of long preemptions.
        """
        rng, left = self.random, 1.0

        def give_way() -> None:
            nonlocal left
            left -= 1.0
            if left > 0.0:
                return
            left = rng.expovariate(rate)
            thread = self._running
            if thread is not None and thread.process.is_preempted and thread.process.is_alive:
                longest_s = LONG_TURN_S if rng.random() < long else SHORT_TURN_S
                self.sleep(rng.uniform(0.0, longest_s))

        return give_way

    def _resume(self, thread: Thread, parking: int) -> None:
        process = thread.process
        if not thread.is_parked or thread.parkings != parking or not process.is_alive:
            return
        if process.resumes_s > self.now_s:
            self.at(process.resumes_s - self.now_s, partial(self._resume, thread, parking))
            return
        thread.is_parked = False
        self._running = thread
        thread.greenlet.switch()
        self._running = None

    def _run(self, thread: Thread, target: Callable[..., object], args: tuple[Any, ...]) -> None:
        try:
            target(*args)
        except GreenletExit:
            pass
        except BaseException as error:
            self.broken.append((thread.process.name, error))
        finally:
            del thread.process.threads[thread]

    # Replacements for ``threading``, ``time`` and ``random`` in the worker's modules

    @contextmanager
    def inside(self, *modules: Any) -> Iterator[None]:
        """Give the modules this machine's threads, clock and random source."""
        stand_ins = {
            "threading": SimpleNamespace(
                Lock=partial(Lock, self),
                RLock=partial(Lock, self, is_reentrant=True),
                Condition=partial(Condition, self),
                Event=partial(Event, self),
                Thread=partial(Starter, self),
                local=Local,
            ),
            "time": SimpleNamespace(
                monotonic=lambda: self.now_s, time=lambda: self.now_s, sleep=self.sleep
            ),
            "random": SimpleNamespace(uniform=self.random.uniform, Random=random.Random),
        }
        with pytest.MonkeyPatch.context() as patch:
            for module in modules:
                for name in stand_ins.keys() & vars(module).keys():
                    patch.setattr(module, name, stand_ins[name])
            yield


class Lock:
    """``threading.Lock`` and ``RLock``; waiters get it in any order."""

    def __init__(self, machine: Machine, *, is_reentrant: bool = False) -> None:
        self._machine = machine
        self._is_reentrant = is_reentrant
        self._holder: object = None
        self._depth = 0
        self._waiting: list[Thread] = []

    def acquire(self) -> bool:
        machine = self._machine
        process = machine.runner
        if process and process.is_preempted and machine.random.random() < PREEMPTED:
            machine.sleep(machine.random.uniform(0.0, OVERTAKEN_S))
        self.take(1)
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self.leave()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self, depth: int) -> None:
        """Acquire it to the given depth."""
        machine = self._machine
        me = machine._running or machine
        while self._depth > 0 and not (self._is_reentrant and self._holder is me):
            self._waiting.append(machine.running)
            machine.park()
            if machine.running in self._waiting:  # it was woken for another reason
                self._waiting.remove(machine.running)
        self._holder, self._depth = me, self._depth + depth

    def leave(self) -> int:
        """Release it entirely; return the depth."""
        depth, self._depth, self._holder = self._depth, 0, None
        if self._waiting:
            at = self._machine.random.randrange(len(self._waiting))
            self._machine.wake(self._waiting.pop(at))
        return depth


class Condition:
    """``threading.Condition`` over a lock of its own."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = Lock(machine, is_reentrant=True)
        self._waiting: dict[Thread, None] = {}

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        thread = self._machine.running
        depth = self._lock.leave()
        self._waiting[thread] = None
        try:
            return self._machine.park(timeout)
        finally:
            self._waiting.pop(thread, None)
            self._lock.take(depth)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        ends_s = None if timeout is None else self._machine.now_s + timeout
        while not (found := predicate()):
            left_s = None if ends_s is None else ends_s - self._machine.now_s
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return found

    def notify(self, n: int = 1) -> None:
        for thread in list(self._waiting)[:n]:
            del self._waiting[thread]
            self._machine.wake(thread)

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """``threading.Event``."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._is_set = False
        self._waiting: list[Thread] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            self._machine.wake(thread)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._waiting.append(self._machine.running)
            self._machine.park(timeout)
        return self._is_set


class Local:
    """``threading.local``."""

    def __init__(self) -> None:
        self.__dict__["_of"] = WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        try:
            return self._of[getcurrent()][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._of.setdefault(getcurrent(), {})[name] = value


class Starter:
    """``threading.Thread``, of the process that makes it."""

    def __init__(
        self,
        machine: Machine,
        target: Callable[..., object],
        args: tuple[Any, ...] = (),
        name: str = "",
        **_: object,
    ) -> None:
        self._machine = machine
        self._target, self._args = target, args
        self.name = name
        self.ident: int | None = None
        self._has_ended = Event(machine)

    def start(self) -> None:
        self.ident = id(self)
        self._machine.spawn(self._machine.running.process, self._run)

    def is_alive(self) -> bool:
        return self.ident is not None and not self._has_ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        self._has_ended.wait(timeout)

    def _run(self) -> None:
        try:
            self._target(*self._args)
        finally:
            self._has_ended.set()
