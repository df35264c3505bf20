"""Waiters: coroutines that wait without a thread."""

from scheduler_worker.waiters import Waiter, complete


def test_a_waiter_may_be_ended_twice_and_blocks_nobody_afterwards():
    waiter, resumed = Waiter(), []
    waiter.then(lambda: resumed.append(1))
    assert resumed == []
    waiter.end()
    waiter.end()
    assert resumed == [1]

    async def wait() -> str:
        await waiter
        return "on"

    assert complete(wait()) == "on"
