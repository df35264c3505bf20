"""``policy import-ovirt`` from an engine's answers, over HTTP and TLS, and from our own API."""

import io

import pytest

from scheduler_worker import conf
from scheduler_worker.cli import policy_texts
from scheduler_worker.cli.policy_texts import PolicyChange, read_policies
from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.api import build_embedded
from scheduler_worker.service.documents.audit import Actor
from tests.support import web
from tests.support.desk import Desk
from tests.support.engine import PASSWORD, USER, FakeEngine
from tests.support.json_server import serving
from tests.support.servers import free_port
from tests.support.web import users_file
from tests.support.workers import write_config

PACKING = """\
policies:
- id: 3f6a1f54-1f5f-4c8e-9a51-0d6a2a8f7e01
  name: packing
  description: Fills hosts one after the other
  filters:
  - {unit: Memory}
  - {unit: CPU, position: first}
  - {unit: CPUOverloaded}
  - {unit: Network, position: last}
  weights:
  - {unit: OptimalForMemoryPowerSaving, factor: 3.0}
  - {unit: PreferredHosts, factor: 99.0}
  balance: {unit: None}
  selector: {unit: RankSelector}
  parameters: {HighUtilization: '85', MaxFreeMemoryForOverUtilized: '2048'}
"""
LIMITED = """\
policies:
- id: 7b0c9f9e-7d0c-4b61-b6b7-9a3e5c1d2f02
  name: limited
  filters:
  - {unit: CPU, position: first}
  weights:
  - {unit: OptimalForEvenGuestDistribution, factor: 2.0}
  selector: {unit: RankSelector}
"""
SKIP = "--skip-unknown-units"


@pytest.fixture
def desk(tmp_path):
    (tmp_path / "desk").mkdir()
    return Desk(tmp_path / "desk")


def import_from(
    desk: Desk, url: str, *options: str, user: str = USER, password: str = PASSWORD
) -> tuple[int, str]:
    file = desk.file(f"{password}\n", "password")
    names = ["--url", url, "--user", user, "--password-file", file]
    return desk.run("policy", "import-ovirt", *names, *options)


@pytest.fixture
def engine():
    with serving(FakeEngine) as found:
        yield found


def test_a_dry_run_shows_everything_and_changes_nothing(desk, engine):
    status, output = import_from(desk, engine.url, SKIP, "--dry-run", "--cluster-map", "Rack-1=r1")
    assert status == 0
    assert "--- not stored\n+++ packing\n" in output
    assert "+  - {unit: CPU, position: first}\n" in output
    assert "cluster r1: nova -> packing with HighUtilization=70, as Rack-1 there\n" in output
    assert "cluster Rack-2 of the engine has the policy limited; --cluster-map Rack-2=" in output
    assert output.endswith("Nothing was changed: this was a dry run.\n")
    assert desk.stored() == "policies: []\n"
    assert all(each.startswith("GET") or "/sso" in each for each in engine.asked)
    assert engine.asked[-1] == "POST /ovirt-engine/services/sso-logout"


def test_policies_arrive_with_factors_positions_and_properties(desk, engine):
    status, output = import_from(desk, engine.url, SKIP, "--yes", "--as", "anna")
    assert status == 0
    assert output.endswith("created: packing\ncreated: limited\n")
    assert desk.stored("packing") == PACKING
    assert desk.stored("limited") == LIMITED
    assert desk.listed()["packing"]["Changed By"] == "anna"


def test_unknown_units_are_named_and_left_out_only_when_that_is_asked_for(desk, engine, capsys):
    assert import_from(desk, engine.url, "--yes")[0] == 1
    said = capsys.readouterr().err
    assert (
        "policy limited uses the external filter max_vms (0c5e2b52-6f6a-4c4e-9a1d-7f1f0f2d9a11)"
        in said
    )
    assert "packing uses" not in said
    assert SKIP in said
    assert desk.stored() == "policies: []\n"
    output = import_from(desk, engine.url, SKIP, "--dry-run")[1]
    assert "limited: left out is the external filter max_vms (" in output
    assert "limited: left out is the property maximum_vm_count: no unit" in output
    assert "438b052c-90ab-40e8-9be0-a22560202ea6): is evaluated under every policy" in output


def test_a_second_run_finds_nothing_to_change_in_whatever_order_the_engine_answers(desk, engine):
    assert import_from(desk, engine.url, SKIP, "--yes", "--cluster-map", "Rack-1")[0] == 0
    name = "schedulingpolicies/3f6a1f54-1f5f-4c8e-9a51-0d6a2a8f7e01/filters"
    head, *members, tail = engine.stored(name).splitlines()[1:]
    engine.replaced[name] = 200, "\n".join([head, *reversed(members), tail])
    status, output = import_from(desk, engine.url, SKIP, "--cluster-map", "Rack-1")
    assert (status, output.splitlines()[-1]) == (
        0,
        "All of this is stored already; there is nothing to change.",
    )


def test_clusters_are_attached_with_their_own_properties(desk, engine):
    mapped = ["--cluster-map", "Rack-1=r1", "--cluster-map", "Default"]
    status, output = import_from(desk, engine.url, SKIP, "--yes", *mapped)
    assert status == 0
    assert output.endswith("attached: Default\nattached: r1\n")
    rows = desk.listed()
    assert (rows["packing"]["Clusters"], rows["none"]["Clusters"]) == (["r1"], ["Default"])


