"""Faults of production, one after the other, under the load of sixteen tenants.

After each fault: no host is overbooked, no instance is in two places, every cast was answered,
every tenant is served again, and no reservation outlived its time.
"""

import contextlib

import pytest
import redis

from scheduler_worker.operations.workers import (
    DrainedWorker,
    NamedWorker,
    drain_worker,
    resume_worker,
)
from scheduler_worker.scheduling.options import ALL_FILTERS
from tests.integration.faults import skewed
from tests.integration.faults.arena import CLUSTERS, LEASE_S, Arena
from tests.support.amqp import Operator, message, raw_message
from tests.support.patience import eventually

pytestmark = pytest.mark.deep

HOUR_S = 3600.0
ANSWER_BYTES, ANSWERS = 900_000, 200
LARGEST_MB = 400
"""The bound on the answers that a worker keeps, in bytes; all of them would be larger."""
HALF_A_PAIR = "\ud800"
CALL, _ = message("ping", namespace="baseapi")


def call(**fields):
    """A call with an invalid envelope."""
    envelope = {"_msg_id": "1", "_reply_q": "gone", **fields}
    return message("ping", namespace="baseapi", **envelope)[0].encode()


UNREADABLE = [
    raw_message(body, headers=headers, properties={})  # type: ignore[arg-type]
    for body, headers in [
        (CALL.encode(), {"compression": "unknown"}),
        (CALL.encode(), {"compression": "application/x-gzip"}),
        (CALL.encode(), {"x-scheduler-worker-deliveries": "many"}),
        (CALL.encode(), {"x-delivery-count": None}),
        (call(_reply_q="q" * 300), {}),
        (call(_reply_q=HALF_A_PAIR), {}),
        (call(_msg_id=HALF_A_PAIR, _timeout=5), {}),
        (call(_msg_id=HALF_A_PAIR), {}),
        (b"", {}),
        (b"\xff", {}),
        (CALL.encode()[:40], {}),
    ]
]
"""Messages that have ended or stalled a server in the past, or are malformed."""


@pytest.fixture(scope="module")
def arena(tmp_path_factory, rabbit_server, request):
    with Arena(tmp_path_factory.mktemp("faults")) as arena:
        yield arena
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n  {'fault':34}  first    all outage    MB errors")
        for each in arena.figures:
            times = f"{each.first_s:6.2f} {each.all_s:6.2f} {each.outage_s:6.2f}"
            print(f"  {each.fault:34} {times} {each.largest_mb:5.0f} {each.errors or ''}")


def test_the_first_worker_is_killed(arena):
    """What it had in hand goes to others, which answer; so nobody is answered with an error."""
    arena.put_first("two")
    with arena.fault("first worker killed"):
        arena.workers["two"].kill()
        arena.serve_some()
        arena.start_worker("two").ready()
    assert arena.figures[-1].errors == {}


def test_a_worker_is_killed(arena):
    *_, last = arena.workers
    with arena.fault("last worker killed"):
        arena.workers[last].kill()
        arena.serve_some()
        arena.start_worker(last).ready()
    assert arena.figures[-1].errors == {}


def test_the_first_worker_is_drained(arena):
    first = next(iter(arena.workers))
    with arena.fault("first worker drained"):
        arena.client.call(drain_worker, DrainedWorker(first))
        arena.serve_some()
        arena.client.call(resume_worker, NamedWorker(first))
    assert arena.figures[-1].errors == {}


def test_the_first_worker_is_paused_for_longer_than_a_lease(arena):
    first = next(iter(arena.workers))
    with arena.fault("first worker paused"), arena.workers[first].paused():
        arena.wait(3 * LEASE_S)
    arena.workers[first] = arena.workers.pop(first)  # it lets the others go first


def test_redis_is_killed_and_reads_its_file_again(arena):
    with arena.fault("redis killed and restarted"):
        arena.redis.kill()
        arena.wait(1.0)
        arena.redis.start()


def test_redis_stands_still(arena):
    with arena.fault("redis stands still"), redis.Redis.from_url(arena.redis.url) as client:
        client.execute_command("CLIENT", "PAUSE", 3000, "ALL")
        arena.wait(3.0)


def test_redis_stands_still_for_longer_than_a_request_waits(arena):
    with arena.fault("redis stands still for long"), arena.redis.paused():
        arena.wait(20.0)


