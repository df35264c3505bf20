"""scheduler-workerctl balance: against a worker in this process."""

import json
import uuid

import pytest

from scheduler_worker import app, conf
from scheduler_worker.cli.balance import text_of
from scheduler_worker.cli.ctl import main
from tests.support.balancers import Scenario, busy_host, even_load


@pytest.fixture
def worker(tmp_path):
    """A worker with a cluster whose policy has a balance, and the file that leads to it."""
    path = tmp_path / "w.conf"
    path.write_text(
        f"[DEFAULT]\ntransport_url = local://{uuid.uuid4().hex}/\n[balancing]\ninterval = 0\n"
    )
    built = app.build(conf.load(["--config-file", str(path)]))
    with built.running() as running:
        from scheduler_worker.client import SchedulerClient

        client = SchedulerClient(running.bus)
        client.update_hosts([busy_host("a", v=100), busy_host("b")])
        client.attach_cluster_policy("default", even_load())
        yield path


def test_a_cluster_is_switched(worker, capsys):
    for command, shown in (
        ("on", "on"),
        ("off", "off"),
        ("dry-run", "dry_run"),
        ("default", "dry_run (default)"),
    ):
        assert main(["balance", command, "default", "--config", str(worker)]) == 0
        first = capsys.readouterr().out.splitlines()[0]
        assert first == f"default: spread@1, EvenLoad, {shown}"


def test_the_state_is_shown_as_text_and_as_json(worker, capsys):
    assert main(["balance", "show", "--config", str(worker)]) == 0
    assert capsys.readouterr().out.endswith("  there was no round yet\n")
    assert main(["balance", "show", "default", "--json", "--config", str(worker)]) == 0
    assert json.loads(capsys.readouterr().out)["default"]["mode"] == "dry_run"


def test_an_error_is_one_sentence(worker, capsys):
    assert main(["balance", "on", "nowhere", "--config", str(worker)]) == 1
    assert "There is no cluster 'nowhere'." in capsys.readouterr().err
    assert main(["balance", "show"]) == 2
    assert "Say where the workers are: --config-file FILE" in capsys.readouterr().err
    assert main(["balance", "show", "--config", "/no/such/file"]) == 2
    assert "/no/such/file" in capsys.readouterr().err


def test_rounds_migrations_and_waits_are_shown():
    scenario = Scenario()
    scenario.round()
    under_way = text_of(scenario.shown())
    assert "  last round: v2 from a to b: a has a load of 80 %" in under_way
    assert "; asked for\n" in under_way
    assert "  under way: v2 from a to b: a has a load" in under_way
    for _ in range(3):
        scenario.round()
    assert "  waits after 1 failed migrations: v2: nothing was heard" in text_of(scenario.shown())
    scenario.world.report(busy_host("z", cluster="other"))
    other = text_of(scenario.shown()).splitlines()[-1]
    assert other.startswith("other: nova@")
    assert other.endswith(" has no balance")


def test_power_actions_waits_and_unprotected_hosts_are_shown():
    scenario = Scenario()
    scenario.attach(
        {
            "id": "save",
            "name": "save",
            "version": 1,
            "balance": {"unit": "OptimalForPowerSaving"},
            "parameters": {"EnableAutomaticHostPowerManagement": "true"},
        }
    )
    scenario.put("a", v={"memory_mb": 100_000, "highly_available": True})
    scenario.put("b")
    scenario.hosts["b"]["power"] = {"is_managed": True}
    scenario.round()
    why = "1 empty hosts are up, 0 are wanted"
    shown = text_of(scenario.shown())
    assert f"  last round: b into maintenance: {why}; asked for\n" in shown
    assert f"  under way: b into maintenance: {why}\n" in shown
    assert "  no room for the highly available VMs of: a\n" in shown
    for _ in range(2):
        scenario.round()
    assert "  waits after 1 failed power actions: b: nothing was heard of it in time\n" in text_of(
        scenario.shown()
    )
