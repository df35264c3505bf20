"""Pauses: what waits without a thread."""

from __future__ import annotations

import threading

from scheduler_worker.pauses import Pause, complete


async def wait_for(pause: Pause, result: str) -> str:
    await pause
    return result


def test_a_coroutine_that_never_pauses_is_run_to_its_end():
    async def answer() -> int:
        return 42

    assert complete(answer()) == 42


def test_a_pause_that_has_ended_holds_nobody_up():
    pause = Pause()
    pause.end()
    pause.end()
    assert complete(wait_for(pause, "on")) == "on"


def test_another_thread_ends_a_pause():
    pause, begun = Pause(), threading.Event()

    async def asking() -> str:
        begun.set()
        return await wait_for(pause, "on")

    ends = threading.Thread(target=lambda: begun.wait(10) and pause.end())
    ends.start()
    assert complete(asking()) == "on"
    ends.join()


def test_who_runs_the_coroutine_hears_of_the_end_once():
    pause, heard = Pause(), []
    pause.then(lambda: heard.append(1))
    assert heard == []
    pause.end()
    pause.end()
    assert heard == [1]
