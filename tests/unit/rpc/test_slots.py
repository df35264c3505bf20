"""Slots: how many pieces of work run at a time."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import pytest

from scheduler_worker.rpc.serving.handling import SlotWatch
from scheduler_worker.rpc.slots import Slots, Task
from scheduler_worker.waiters import Waiter
from tests.support.patience import SOON_S, eventually


def submitted(
    slots: Slots, function: Callable[..., Any], *arguments: Any
) -> tuple[Future[Any], Task]:
    """The result of a function, or of its coroutine, that a slot calls."""
    future: Future[Any] = Future()

    async def work() -> None:
        found = function(*arguments)
        future.set_result(await found if hasattr(found, "send") else found)

    return future, slots.submit(work)


def submit(slots: Slots, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    return submitted(slots, function, *arguments)[0]


def test_an_error_of_work_is_logged_and_its_slot_goes_on(caplog):
    slots = Slots(1, "t")
    submit(slots, lambda: 1 / 0)
    assert submit(slots, lambda a, b: a + b, 1, 2).result(SOON_S) == 3
    assert "ZeroDivisionError" in caplog.text
    assert slots.stuck() is None


def test_as_many_run_as_there_are_slots_in_fifo_order(gate):
    slots, done = Slots(2, "t"), queue.SimpleQueue()
    held = [submit(slots, gate) for _ in range(2)]
    for _ in held:
        slots.ensure_progress()
    gate.wait_for(2)
    later = [submit(slots, done.put, number) for number in range(2)]
    assert (slots.running, slots.waiting) == (2, 2)
    assert done.empty()
    gate.opened.set()
    wait(held + later, SOON_S)
    assert {done.get(timeout=SOON_S) for _ in later} == {0, 1}


def test_idle_is_a_thread_that_has_done_all_that_was_ready(gate):
    idle, done = queue.SimpleQueue(), []
    slots = Slots(1, "t", on_idle=lambda: idle.put(done.copy()))
    submit(slots, gate)
    for number in range(2):
        submit(slots, done.append, number)
    gate.opened.set()
    assert idle.get(timeout=SOON_S) == [0, 1]


def test_a_shutdown_cancels_what_waits_and_finishes_what_runs(gate):
    slots = Slots(1, "t")
    submit(slots, gate)
    gate.wait_for(1)
    _, waiting = submitted(slots, lambda: None)
    slots.shutdown(wait=False)
    assert waiting.is_cancelled
    with pytest.raises(RuntimeError):
        submit(slots, lambda: None)
    gate.opened.set()
    slots.shutdown(wait=True)
    assert slots.running == 0


def test_cancelled_work_is_not_begun(gate):
    slots, begun = Slots(1, "t"), []
    submit(slots, gate)
    gate.wait_for(1)
    _, cancelled = submitted(slots, begun.append, 1)
    assert cancelled.cancel()
    assert cancelled.cancel(), "and again"
    gate.opened.set()
    assert submit(slots, lambda: "next").result(SOON_S) == "next"
    assert begun == []


async def suspending(waiter: Waiter, suspended: threading.Event) -> str:
    """The name of the thread that goes on with it."""
    suspended.set()
    await waiter
    return threading.current_thread().name


def test_a_suspended_coroutine_leaves_its_slot_to_others():
    slots, waiter, suspended = Slots(1, "t"), Waiter(), threading.Event()
    first = submit(slots, suspending, waiter, suspended)
    assert suspended.wait(SOON_S)
    assert submit(slots, lambda: "served").result(SOON_S) == "served"
    eventually(lambda: (slots.running, first.done()) == (1, False))
    waiter.end()
    assert first.result(SOON_S) == "t-1"


def test_a_suspended_coroutine_is_finished_after_a_shutdown():
    slots, waiter, suspended = Slots(1, "t"), Waiter(), threading.Event()
    first = submit(slots, suspending, waiter, suspended)
    assert suspended.wait(SOON_S)
    slots.shutdown(wait=False)
    waiter.end()
    assert first.result(SOON_S).startswith("t-"), "in its thread, or in a new one if that has ended"


def test_another_thread_is_woken_only_when_the_running_one_takes_nothing(gate):
    slots = Slots(2, "t")
    submit(slots, gate)
    gate.wait_for(1)
    second = submit(slots, lambda: "done elsewhere")
    assert not slots._idle
    slots.ensure_progress()  # the first thread has taken the first work since the call before
    assert slots.ensure_progress()
    assert second.result(SOON_S) == "done elsewhere"
    assert slots.ensure_progress(), "the first thread still runs, and may leave work behind"
    gate.opened.set()
    slots.shutdown(wait=True)
    assert not slots.ensure_progress()


def test_a_resumed_coroutine_gets_another_thread_when_its_own_is_busy(gate):
    slots, waiter, suspended = Slots(2, "t"), Waiter(), threading.Event()
    first = submit(slots, suspending, waiter, suspended)
    assert suspended.wait(SOON_S)

    def leading() -> None:
        waiter.end()
        gate()

    submit(slots, leading)
    gate.wait_for(1)
    while not first.done():
        assert slots.ensure_progress()
    assert first.result(SOON_S).startswith("t-")


def test_stuck_work_is_reported(gate):
    slots = Slots(1, "t", stuck_after_s=0.0)
    assert slots.stuck() is None
    running = submit(slots, gate)
    gate.wait_for(1)
    assert "has worked on a request for" in slots.stuck()  # type: ignore[operator]
    gate.opened.set()
    running.result(SOON_S)
    eventually(lambda: slots.stuck() is None)


# When the slots are checked for work that no thread takes


class Stage:
    """A loop whose timers the test runs, and slots with scripted progress."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []
        self._callbacks: list[Any] = []
        self.waiting = 0
        self.is_busy = True

    def call_later(self, delay_s: float, callback: Any) -> None:
        self.delays_s.append(delay_s)
        self._callbacks.append(callback)

    def ensure_progress(self) -> bool:
        return self.is_busy

    def run_timers(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for each in callbacks:
            each()


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def watch(stage) -> SlotWatch:
    return SlotWatch(stage, stage)


def test_checks_become_rarer_while_nothing_waits_and_end_with_the_work(stage, watch):
    watch.submitted()
    for _ in range(8):
        stage.run_timers()
    assert stage.delays_s == sorted(stage.delays_s)
    assert stage.delays_s[-1] == stage.delays_s[-2] <= 0.05
    stage.is_busy = False
    stage.run_timers()
    checks = len(stage.delays_s)
    stage.run_timers()
    assert len(stage.delays_s) == checks


def test_waiting_work_is_checked_soon_and_once(stage, watch):
    watch.submitted()
    watch.submitted()
    assert len(stage.delays_s) == 1
    stage.run_timers()
    stage.run_timers()
    assert stage.delays_s[-1] > stage.delays_s[0]
    watch.submitted()
    assert stage.delays_s[-1] == stage.delays_s[0]
    stage.waiting = 1
    stage.run_timers()
    assert stage.delays_s[-1] == stage.delays_s[0]
    checks = len(stage.delays_s)
    stage.run_timers()
    assert len(stage.delays_s) == checks + 1, "the slower check was replaced"
