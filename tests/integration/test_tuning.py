"""Tuning end to end: workers, a simulated agent, and RPC clients."""

from __future__ import annotations

import itertools
import queue
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker import app, conf
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import RequestError
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.service.tuning.records import TuningRecords
from tests.support.agents import Agent, read, two_workers
from tests.support.patience import SOON_S
from tests.support.services import host
from tests.support.workers import connected, write_config

STOCK = Path(__file__).resolve().parents[2] / "etc" / "scheduler_worker" / "tuning"
INTERVAL_S = 0.1
STEP, STEP_TIME_S = 0.05, 0.5
BALLOONING = (STOCK / "ballooning.yaml").read_text().replace("15 sec", f"{STEP_TIME_S} sec")
MOST = 1 - (1 - STEP) ** (3 * INTERVAL_S / STEP_TIME_S)
"""The largest shrinking of a balloon in one cycle, as a fraction: three intervals' worth."""
USED, LARGE = 1_000_000, 6_000_000


@pytest.fixture
def clusters_file(tmp_path) -> Path:
    path = tmp_path / "tuning.yaml"
    parameters = f"balloon_enabled: true, balloon_min: 524288, balloon_max: {LARGE}"
    path.write_text(f'parameters: {{"*": {{{parameters}}}}}\n')
    return path


class Host:
    """A host that is short of memory, with one VM that has more than it needs, and its agent."""

    def __init__(self, bus: Bus) -> None:
        self.balloon = LARGE
        self.received: queue.Queue[dict[str, Any]] = queue.Queue()
        self.cycle = 0
        self._agent = Agent(bus, "tuning_agent", "h", apply_tuning=self._apply)

    def _apply(self, context: object, **arguments: Any) -> None:
        self.received.put(arguments)

    def report(self) -> None:
        vm = {"memory": {"balloon": self.balloon, "unused": self.balloon - USED}}
        load = {"mem_available": 64_000_000, "mem_free": 6_400_000}
        self._agent.client.update_hosts([host("h", load=load, vms={"v": vm})])

    def apply(self, times: int = 1) -> Iterator[float]:
        """Apply and report the next values; yield the balloon's size after each."""
        for _ in range(times):
            values = self.received.get(timeout=SOON_S)
            assert values["cycle"] > self.cycle
            self.cycle = values["cycle"]
            self.balloon = int(values["vms"]["v"]["memory.balloon"])
            self.report()
            yield self.balloon

    def close(self) -> None:
        self._agent.close()


def tuner_of(redis_url: str) -> str:
    """Return the worker that has the turn."""
    return read(redis_url, TuningRecords()).leaders["default"].worker.partition("/")[0]


@pytest.mark.deep
def test_a_balloon_reaches_its_target_although_its_tuner_is_killed(
    configure, rabbit_vhost_url, redis_url, clusters_file
):
    options = {"enabled": True, "interval": INTERVAL_S, "clusters_file": clusters_file}
    with (
        two_workers(configure, tuning=options) as workers,
        connected(rabbit_vhost_url) as client,
    ):
        simulated = Host(client._bus)
        try:
            simulated.report()
            client.set_tuning_policy("ballooning", BALLOONING)
            sizes = [LARGE, *simulated.apply(20)]
            first = tuner_of(redis_url)
            workers[first].kill()
            sizes += simulated.apply(20)
            assert {first, tuner_of(redis_url)} == {"w1", "w2"}
            while sizes[-1] * (1 - 0.1) > USED * 1.004:
                sizes += simulated.apply()
        finally:
            simulated.close()
    assert len(sizes) > 50
    # The host has a tenth of its memory free, and so may the VM.
    assert sizes[-1] == pytest.approx(USED / 0.9, rel=0.005)
    # A cycle moves the balloon from the size that was reported last, be it that of some steps ago.
    least = itertools.accumulate(sizes, min)
    lost = [1 - after / before for before, after in zip(least, sizes[1:], strict=False)]
    assert max(lost) <= MOST + 1e-6


def test_the_policies_and_parameters_of_files_are_in_force(tmp_path, clusters_file):
    config = write_config(
        tmp_path / "w.conf",
        DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/"},
        tuning={"policy_files": STOCK, "clusters_file": clusters_file},
    )
    with app.build(conf.load(["--config-file", str(config)])).running() as worker:
        client = SchedulerClient(worker.bus)
        listed = client.list_tuning_policies()["tuning_policies"]
        assert [each["name"] for each in listed] == ["ballooning", "cpu", "io", "ksm"]
        client.update_hosts([host("h", load={"mem_free": 7}, vms={"v": {"memory": {"x": 1}}})])
        [found] = client.get_statistics()["statistics"]
        assert found["statistics"]["host"]["mem_free_avg"] == 7.0
        assert found["vms"]["v"]["memory"] == {"x": 1}
        assert found["vms"]["v"]["policy"]["balloon_enabled"] is True
        with pytest.raises(RequestError, match="there is no cluster"):
            client.get_statistics(cluster="nowhere")