def test_redis_takes_no_writes(arena):
    with arena.fault("redis is full"), redis.Redis.from_url(arena.redis.url) as client:
        client.config_set("maxmemory", 1)
        arena.wait(2.0)
        client.config_set("maxmemory", 0)


def test_the_broker_is_restarted(arena):
    with arena.fault("broker restarted"):
        arena.rabbit.control("stop_app")
        arena.wait(1.0)
        arena.rabbit.control("start_app")


def test_the_broker_is_killed_and_reads_its_files_again(arena):
    with arena.fault("broker killed and restarted"):
        arena.rabbit.kill()
        arena.rabbit.start()


def test_the_broker_stands_still(arena):
    with arena.fault("broker stands still"), arena.rabbit.paused():
        arena.wait(6.0)  # longer than a heart-beat may be missed


def test_the_broker_closes_all_connections(arena):
    with arena.fault("connections closed"):
        arena.rabbit.control("close_all_connections", "by a test")


@pytest.mark.parametrize("way", ["to_server", "to_client"])
def test_the_network_between_a_worker_and_the_broker_stalls(arena, way):
    arena.put_first("one")
    names = {"to_server": "worker to broker", "to_client": "broker to worker"}
    with arena.fault(f"{names[way]} stalled"), arena.bus_proxy.stalled(way):
        arena.wait(6.0)  # longer than the broker waits for a heart-beat


def test_a_worker_is_cut_off_silently(arena):
    """Neither side notices at first; the requests in hand are redelivered to others."""
    arena.put_first("one")
    cut_off = arena.bus_proxy.stalled("to_server", "to_client")
    with arena.fault("worker cut off from broker"), cut_off:
        arena.wait(10.0)


@pytest.mark.parametrize("way", ["to_server", "to_client"])
def test_the_network_between_a_worker_and_redis_stalls(arena, way):
    arena.put_first("one")
    names = {"to_server": "worker to redis", "to_client": "redis to worker"}
    with arena.fault(f"{names[way]} stalled"), arena.state_proxy.stalled(way):
        arena.wait(3.0)


def test_a_worker_is_slow(arena):
    slow = {
        "available_filters": [ALL_FILTERS, "tests.support.plugins.SlowFilter"],
        "enabled_filters": "ComputeFilter,CoreFilter,SlowFilter",
    }
    with arena.fault("slow worker"):
        arena.workers["two"].stop()
        arena.start_worker("two", filter_scheduler=slow).ready()
        arena.put_first("two")
        arena.serve_some()
        arena.workers["two"].stop()
        arena.start_worker("two").ready()


def test_malformed_messages(arena):
    with arena.fault("unreadable messages"), contextlib.closing(Operator(arena.rabbit.url)) as bus:
        for name in ("scheduler", "scheduler.two"):
            bus.put_raw(name, UNREADABLE)


def test_large_answers_to_callers_that_are_gone(arena):
    large, _ = message(
        "ping", namespace="baseapi", reply_queue="gone", args={"arg": "x" * ANSWER_BYTES}
    )
    with (
        arena.fault("answers without a queue"),
        contextlib.closing(Operator(arena.rabbit.url)) as bus,
    ):
        for _ in range(ANSWERS):
            bus.put("scheduler", large)
    assert arena.figures[-1].largest_mb < LARGEST_MB


def test_hosts_that_change_their_cluster(arena):
    moves = [("e1", "west"), ("w1", "east"), ("e2", "west"), ("e1", "east"), ("w1", "west")]
    with arena.fault("hosts change their cluster"):
        for name, cluster in [*moves, ("e2", "east")]:
            arena.racks.move(name, cluster)
            eventually(lambda name=name, cluster=cluster: arena.is_in(name, cluster))
            arena.serve_some(20)


@pytest.mark.parametrize("key", ["meta", "changed"])
def test_a_key_of_the_state_is_lost(arena, key):
    with arena.fault(f"key {key} lost"), redis.Redis.from_url(arena.redis.url) as client:
        for cluster in CLUSTERS:
            assert client.delete(f"faults:{{{cluster}}}:{key}")


def test_the_clock_of_redis_jumps(arena):
    arena.replace_workers(skewed.__name__)
    with redis.Redis.from_url(arena.redis.url) as client:
        with arena.fault("redis' clock an hour forward"):
            skewed.set_skew(client, HOUR_S)
        with arena.fault("redis' clock an hour back"):
            skewed.set_skew(client, 0)
    arena.replace_workers()
