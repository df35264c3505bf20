"""Whoever waits for a cluster gets a turn: nobody is overtaken without end."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.service.batch import Job, Ranked

MAX_HEAD_START_S = 2.0

arrivals = st.lists(
    st.tuples(
        st.floats(0.0, 1.0),  # after the one before
        st.floats(0.0, MAX_HEAD_START_S),
        st.integers(0, 3),  # turns that are served then
    ),
    max_size=40,
)


@given(arrivals, st.integers(1, 4))
def test_nobody_is_overtaken_by_who_comes_later_than_the_largest_head_start(comings, batch):
    waiting: dict[Job, float] = {}
    line: Ranked = Ranked()

    def serve() -> None:
        for job in line.take(batch):
            came_s = waiting.pop(job)
            assert all(came_s <= other_s + MAX_HEAD_START_S + 1e-9 for other_s in waiting.values())

    now_s = 0.0
    for after_s, head_start_s, turns in comings:
        now_s += after_s
        job = Job("", 0.0, arrived_s=now_s, head_start_s=head_start_s)
        waiting[job] = now_s
        line.add(job)
        for _ in range(turns):
            serve()
    while len(line):
        serve()
    assert not waiting


@given(st.lists(st.integers(0, 3), max_size=30), st.data())
def test_turns_are_by_rank_and_ties_as_they_came(ranks, data):
    line: Ranked = Ranked()
    for number, rank in enumerate(ranks):
        line.add(Job(number, 0.0, arrived_s=float(rank)))
    # Some are taken and come back; that changes nothing.
    back = line.take(data.draw(st.integers(0, len(ranks))))
    for job in reversed(back):
        line.put_back(job)
    turns = [(job.rank_s, job.asked) for job in line]
    assert turns == sorted(turns)
    assert all(a != b for a, b in itertools.pairwise(turns))
