"""Decisions that people read: requests of a small cloud, and what the workers say of each.

``decisions/told`` has the answers. A change of what is decided, or of how it is explained, rewrites
them, and its diff shows what has changed: ``pytest tests/examples --rewrite`` writes them anew.
"""

import re
from pathlib import Path

import pytest
import yaml

from scheduler_worker.cli.requests import explanation_text
from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.operations.requests import ExplainRequest, explain
from tests.support.workers import load_config

FOLDER = Path(__file__).with_name("decisions")
REQUESTS = yaml.safe_load((FOLDER / "requests.yaml").read_text())
FILTERS = (
    *("ComputeFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter", "CoreFilter"),
    *("RamFilter", "DiskFilter", "AggregateInstanceExtraSpecsFilter", "NUMATopologyFilter"),
    *("PciPassthroughFilter", "ServerGroupAntiAffinityFilter", "AggregateMultiTenancyIsolation"),
)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    path = tmp_path_factory.mktemp("decisions") / "worker.conf"
    conf = load_config(path, filter_scheduler={"enabled_filters": ",".join(FILTERS)})
    fleet = yaml.safe_load((FOLDER / "fleet.yaml").read_text())
    with build_worker(conf).running() as worker:
        client = SchedulerClient(worker.bus, topic=worker.settings.rpc.topic)
        client.update_hosts(fleet["hosts"])
        client.update_aggregates(fleet["aggregates"])
        yield client


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_answered_as_it_is_told(client, name, rewrites):
    path = FOLDER / "told" / f"{name.replace(' ', '-')}.txt"
    told = explanation_text(client.call(explain, ExplainRequest(REQUESTS[name])))
    now = re.sub(r" version \d+", "", told)  # it follows from all options
    if rewrites:
        path.write_text(now)
    assert now == path.read_text(), "if it is meant to change: pytest tests/examples --rewrite"


def test_each_answer_is_of_a_request():
    told = {path.stem for path in (FOLDER / "told").iterdir()}
    assert told == {name.replace(" ", "-") for name in REQUESTS}
