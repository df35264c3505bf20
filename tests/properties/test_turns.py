"""Every request that waits for a cluster gets a turn: none is overtaken for ever."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.service.requests.queue import QueuedRequest, WaitingList
from scheduler_worker.service.state.attempt import PlacementAttempt
from tests.support.services import request

REQUEST = request("i1")


def queued(arrived_s: float, boost_s: float) -> QueuedRequest:
    attempt = PlacementAttempt(REQUEST, arrived_s)
    return QueuedRequest(attempt, deadline_s=0.0, priority_boost_s=boost_s)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=30), st.data())
def test_requests_wait_by_arrival_less_boost_and_else_in_the_order_of_arrival(times, data):
    """So one is overtaken only by those that arrive at most the largest boost after it."""
    requests = [queued(float(arrived), float(boost)) for arrived, boost in sorted(times)]
    waiting_list = WaitingList()
    for each in requests:
        waiting_list.add(each)
    # Some are taken and put back; that changes nothing.
    taken = waiting_list.take(data.draw(st.integers(0, len(times))))
    assert len(waiting_list) == len(times) - len(taken)
    for each in reversed(taken):
        waiting_list.put_back(each)
    numbers = sorted(
        range(len(times)),
        key=lambda at: (requests[at].attempt.arrived_s - requests[at].priority_boost_s, at),
    )
    assert list(waiting_list) == [requests[at] for at in numbers]
