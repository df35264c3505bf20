"""Two workers, one RabbitMQ, one Redis, sixteen clients: exactly what fits is placed."""

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.errors import BusUnavailable, CallTimeout, NoValidHost, SchedulerWorkerError
from scheduler_worker.ports import Seen
from scheduler_worker.service import records
from tests.support.services import host
from tests.support.workers import WorkerProcess, connected, write_config

pytestmark = [pytest.mark.servers, pytest.mark.slow]

HOSTS, ROOM, REQUESTS, CLIENTS = 100, 1500, 2000, 16
SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1}, "num_instances": 1}


def fleet() -> list[dict]:
    """Room for 1,500 instances of one vCPU."""
    per_host = ROOM // HOSTS
    return [
        host(f"h{number:03d}", vcpus=per_host, memory_mb=65536, cpu_allocation_ratio=1.0)
        for number in range(HOSTS)
    ]


@pytest.fixture
def shared_config(tmp_path, rabbit_vhost_url, redis_url):
    def make(name: str, ttl: float = 600.0):
        return write_config(
            tmp_path / f"{name}.conf",
            DEFAULT={"transport_url": rabbit_vhost_url, "host": name, "service_down_time": 600},
            state={"url": redis_url},
            cluster_lock={"hold_timeout": 2.0, "max_batch": 32},
            pending={"ttl": ttl, "wait_timeout": 0},
        )

    return make


def promised_in_redis(url: str) -> dict[str, int]:
    """Host -> vCPUs promised, read from Redis itself."""
    state = RedisState(url, clock=SystemClock(), hold_timeout_s=2.0)
    try:
        changes = state.changes("default", Seen())
    finally:
        state.close()
    found: dict[str, int] = {}
    for change in changes.entries:
        if change.key.startswith(records.PROMISE) and change.value is not None:
            promise = records.read_promise(change.value)
            found[promise.host] = found.get(promise.host, 0) + promise.resources.vcpus
    return found


def ask_all(client, count: int, after=lambda number: None) -> dict[str, int]:
    """How each of ``count`` requests ended."""
    ends: dict[str, int] = {"placed": 0, "refused": 0, "unanswered": 0}
    lock = threading.Lock()

    def ask(number: int) -> None:
        try:
            client.select_destinations(SPEC, [str(uuid.uuid4())])
            end = "placed"
        except NoValidHost as error:
            assert "There are not enough hosts available." in str(error)
            end = "refused"
        except (CallTimeout, BusUnavailable):
            end = "unanswered"
        with lock:
            ends[end] += 1
            done = sum(ends.values())
        after(done)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(ask, range(count)))
    return ends


def test_exactly_those_that_fit_are_placed(shared_config, rabbit_vhost_url, redis_url, capsys):
    with WorkerProcess(shared_config("one"), name="one") as one:
        with WorkerProcess(shared_config("two"), name="two") as two:
            one.ready(), two.ready()
            with connected(rabbit_vhost_url) as client:
                client.update_hosts(fleet())
                started = time.monotonic()
                ends = ask_all(client, REQUESTS)
                took_s = time.monotonic() - started
            assert one.stop() == 0
            assert two.stop() == 0
    assert ends == {"placed": ROOM, "refused": REQUESTS - ROOM, "unanswered": 0}
    promised = promised_in_redis(redis_url)
    assert set(promised.values()) == {ROOM // HOSTS}
    assert sum(promised.values()) == ROOM
    with capsys.disabled():
        print(f"\n  two workers: {REQUESTS} requests in {took_s:.1f} s, {ends}")


def test_a_killed_worker_promises_nothing_twice_and_leaks_nothing(
    shared_config, rabbit_vhost_url, redis_url, capsys
):
    ttl_s = 20.0
    with WorkerProcess(shared_config("one", ttl_s), name="one") as one:
        with WorkerProcess(shared_config("two", ttl_s), name="two") as two:
            one.ready(), two.ready()
            with connected(rabbit_vhost_url, timeout_s=5.0) as client:
                client.update_hosts(fleet())

                def kill_in_the_middle(done: int) -> None:
                    if done == REQUESTS // 4:
                        two.process.kill()

                ends = ask_all(client, REQUESTS, after=kill_in_the_middle)
                promised = promised_in_redis(redis_url)
                assert all(count <= ROOM // HOSTS for count in promised.values())
                assert ends["placed"] <= sum(promised.values()) <= ROOM
                assert ends["refused"] >= REQUESTS - ROOM - ends["unanswered"]
                # Acknowledged on receipt and not answered: lost with the process that had them.
                with capsys.disabled():
                    print(f"\n  killed worker: {ends}; the dead one had acknowledged and not "
                          f"answered {ends['unanswered']}")  # fmt: skip
                assert ends["unanswered"] < REQUESTS // 4
                until_nothing_is_promised(client, ttl_s)


def until_nothing_is_promised(client, ttl_s: float) -> None:
    """Every promise ends within its time; nothing in here is confirmed or reported."""
    deadline_s = time.monotonic() + ttl_s + 5
    while True:
        left = list(client.every_reservation())
        if not left:
            return
        assert time.monotonic() < deadline_s, f"{len(left)} promises outlived their time"
        threading.Event().wait(0.2)


def test_errors_are_ours(shared_config, rabbit_vhost_url):
    with WorkerProcess(shared_config("one"), name="one") as one:
        one.ready()
        with connected(rabbit_vhost_url) as client:
            with pytest.raises(SchedulerWorkerError, match=r"spec_obj\.flavor"):
                client.select_destinations({"num_instances": 1}, [str(uuid.uuid4())])
            assert one.process.poll() is None
