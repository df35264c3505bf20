"""Two workers, one RabbitMQ, one Redis, sixteen clients: exactly the capacity is used."""

import contextlib
import time
from collections import Counter

import pytest

from tests.support.agents import reserved_in_redis
from tests.support.services import host
from tests.support.workers import WorkerProcess, all_ready, connected, place_all

HOSTS, ROOM, REQUESTS = 100, 1500, 2000
OPTIONS = {
    "cluster_lock": {"hold_timeout": 2.0, "max_batch": 32},
    "pending": {"ttl": 600, "wait_timeout": 0},
}
SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1}, "num_instances": 1}


@pytest.fixture
def serving(configure, rabbit_vhost_url):
    """Two workers that know hosts for 1,500 instances of one vCPU, and a client of them."""
    facts = {"vcpus": ROOM // HOSTS, "memory_mb": 65536, "cpu_allocation_ratio": 1.0}
    with contextlib.ExitStack() as stack:
        made = (WorkerProcess(configure(name, **OPTIONS), name=name) for name in ("one", "two"))
        workers = stack.enter_context(all_ready(*made))
        client = stack.enter_context(connected(rabbit_vhost_url))
        client.update_hosts([host(f"h{number:03d}", **facts) for number in range(HOSTS)])
        yield client, workers


def check(answers: dict[str, str | None], redis_url: str) -> None:
    """Every request was answered; the capacity is used; Redis agrees with the answers."""
    assert len(answers) == REQUESTS
    placed = {instance: where for instance, where in answers.items() if where is not None}
    assert list(Counter(placed.values()).values()) == [ROOM // HOSTS] * HOSTS
    assert reserved_in_redis(redis_url) == placed


def test_exactly_the_capacity_is_used(serving, redis_url, capsys):
    client, workers = serving
    started_s = time.monotonic()
    answers = place_all(client, SPEC, REQUESTS)
    took_s = time.monotonic() - started_s
    assert [worker.stop() for worker in workers] == [0, 0]
    check(answers, redis_url)
    with capsys.disabled():
        print(f"\n  two workers: {REQUESTS} requests in {took_s:.1f} s")


@pytest.mark.deep
def test_after_a_kill_every_request_is_answered_and_nothing_reserved_twice(serving, redis_url):
    client, (_, two) = serving
    answers = place_all(client, SPEC, REQUESTS, lambda done: done == REQUESTS // 4 and two.kill())
    check(answers, redis_url)
