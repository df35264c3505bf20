"""The delay of a queue, measured by pings, and the time for a message behind others."""

from heapq import heapify, heappop, heappush
from itertools import accumulate, count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.rpc.serving.queue_delay import (
    LONGEST_S,
    SHORTEST_INTERVAL_S,
    QueueDelay,
    Throughput,
)


def sent(delay: QueueDelay, name: str, now_s: float) -> None:
    delay.sent(name, now_s)
    delay.confirmed(name)


def test_a_message_has_waited_since_a_ping_that_is_in_transit_was_sent():
    delay = QueueDelay()
    assert (delay.waited_s(10.0), delay.interval_s(0.0)) == (0.0, SHORTEST_INTERVAL_S)
    sent(delay, "a", 10.0)
    assert delay.waited_s(13.0) == 3.0
    assert delay.interval_s(70.0) == 3.0, "longer delays are measured less often"
    assert delay.received("a")
    assert delay.waited_s(14.0) == 0.0


def test_an_unconfirmed_ping_proves_nothing():
    delay = QueueDelay()
    delay.sent("a", 10.0)
    assert delay.waited_s(20.0) == 0.0
    delay.confirmed("a")
    assert delay.waited_s(20.0) == 10.0


def test_a_received_ping_implies_all_before_it():
    delay = QueueDelay()
    sent(delay, "held by a worker that hangs", 10.0)
    sent(delay, "b", 10.1)
    sent(delay, "c", 10.2)
    delay.received("b")
    assert delay.waited_s(12.2) == pytest.approx(2.1)
    assert len(delay._in_transit) == 1


def test_a_gap_between_pings_does_not_count_as_waiting():
    delay = QueueDelay()
    sent(delay, "a", 10.0)
    delay.received("a")
    sent(delay, "b", 40.0)  # the worker had been stopped
    assert delay.waited_s(40.5) == pytest.approx(0.5 + SHORTEST_INTERVAL_S)


def test_late_and_foreign_answers_change_nothing():
    delay = QueueDelay()
    sent(delay, "a", 10.0)
    sent(delay, "b", 10.1)
    delay.received("b")
    assert not delay.received("a")
    assert not delay.received("a request")
    delay.confirmed("a")
    assert delay.waited_s(20.0) == 0.0


def test_a_ping_older_than_its_expiration_proves_nothing():
    delay = QueueDelay()
    sent(delay, "a", 0.0)
    assert delay.waited_s(LONGEST_S + 1.0) == 0.0


def test_a_cleared_measurement_starts_anew():
    delay = QueueDelay()
    sent(delay, "a", 10.0)
    delay.clear()
    assert delay.waited_s(20.0) == 0.0
    sent(delay, "b", 30.0)
    assert delay.waited_s(30.5) == 0.5


@given(
    gaps_s=st.lists(st.floats(0.01, 2.0), min_size=3, max_size=60),
    wait_s=st.floats(0.0, 30.0),
)
def test_the_delay_of_a_fifo_queue_is_known_to_one_interval(gaps_s, wait_s):
    """Messages are sent at any time; each is delivered after the same wait, pings as well."""
    delay = QueueDelay()
    sent_s = [60.0 + at_s for at_s in accumulate(gaps_s)]
    due = [(at_s + wait_s, "message") for at_s in sent_s] + [(0.0, "send")]
    heapify(due)
    for number in count():
        now_s, what = heappop(due)
        if what == "send":
            sent(delay, f"ping {number}", now_s)
            heappush(due, (now_s + wait_s, f"ping {number}"))
            heappush(due, (now_s + delay.interval_s(now_s), "send"))
        elif what == "message":
            interval_s = delay.interval_s(now_s)
            assert wait_s - interval_s <= delay.waited_s(now_s) <= wait_s + 1.1 * interval_s
        else:
            delay.received(what)
        if now_s > sent_s[-1] + wait_s:
            break


# Throughput


def after(*finished_s: float) -> Throughput:
    throughput = Throughput()
    throughput.begun(0.0)
    for at_s in finished_s:
        throughput.finished(at_s)
    return throughput


def test_a_message_with_none_ahead_is_never_late():
    assert after(10, 20, 30, 40, 50).expected_s(0, 50.0) == 0.0


def test_nothing_is_estimated_from_few_samples():
    assert after(1, 2, 3).expected_s(10, 3.0) == 0.0


def test_the_estimate_is_work_in_flight_divided_by_throughput():
    assert after(1, 2, 3, 4).expected_s(9, 4.0) == pytest.approx(10.0)
    together = after(4, 4, 4, 4)
    assert together.expected_s(9, 4.0) == pytest.approx(10.0)


def test_a_standstill_lowers_the_throughput_while_it_lasts():
    throughput = after(1, 2, 3, 4)
    assert throughput.expected_s(1, 40.0) == pytest.approx(20.0)


def test_samples_before_an_idle_time_do_not_count():
    throughput = after(1, 2, 3, 4)
    throughput.begun(100.0)
    assert throughput.expected_s(9, 100.0) == 0.0
    for number in range(1, 5):
        throughput.finished(100.0 + number / 10)
    assert throughput.expected_s(9, 100.4) == pytest.approx(1.0)
