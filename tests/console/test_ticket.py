"""The ticket "the VM won't start": command line and console both find why, and say the same."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from scheduler_worker import api_process
from scheduler_worker.cli.ctl import main
from scheduler_worker.errors import NoValidHost
from tests.support.consoles import configured
from tests.support.patience import eventually
from tests.support.services import host
from tests.support.workers import WorkerProcess, connected, write_config

FLAVORS = {"small": (1, 2048), "medium": (2, 4096), "large": (8, 16384)}


@pytest.fixture
def config(tmp_path, rabbit_url, redis_url) -> Path:
    return write_config(
        tmp_path / "worker.conf",
        DEFAULT={"transport_url": rabbit_url, "host": "w1", "service_down_time": 3600},
        state={"url": redis_url},
        pending={"wait_timeout": 0},
    )


@pytest.fixture
def cloud(config, rabbit_url) -> Iterator[Any]:
    """A worker, and a client of it."""
    with WorkerProcess(config, name="w1") as worker:
        worker.ready()
        with connected(rabbit_url) as client:
            client.update_hosts([host(name, cluster="east") for name in ("a", "b", "c")])
            yield client
        assert worker.stop() == 0


def until_one_is_refused(client: Any) -> str:
    """A stream of requests that goes on after the refusal; returns the instance that got none."""
    random_source = random.Random(7)
    for number in itertools.count():
        name = random_source.choice(list(FLAVORS))
        vcpus, memory_mb = FLAVORS[name]
        flavor = {"vcpus": vcpus, "memory_mb": memory_mb, "name": name}
        try:
            client.select_destinations({"flavor": flavor}, [f"vm-{number}"])
        except NoValidHost:
            break
    for later in range(20):
        client.select_destinations({"flavor": {"vcpus": 0, "memory_mb": 1}}, [f"later-{later}"])
    return f"vm-{number}"


@pytest.mark.deep
def test_both_say_why_an_instance_was_refused_in_one_sentence_with_the_figures(
    cloud, config, redis_url, tmp_path, make_console, capsys
):
    instance = until_one_is_refused(cloud)
    eventually(lambda: bool(cloud.list_decisions(instance=instance)["decisions"]))
    capsys.readouterr()
    words = ["decision", "show", instance, "--config-file", str(config), "-f", "json"]
    assert main(words) == 0
    shown = json.loads(capsys.readouterr().out)
    sentence = shown["reason"]
    assert sentence.startswith("No host: of 3 hosts ")
    assert "short of" in sentence or "left" in sentence
    with api_process.build(configured(tmp_path, state={"url": redis_url})).running() as api:
        page = make_console(api).entered("/decisions")
        page.get_by_label("Instance").fill(instance)
        page.get_by_label("Instance").press("Enter")
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text(sentence)
        rows.get_by_role("link").click()
        expect(page.get_by_role("heading", name=f"Decision on {instance} refused")).to_be_visible()
        expect(page.locator("#sentence")).to_have_text(sentence)
