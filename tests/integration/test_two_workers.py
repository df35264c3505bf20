"""Two workers, one RabbitMQ, one Redis, sixteen clients: exactly the capacity is used."""

import contextlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from scheduler_worker.errors import NoValidHost, SchedulerWorkerError
from tests.support.agents import reserved_in_redis
from tests.support.patience import SOON_S
from tests.support.services import host
from tests.support.threads import Threads
from tests.support.workers import WorkerProcess, connected

HOSTS, ROOM, REQUESTS, CLIENTS = 100, 1500, 2000, 16
OPTIONS = {
    "cluster_lock": {"hold_timeout": 2.0, "max_batch": 32},
    "pending": {"ttl": 600, "wait_timeout": 0},
}
SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1}, "num_instances": 1}


def fleet() -> list[dict]:
    """Hosts for 1,500 instances of one vCPU."""
    per_host = ROOM // HOSTS
    return [
        host(f"h{number:03d}", vcpus=per_host, memory_mb=65536, cpu_allocation_ratio=1.0)
        for number in range(HOSTS)
    ]


@pytest.fixture
def serving(configure, rabbit_vhost_url):
    """Workers that are ready, and a client of them."""

    @contextlib.contextmanager
    def begun(*names: str):
        with contextlib.ExitStack() as stack:
            workers = [
                stack.enter_context(WorkerProcess(configure(name, **OPTIONS), name=name))
                for name in names
            ]
            for each in workers:
                each.ready()
            client = stack.enter_context(connected(rabbit_vhost_url, timeout_s=SOON_S))
            client.update_hosts(fleet())
            yield client, workers

    return begun


def ask_all(client, after: Callable[[int], object] = lambda done: None) -> dict[str, str | None]:
    """The host of each requested instance; None where no host was valid."""
    answers: dict[str, str | None] = {}
    lock = threading.Lock()

    def ask(_number: int) -> None:
        instance = str(uuid.uuid4())
        try:
            [[chosen]] = client.select_destinations(SPEC, [instance])
            where = chosen.service_host
        except NoValidHost as error:
            assert "There are not enough hosts available." in str(error)
            where = None
        with lock:
            answers[instance] = where
            done = len(answers)
        after(done)

    with Threads(CLIENTS) as pool:
        list(pool.map(ask, range(REQUESTS)))
    return answers


def check(answers: dict[str, str | None], redis_url: str) -> None:
    """Every request was answered; the capacity is used; Redis agrees with the answers."""
    assert len(answers) == REQUESTS
    placed = {instance: where for instance, where in answers.items() if where is not None}
    assert len(placed) == ROOM
    assert set(Counter(placed.values()).values()) == {ROOM // HOSTS}
    assert reserved_in_redis(redis_url) == placed


def test_exactly_the_capacity_is_used(serving, redis_url, capsys):
    with serving("one", "two") as (client, workers):
        with pytest.raises(SchedulerWorkerError, match=r"spec_obj\.flavor"):
            client.select_destinations({"num_instances": 1}, [str(uuid.uuid4())])
        started_s = time.monotonic()
        answers = ask_all(client)
        took_s = time.monotonic() - started_s
        assert [each.stop() for each in workers] == [0, 0]
    check(answers, redis_url)
    with capsys.disabled():
        print(f"\n  two workers: {REQUESTS} requests in {took_s:.1f} s")


@pytest.mark.deep
def test_after_a_kill_every_request_is_answered_and_nothing_reserved_twice(serving, redis_url):
    with serving("one", "two") as (client, [_, two]):
        answers = ask_all(client, lambda done: done == REQUESTS // 4 and two.kill())
    check(answers, redis_url)
