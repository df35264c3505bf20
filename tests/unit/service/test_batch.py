"""One leader at a time, everybody served, errors to whom they belong."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler_worker.pauses import complete
from scheduler_worker.service.batch import Batch, Job


def submit(batch: Batch, job: Job) -> object:
    return complete(batch.submit(job))


def job(asked: object) -> Job:
    return Job(asked, deadline_s=100.0)


def test_alone_is_a_batch_of_one():
    sizes = []

    def serve(take):
        jobs = take()
        sizes.append(len(jobs))
        for each in jobs:
            each.succeed(each.asked * 2)

    batch = Batch(serve, max_batch=10)
    assert [submit(batch, job(number)) for number in (1, 2, 3)] == [2, 4, 6]
    assert sizes == [1, 1, 1]


def test_who_comes_meanwhile_joins_up_to_the_bound():
    batches, first_leads, everyone_is_here = [], threading.Event(), threading.Event()

    def serve(take):
        first_leads.set()
        assert everyone_is_here.wait(10)
        jobs = take()
        batches.append([each.asked for each in jobs])
        for each in jobs:
            each.succeed(each.asked)

    batch = Batch(serve, max_batch=4)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(submit, batch, job(0))
        assert first_leads.wait(10)
        others = [pool.submit(submit, batch, job(number)) for number in range(1, 9)]
        while len(batch._line) < 9:
            threading.Event().wait(0.001)
        everyone_is_here.set()
        assert [first.result(10), *(each.result(10) for each in others)] == list(range(9))
    assert [len(each) for each in batches] == [4, 4, 1]
    assert sorted(sum(batches, [])) == list(range(9))


def test_a_job_left_unsettled_goes_back_to_the_head():
    served = []

    def serve(take):
        [mine] = take()
        served.append(mine.asked)
        mine.attempts += 1
        if mine.attempts == 3:
            mine.succeed("at last")

    assert submit(Batch(serve, max_batch=5), job("x")) == "at last"
    assert served == ["x", "x", "x"]


def test_an_error_before_anything_was_taken_belongs_to_the_whole_line():
    go, calls = threading.Event(), []

    def serve(take):
        calls.append(1)
        assert go.wait(10)
        raise OSError("no store")

    batch = Batch(serve, max_batch=5)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(submit, batch, job(number)) for number in range(3)]
        while len(batch._line) < 3:
            threading.Event().wait(0.001)
        go.set()
        for each in futures:
            with pytest.raises(OSError, match="no store"):
                each.result(10)
    assert len(calls) == 1


def test_one_bad_job_does_not_hurt_the_others():
    def serve(take):
        for each in take():
            if each.asked == "bad":
                each.fail(ValueError("bad"))
            else:
                each.succeed(each.asked)

    batch = Batch(serve, max_batch=5)
    with pytest.raises(ValueError, match="bad"):
        submit(batch, job("bad"))
    assert submit(batch, job("good")) == "good"


def test_a_head_start_overtakes_those_shortly_before():
    served, first_leads, go = [], threading.Event(), threading.Event()

    def serve(take):
        first_leads.set()
        assert go.wait(10)
        for each in take():
            served.append(each.asked)
            each.succeed(each.asked)

    batch = Batch(serve, max_batch=1)
    comings = [("slow", 1.0, 0.0), ("late", 4.0, 2.0), ("easy", 2.0, 2.0)]
    with ThreadPoolExecutor(4) as pool:
        pool.submit(submit, batch, Job("first", 100.0))
        assert first_leads.wait(10)
        for asked, arrived_s, head_start_s in comings:
            coming = Job(asked, 100.0, arrived_s=arrived_s, head_start_s=head_start_s)
            pool.submit(submit, batch, coming)
        while len(batch._line) < 4:
            threading.Event().wait(0.001)
        assert batch.urgency() == (100.0, 0.0)
        go.set()
    assert served == ["first", "easy", "slow", "late"]


def test_who_is_overdue_leaves_the_line_wherever_it_stands():
    calls = []

    def serve(take):
        calls.append(1)
        for each in batch.drop_overdue(now_s=5.0):
            each.fail(TimeoutError())

    batch = Batch(serve, max_batch=1)
    with pytest.raises(TimeoutError):
        submit(batch, Job("x", 5.0, arrived_s=3.0))
    assert calls == [1]


def test_many_threads_are_all_served():
    lock = threading.Lock()

    def serve(take):
        assert lock.acquire(blocking=False), "two leaders at once"
        for each in take():
            each.succeed(each.asked)
        lock.release()

    batch = Batch(serve, max_batch=3)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: submit(batch, job(n)), range(500))) == list(range(500))
