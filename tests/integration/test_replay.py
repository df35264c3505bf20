"""The replay tool against a real worker, with a trace in the form that the user's would have."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workers import WorkerProcess, connected

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def trace(tmp_path) -> list[Path]:
    """Twenty nodes, four hundred pods: more than fit at times."""
    rng = random.Random(3)
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    lines = ["sn,cpu_milli,memory_mib,gpu,model"]
    lines += [f"node-{number:04d},16000,65536,0," for number in range(20)]
    nodes.write_text("\n".join(lines) + "\n")
    lines = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
             "creation_time,deletion_time,scheduled_time"]  # fmt: skip
    for number in range(400):
        begin, cpu = number * 10, rng.choice([1000, 2500, 4000, 8000])
        end = begin + rng.choice([200, 2000, 9000])
        lines.append(f"pod-{number:04d},{cpu},{cpu * 4},0,0,,LS,Running,{begin},{end},{begin}")
    pods.write_text("\n".join(lines) + "\n")
    return [nodes, pods]


@pytest.mark.deep
def test_a_trace_is_replayed_and_no_host_is_overbooked(config, rabbit_vhost_url, trace, tmp_path):
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(ROOT / "tools" / "replay"), "--openb", *map(str, trace),
               "--url", rabbit_vhost_url, "--json", str(figures)]  # fmt: skip
    with WorkerProcess(config).ready() as worker, connected(rabbit_vhost_url) as client:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no host is overbooked" in done.stdout
        found = json.loads(figures.read_text())
        assert found["placed"] + found["refused"] == 400
        assert found["placed"] >= 100
        assert found["refused"] >= 1
        assert len(client.list_hosts(limit=1000)["hosts"]) == 20
        assert worker.stop() == 0
