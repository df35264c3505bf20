"""Waiters: coroutines that wait without a thread."""

import threading

from scheduler_worker.waiters import Waiter, complete
from tests.support.patience import SOON_S


async def wait_for(waiter: Waiter, result: str) -> str:
    await waiter
    return result


def test_a_coroutine_that_awaits_nothing_is_run_to_its_end():
    async def answer() -> int:
        return 42

    assert complete(answer()) == 42


def test_an_ended_waiter_does_not_block():
    waiter = Waiter()
    waiter.end()
    waiter.end()
    assert complete(wait_for(waiter, "on")) == "on"


def test_a_waiter_is_ended_by_another_thread():
    waiter, begun = Waiter(), threading.Event()

    async def waiting() -> str:
        begun.set()
        return await wait_for(waiter, "on")

    ends = threading.Thread(target=lambda: begun.wait(SOON_S) and waiter.end(), daemon=True)
    ends.start()
    assert complete(waiting()) == "on"
    ends.join()


def test_the_runner_is_called_back_once():
    waiter, resumed = Waiter(), []
    waiter.then(lambda: resumed.append(1))
    assert resumed == []
    waiter.end()
    waiter.end()
    assert resumed == [1]
