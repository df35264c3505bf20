"""Two workers, one RabbitMQ, one Redis, sixteen clients: exactly the capacity is used."""

import time
from collections import Counter

from tests.support.agents import reserved_in_redis
from tests.support.services import host
from tests.support.workers import WorkerProcess, all_ready, connected, place_all

HOSTS, ROOM, REQUESTS = 100, 1500, 2000
OPTIONS = {
    "cluster_lock": {"hold_timeout": 2.0, "max_batch": 32},
    "pending": {"ttl": 600, "wait_timeout": 0},
}
SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1}, "num_instances": 1}


def test_exactly_the_capacity_is_used(configure, rabbit_vhost_url, redis_url, capsys):
    """Hosts have room for 1,500 instances; Redis agrees with the answers."""
    facts = {"vcpus": ROOM // HOSTS, "memory_mb": 65536, "cpu_allocation_ratio": 1.0}
    made = (WorkerProcess(configure(name, **OPTIONS), name=name) for name in ("one", "two"))
    with all_ready(*made) as workers, connected(rabbit_vhost_url) as client:
        client.update_hosts([host(f"h{number:03d}", **facts) for number in range(HOSTS)])
        started_s = time.monotonic()
        answers = place_all(client, SPEC, REQUESTS)
        took_s = time.monotonic() - started_s
        assert [worker.stop() for worker in workers] == [0, 0]
    assert len(answers) == REQUESTS
    placed = {instance: where for instance, where in answers.items() if where is not None}
    assert list(Counter(placed.values()).values()) == [ROOM // HOSTS] * HOSTS
    assert reserved_in_redis(redis_url) == placed
    with capsys.disabled():
        print(f"\n  two workers: {REQUESTS} requests in {took_s:.1f} s")