def test_a_built_in_policy_that_differs_is_compared_and_not_stored(desk, engine):
    _, output = import_from(desk, engine.url, SKIP, "--dry-run")
    assert "comes with the worker, and differs" not in output
    text = engine.stored("schedulingpolicies")
    lower = text.replace("<value>80</value>", "<value>75</value>")
    engine.replaced["schedulingpolicies"] = 200, lower
    _, output = import_from(desk, engine.url, SKIP, "--dry-run")
    assert "none comes with the worker, and differs from the engine's:\n--- none here" in output
    assert "HighUtilization: '75'" in output
    assert "+++ none\n" not in output


def test_the_question_is_asked(desk, engine, monkeypatch):
    terminal = io.StringIO("n\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    assert import_from(desk, engine.url, SKIP)[0] == 1
    assert desk.stored() == "policies: []\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            ["--cluster-map", "Rack-9=r1"],
            "the engine has no cluster 'Rack-9'; it has Default, Rack",
        ),
        (["--cluster-map", "=r1"], "'=r1' is not ENGINES=WORKERS"),
        (["--cluster-map", "Rack-1=r", "--cluster-map", "Rack-2=r"], "for the second time"),
    ],
)
def test_wrong_cluster_maps(desk, engine, capsys, options, problem):
    assert import_from(desk, engine.url, SKIP, "--yes", *options)[0] == 2
    assert problem in capsys.readouterr().err
    assert desk.stored() == "policies: []\n"


@pytest.mark.parametrize(
    ("name", "status", "text", "problem"),
    [
        ("clusters", 403, "", "answers /ovirt-engine/api/clusters with status 403"),
        ("schedulingpolicyunits", 200, "units", "not well-formed XML"),
    ],
)
def test_answers_that_no_engine_gives_change_nothing(
    desk, engine, capsys, name, status, text, problem
):
    engine.replaced[name] = status, text
    assert import_from(desk, engine.url, SKIP, "--yes")[0] == 2
    assert problem in capsys.readouterr().err
    assert desk.stored() == "policies: []\n"


def test_a_policy_that_breaks_a_rule_here_changes_nothing(desk, engine, capsys):
    text = engine.stored("schedulingpolicies")
    wrong = text.replace("<value>2048</value>", "<value>much</value>")
    engine.replaced["schedulingpolicies"] = 200, wrong
    assert import_from(desk, engine.url, SKIP, "--yes")[0] == 1
    assert (
        "properties.MaxFreeMemoryForOverUtilized: 'much' does not match" in capsys.readouterr().err
    )
    assert desk.stored() == "policies: []\n"


def test_log_ins_that_fail_and_engines_that_are_away(desk, engine, capsys):
    assert import_from(desk, engine.url, password="wrong")[0] == 2
    assert import_from(desk, f"http://127.0.0.1:{free_port()}/ovirt-engine/api")[0] == 2
    assert import_from(desk, "ftp://engine/api")[0] == 2
    assert import_from(desk, "https://admin:secret@engine/api")[0] == 2
    said = capsys.readouterr().err
    assert f"refuses the log-in of {USER}: Cannot authenticate" in said
    assert "Connection refused" in said
    assert said.count("--url: is not the address of an engine's API") == 2
    assert "secret" not in said


def test_the_certificate_is_verified(desk, authority, capsys):
    with serving(FakeEngine, authority.issue("engine")) as engine:
        assert import_from(desk, engine.url, SKIP, "--yes")[0] == 2
        assert "certificate verify failed" in capsys.readouterr().err
        trusted = ["--ca-file", str(authority.path)]
        assert import_from(desk, engine.url, SKIP, "--yes", *trusted)[0] == 0
    assert desk.stored("packing") == PACKING


def test_our_own_api_is_an_engine_too(desk, tmp_path):
    config = write_config(
        tmp_path / "api.conf",
        DEFAULT={"transport_url": "local://import/"},
        api={"port": free_port(), "users_file": users_file(tmp_path, anna="reader")},
        policy_store={"connection": f"sqlite:///{tmp_path / 'theirs.sqlite'}"},
    )
    ordered = PACKING.replace("  - {unit: Memory}\n", "").replace(
        "  - {unit: CPUOverloaded}\n", "  - {unit: Memory}\n  - {unit: CPUOverloaded}\n"
    )
    with build_embedded(conf.load(["--config-file", str(config)])).running() as api:
        with SchedulerClient.connect(api.worker.bus.url) as client:
            [entry] = read_policies(ordered, "packing.yaml")
            policy_texts.make(client, [PolicyChange(None, entry.document)])
        api.administration.attach("default", Actor("anna"), policy="packing", is_new=True)
        mapped = ["--cluster-map", "default=west"]
        anna = {"user": "anna", "password": web.PASSWORD}
        status, output = import_from(desk, api.url, "--yes", *mapped, **anna)
        assert (status, output.splitlines()[-1]) == (0, "attached: west")
        assert desk.stored() == ordered
        status, output = import_from(desk, api.url, *mapped, **anna)
        assert status == 0
        assert "nothing to change" in output
