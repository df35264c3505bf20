"""scheduler-workerctl balance: against a worker in this process."""

import json

import pytest

from scheduler_worker.cli.balance import text_of
from scheduler_worker.cli.ctl import main
from tests.support.balancers import Scenario, busy_host, even_load, power_saving


@pytest.fixture
def balance(client, ctl):
    """Runs the command where a cluster's policy has a balance."""
    client.update_hosts([busy_host("a", v=100), busy_host("b")])
    client.attach_cluster_policy("default", even_load())
    return lambda *words: ctl("balance", *words)


def test_a_cluster_is_switched(balance):
    for command, shown in (
        ("on", "on"),
        ("off", "off"),
        ("dry-run", "dry_run"),
        ("default", "dry_run (default)"),
    ):
        status, out, _ = balance(command, "default")
        assert (status, out.splitlines()[0]) == (0, f"default: spread@1, EvenLoad, {shown}")


def test_the_state_is_shown_as_text_and_as_json(balance):
    status, out, _ = balance("show")
    assert (status, out.endswith("  there was no round yet\n")) == (0, True)
    assert json.loads(balance("show", "default", "--json")[1])["default"]["mode"] == "dry_run"


def test_an_error_is_one_sentence(balance, capsys):
    status, _, err = balance("on", "nowhere")
    assert (status, "There is no cluster 'nowhere'." in err) == (1, True)
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
    scenario.attach(power_saving(HostsInReserve="0"))
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
