"""A Redis that stands still: callers get an error in time, not a timeout."""

from collections import Counter

import pytest

from scheduler_worker.errors import SchedulerWorkerError, StateUnavailable
from tests.support.patience import eventually
from tests.support.servers import RedisServer
from tests.support.services import host
from tests.support.threads import Threads
from tests.support.workers import WorkerProcess, connected, write_config

CALLERS, TIMEOUT_S = 60, 5.0
SPEC = {"flavor": {"vcpus": 1, "memory_mb": 64, "root_gb": 0}, "num_instances": 1}


@pytest.fixture
def redis_of_its_own(tmp_path):
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.mark.deep
def test_every_call_is_refused_in_time_once_the_outage_is_known(
    tmp_path, rabbit_vhost_url, redis_of_its_own
):
    config = write_config(
        tmp_path / "worker.conf",
        DEFAULT={"transport_url": rabbit_vhost_url, "host": "one", "service_down_time": 600},
        state={"url": redis_of_its_own.url},
        rpc={"slots": 4},
        pending={"wait_timeout": 0},
    )
    with (
        WorkerProcess(config).ready(),
        connected(rabbit_vhost_url) as patient,
        connected(rabbit_vhost_url, timeout_s=TIMEOUT_S) as hasty,
        Threads(CALLERS) as pool,
    ):
        patient.update_hosts([host("h1", vcpus=1000)])

        def outcome() -> str:
            try:
                hasty.select_destinations(SPEC)
            except SchedulerWorkerError as error:
                return type(error).__name__
            return "placed"

        with redis_of_its_own.paused():
            with pytest.raises(StateUnavailable):
                patient.select_destinations(SPEC)  # waits until the worker has given up
            calls = [pool.submit(outcome) for _ in range(CALLERS)]
            assert Counter(each.result() for each in calls) == {"StateUnavailable": CALLERS}
        eventually(lambda: outcome() == "placed")
