"""Slots: how much is worked on at a time."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import wait

import pytest

from scheduler_worker.pauses import Pause
from scheduler_worker.rpc.slots import Slots

SOON_S = 10.0


class Gate:
    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self) -> None:
        self.entered.release()
        assert self.opened.wait(SOON_S)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.opened.set()


def test_work_gives_its_result_or_its_error():
    slots = Slots(2, "t")
    assert slots.submit(lambda a, b=0: a + b, 1, b=2).result(SOON_S) == 3
    with pytest.raises(ZeroDivisionError):
        slots.submit(lambda: 1 / 0).result(SOON_S)


def test_as_much_at_a_time_as_slots_and_in_order(gate):
    slots, done = Slots(2, "t"), queue.SimpleQueue()
    held = [slots.submit(gate) for _ in range(2)]
    for _ in held:
        assert gate.entered.acquire(timeout=SOON_S)
    later = [slots.submit(done.put, number) for number in range(2)]
    assert (slots.running, slots.waiting) == (2, 2)
    assert done.empty()
    gate.opened.set()
    wait(held + later, SOON_S)
    assert {done.get(timeout=SOON_S) for _ in later} == {0, 1}


def test_who_steps_aside_is_replaced_and_goes_on_afterwards():
    slots = Slots(1, "t")
    aside, back = threading.Event(), threading.Event()

    def stepping() -> str:
        with slots.step_aside():
            aside.set()
            assert back.wait(SOON_S)
        return "done"

    first = slots.submit(stepping)
    assert aside.wait(SOON_S)
    assert slots.submit(lambda: "served").result(SOON_S) == "served"
    back.set()
    assert first.result(SOON_S) == "done"


def test_after_stepping_aside_there_are_no_more_than_the_slots(gate):
    slots = Slots(1, "t")

    def stepping() -> None:
        with slots.step_aside():
            slots.submit(lambda: None).result(SOON_S)

    for _ in range(5):
        slots.submit(stepping).result(SOON_S)
    slots.submit(gate)
    assert gate.entered.acquire(timeout=SOON_S)
    second = slots.submit(lambda: None)
    assert not gate.entered.acquire(timeout=0.05)
    assert not second.done()
    assert slots.running == 1


def test_a_shutdown_finishes_or_forgets_what_waits(gate):
    slots = Slots(1, "t")
    slots.submit(gate)
    assert gate.entered.acquire(timeout=SOON_S)
    waiting = slots.submit(lambda: None)
    slots.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError):
        slots.submit(lambda: None)
    gate.opened.set()
    slots.shutdown(wait=True)
    assert slots.running == 0


def test_what_was_cancelled_is_not_begun(gate):
    slots, begun = Slots(1, "t"), []
    slots.submit(gate)
    assert gate.entered.acquire(timeout=SOON_S)
    cancelled = slots.submit(begun.append, 1)
    assert cancelled.cancel()
    gate.opened.set()
    assert slots.submit(lambda: "next").result(SOON_S) == "next"
    assert begun == []


def test_a_pause_leaves_the_slot_to_others():
    slots, pause, paused = Slots(1, "t"), Pause(), threading.Event()

    async def pausing() -> str:
        paused.set()
        await pause
        return threading.current_thread().name

    first = slots.submit(pausing)
    assert paused.wait(SOON_S)
    assert slots.submit(lambda: "served").result(SOON_S) == "served"
    assert (slots.running, first.done()) == (1, False)
    pause.end()
    assert first.result(SOON_S) == "t-1"


def test_the_error_of_a_coroutine_is_its_works():
    async def breaking() -> None:
        pause = Pause()
        pause.end()
        await pause
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Slots(1, "t").submit(breaking).result(SOON_S)


async def pausing(pause: Pause, paused: threading.Event, answer: str) -> str:
    paused.set()
    await pause
    return answer


def test_what_has_begun_ends_though_the_slots_are_closed():
    slots, pause, paused = Slots(1, "t"), Pause(), threading.Event()

    first = slots.submit(pausing, pause, paused, "done")
    assert paused.wait(SOON_S)
    slots.shutdown(wait=False, cancel_futures=True)
    pause.end()
    assert first.result(SOON_S) == "done"


def test_a_thread_that_runs_is_left_to_come_unless_it_does_not(gate):
    slots = Slots(2, "t", eager=False)
    slots.submit(gate)
    assert gate.entered.acquire(timeout=SOON_S)
    second = slots.submit(lambda: "helped")
    assert not slots._idle
    slots.look_after()  # somebody came since the call before: the first thread, for the first work
    assert slots.look_after()
    assert second.result(SOON_S) == "helped"
    assert slots.look_after(), "the first one runs still, and may leave work behind"
    gate.opened.set()
    slots.shutdown(wait=True)
    assert not slots.look_after()


def test_who_goes_on_is_helped_too_when_its_thread_is_busy_elsewhere(gate):
    slots, pause, paused = Slots(2, "t", eager=False), Pause(), threading.Event()

    first = slots.submit(pausing, pause, paused, "on")
    assert paused.wait(SOON_S)

    def leading() -> None:
        pause.end()
        gate()

    slots.submit(leading)
    assert gate.entered.acquire(timeout=SOON_S)
    while not first.done():
        assert slots.look_after()
    assert first.result(SOON_S) == "on"
