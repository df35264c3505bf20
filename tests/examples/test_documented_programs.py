"""Runs the Python programs in the documentation, on a worker with three hosts."""

import re
import uuid
from pathlib import Path

import numpy as np
import pytest

from scheduler_worker import conf
from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.scheduling.plugin import Filter, Weigher
from scheduler_worker.scheduling.scales import RawScale
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.services import host
from tests.support.workers import write_config

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "/etc/scheduler_worker/tool.conf"
FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs(name: str) -> list[str]:
    return FENCED.findall((ROOT / name).read_text())


CLIENT_PROGRAMS = [
    pytest.param(program, id=f"{path.name}-{number}")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for number, program in enumerate(programs(str(path.relative_to(ROOT))))
    if "SchedulerClient" in program
]


@pytest.fixture
def worker(tmp_path):
    config = write_config(
        tmp_path / "worker.conf", DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/"}
    )
    with build_worker(conf.load(["--config-file", str(config)])).running() as running:
        running.config_file = config  # type: ignore[attr-defined]
        yield running


@pytest.mark.parametrize("program", CLIENT_PROGRAMS)
def test_programs_run(worker, program, capsys):
    if "update_hosts" not in program:
        with SchedulerClient.connect(worker.bus.url) as client:
            off = {"disabled": True, "disabled_reason": "maintenance of rack 7"}
            full = {"vcpus_used": 100}
            client.update_hosts([host("h1"), host("h2", **full), host("h3", service=off)])
            client.select_destinations({"flavor": {"vcpus": 1, "memory_mb": 64}}, ["i1"])
    local = re.sub(r"rabbit://[^\"]+", worker.bus.url, program)
    local = local.replace(CONFIG, str(worker.config_file))
    exec(compile(local, "document", "exec"), {"__name__": "document"})
    assert capsys.readouterr().out.strip(), "the program prints something"


def units() -> dict[str, type]:
    found: dict[str, object] = {}
    for program in programs("docs/writing-a-filter.md"):
        exec(program, found)
    return {
        name: each
        for name, each in found.items()
        if isinstance(each, type) and each not in {Filter, Weigher}
    }


@pytest.mark.parametrize(
    ("name", "passed"),
    [
        ("MaintenanceFilter", [True, False]),
        ("RoomyFilter", [True, False]),
        ("RackFilter", [True, False]),
        ("SolidStateFilter", [False, True]),
    ],
)
def test_the_filters_of_the_guide_work(name, passed):
    hosts = host_table(
        [
            host_record(host="a", stats={"rack": "r1"}),
            host_record(host="b", memory_mb_used=8000, free_ram_mb=192),
        ],
        aggregates=[Aggregate(id=1, hosts=("b",), metadata={"maintenance": "true", "disk": "ssd"})],
    )
    unit = units()[name]()
    assert unit.passes(hosts, request_spec()).tolist() == passed
    assert unit.reason(hosts.state(1), request_spec())


def test_the_weighers_of_the_guide_work():
    hosts = host_table([host_record(host="a"), host_record(host="b", vcpus_used=3)])
    weighers = [each() for each in units().values() if issubclass(each, Weigher)]
    raw = [each.weigh(hosts, request_spec()) for each in weighers]
    assert np.array_equal(raw, [[4, 1], [4, 1]])
    scales = [RawScale(each, request_spec(), 1.0, raw[0]) for each in weighers]
    assert [scale.scores.tolist() for scale in scales] == [
        [4, 1],
        [1, 0.25],
    ]
