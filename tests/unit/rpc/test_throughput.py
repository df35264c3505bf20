"""The estimated time for a message behind others."""

from __future__ import annotations

import pytest

from scheduler_worker.rpc.serving.queue_delay import Throughput


def after(*finished_s: float) -> Throughput:
    throughput = Throughput()
    throughput.begun(0.0)
    for at_s in finished_s:
        throughput.finished(at_s)
    return throughput


def test_a_message_with_none_ahead_is_never_late() -> None:
    assert after(10, 20, 30, 40, 50).expected_s(0, 50.0) == 0.0


def test_nothing_is_estimated_from_few_samples() -> None:
    assert after(1, 2, 3).expected_s(10, 3.0) == 0.0


def test_the_estimate_is_work_in_flight_divided_by_throughput() -> None:
    assert after(1, 2, 3, 4).expected_s(9, 4.0) == pytest.approx(10.0)
    together = after(4, 4, 4, 4)
    assert together.expected_s(9, 4.0) == pytest.approx(10.0)


def test_a_standstill_lowers_the_throughput_while_it_lasts() -> None:
    throughput = after(1, 2, 3, 4)
    assert throughput.expected_s(1, 40.0) == pytest.approx(20.0)


def test_samples_before_an_idle_time_do_not_count() -> None:
    throughput = after(1, 2, 3, 4)
    throughput.begun(100.0)
    assert throughput.expected_s(9, 100.0) == 0.0
    for number in range(1, 5):
        throughput.finished(100.0 + number / 10)
    assert throughput.expected_s(9, 100.4) == pytest.approx(1.0)
