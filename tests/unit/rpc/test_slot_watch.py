"""When the slots are checked for work that no thread takes."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_worker.rpc.serving.execution import SlotWatch


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
