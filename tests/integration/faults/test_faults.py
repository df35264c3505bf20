"""What breaks in production, one after the other, while sixteen tenants go on.

After each fault: no host owes more than it has, no instance is in two places, every cast was
answered, everybody is served again, and no promise outlived its time.
"""

import json
import os
from pathlib import Path

import msgspec
import pytest
import redis

from scheduler_worker.scheduling.options import ALL_FILTERS
from tests.integration.faults.arena import HOLD_S, Arena

pytestmark = [pytest.mark.servers, pytest.mark.slow]


@pytest.fixture(scope="module")
def arena(tmp_path_factory, rabbit_server, request):
    with Arena(tmp_path_factory.mktemp("faults")) as arena:
        yield arena
    figures = msgspec.to_builtins(arena.figures)
    path = Path(os.environ.get("FAULTS_JSON", arena.directory / "faults.json"))
    path.write_text(json.dumps(figures, indent=1) + "\n")
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{table(figures)}\n  {path}")


def table(figures) -> str:
    lines = [f"  {'fault':34} lasted first  all workers outage  wait served placed errors"]
    lines += [
        f"  {each['fault']:34} {each['lasted_s']:6.1f} {each['recovery_s']:5.2f} "
        f"{each['all_back_s']:4.1f} {each['workers_back_s']:7.1f} "
        f"{each['longest_outage_s']:6.2f} {each['longest_wait_s']:5.1f} "
        f"{each['served']:6} {each['placed']:6} {each['errors'] or ''}"
        for each in figures
    ]
    return "\n".join(lines)


def test_a_worker_is_killed(arena):
    with arena.fault("worker killed"):
        arena.workers["two"].kill()
        arena.serve_some()
        arena.start_worker("two").ready()


def test_a_worker_is_paused_for_longer_than_it_may_hold_a_lock(arena):
    with arena.fault("worker paused"), arena.workers["two"].paused():
        arena.wait(3 * HOLD_S)


def test_redis_is_killed_and_reads_its_file_again(arena):
    with arena.fault("redis killed and restarted"):
        arena.redis.kill()
        arena.wait(1.0)
        arena.redis.start()


def test_redis_stands_still(arena):
    with arena.fault("redis stands still"), redis.Redis.from_url(arena.redis.url) as client:
        client.execute_command("CLIENT", "PAUSE", 3000, "ALL")
        arena.wait(3.0)


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


def test_the_broker_closes_all_connections(arena):
    with arena.fault("connections closed"):
        arena.rabbit.control("close_all_connections", "by a test")


@pytest.mark.parametrize("way", ["to_server", "to_client"])
def test_the_way_between_a_worker_and_the_broker_stalls(arena, way):
    names = {"to_server": "worker to broker", "to_client": "broker to worker"}
    with arena.fault(f"{names[way]} stalled"), arena.bus_proxy.stalled(way):
        arena.wait(6.0)  # longer than the broker waits for a heart-beat


@pytest.mark.parametrize("way", ["to_server", "to_client"])
def test_the_way_between_a_worker_and_redis_stalls(arena, way):
    names = {"to_server": "worker to redis", "to_client": "redis to worker"}
    with arena.fault(f"{names[way]} stalled"), arena.state_proxy.stalled(way):
        arena.wait(3.0)


def test_a_worker_is_slow(arena):
    slow = {
        "available_filters": [ALL_FILTERS, "tests.integration.faults.filters.SlowFilter"],
        "enabled_filters": "ComputeFilter,CoreFilter,SlowFilter",
    }
    with arena.fault("slow worker"):
        arena.workers["two"].stop()
        arena.start_worker("two", filter_scheduler=slow).ready()
        arena.serve_some()
        arena.workers["two"].stop()
        arena.start_worker("two").ready()
