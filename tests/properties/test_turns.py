"""Every request that waits for a cluster gets a turn: none is overtaken for ever."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.service.state.attempt import PlacementAttempt
from scheduler_worker.service.state.waiting_list import QueuedRequest, WaitingList
from tests.support.services import request

MAX_PRIORITY_BOOST_S = 2.0
REQUEST = request("i1")

arrivals = st.lists(
    st.tuples(
        st.floats(0.0, 1.0),  # seconds after the one before
        st.floats(0.0, MAX_PRIORITY_BOOST_S),
        st.integers(0, 3),  # batches that are served then
    ),
    max_size=40,
)


def queued(arrived_s: float, priority_boost_s: float = 0.0) -> QueuedRequest:
    attempt = PlacementAttempt(REQUEST, arrived_s)
    return QueuedRequest(attempt, deadline_s=0.0, priority_boost_s=priority_boost_s)


@given(arrivals, st.integers(1, 4))
def test_a_request_is_overtaken_only_by_those_within_the_largest_priority_boost(arriving, batch):
    waiting: dict[QueuedRequest, float] = {}
    waiting_list = WaitingList()

    def serve() -> None:
        for each in waiting_list.take(batch):
            arrived_s = waiting.pop(each)
            assert all(
                arrived_s <= other_s + MAX_PRIORITY_BOOST_S + 1e-9 for other_s in waiting.values()
            )

    now_s = 0.0
    for after_s, priority_boost_s, batches in arriving:
        now_s += after_s
        each = queued(now_s, priority_boost_s)
        waiting[each] = now_s
        waiting_list.add(each)
        for _ in range(batches):
            serve()
    while len(waiting_list):
        serve()
    assert not waiting


@given(st.lists(st.integers(0, 3), max_size=30), st.data())
def test_requests_are_ordered_by_rank_and_those_of_equal_rank_as_they_arrived(ranks, data):
    waiting_list = WaitingList()
    numbers: dict[QueuedRequest, int] = {}
    for number, rank in enumerate(ranks):
        each = queued(float(rank))
        numbers[each] = number
        waiting_list.add(each)
    # Some are taken and put back; that changes nothing.
    taken = waiting_list.take(data.draw(st.integers(0, len(ranks))))
    for each in reversed(taken):
        waiting_list.put_back(each)
    order = [(each.rank_s, numbers[each]) for each in waiting_list]
    assert order == sorted(order)
    assert all(a != b for a, b in itertools.pairwise(order))
