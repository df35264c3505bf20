"""A whole worker that tunes: the stock policies, a file of clusters, and a host's agent."""

import contextlib
import uuid
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker import app
from scheduler_worker.client import SchedulerClient
from tests.support.agents import Agent
from tests.support.patience import SOON_S, eventually
from tests.support.services import host
from tests.support.workers import load_config

STOCK = Path(__file__).resolve().parents[2] / "etc" / "scheduler_worker" / "tuning"
USED, LARGE = 1_000_000, 6_000_000


def test_a_balloon_reaches_its_target_by_the_stock_policies(tmp_path):
    clusters = tmp_path / "tuning.yaml"
    parameters = f"balloon_enabled: true, balloon_min: 524288, balloon_max: {LARGE}"
    clusters.write_text(f'parameters: {{"*": {{{parameters}}}}}\n')
    config = load_config(
        tmp_path / "w.conf",
        DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/"},
        tuning={
            "enabled": True, "interval": 0.05, "policy_files": STOCK, "clusters_file": clusters,
        },
    )  # fmt: skip
    sizes = [LARGE]
    cycles = [0]
    with app.build(config).running() as worker:
        client = SchedulerClient(worker.bus, timeout_s=SOON_S)

        def report() -> None:
            vm = {"memory": {"balloon": sizes[-1], "unused": sizes[-1] - USED}}
            load = {"mem_available": 64_000_000, "mem_free": 6_400_000}
            client.update_hosts([host("h", load=load, vms={"v": vm})])

        def apply_tuning(_context: object, **asked: Any) -> None:
            cycles.append(asked["cycle"])
            if "memory.balloon" in asked["vms"]["v"]:
                sizes.append(int(asked["vms"]["v"]["memory.balloon"]))
                report()

        listed = client.list_tuning_policies()["tuning_policies"]
        assert [policy["name"] for policy in listed] == ["ballooning", "cpu", "io", "ksm"]
        text = (STOCK / "ballooning.yaml").read_text().replace("15 sec", "0.1 sec")
        client.set_tuning_policy("ballooning", text)
        with contextlib.closing(Agent(worker.bus, "tuning_agent", "h", apply_tuning=apply_tuning)):
            report()
            # The host has a tenth of its memory free, and so may the VM.
            eventually(lambda: sizes[-1] * (1 - 0.1) < USED * 1.01)
        assert cycles == sorted(set(cycles))
        assert len(sizes) > 10
        assert sizes[-1] == pytest.approx(USED / 0.9, rel=0.02)
