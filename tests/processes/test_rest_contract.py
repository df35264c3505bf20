"""The REST API answers recorded requests as an oVirt engine does, and the runner sees when not."""

import contextlib
import json
from functools import partial
from pathlib import Path

import pytest
from conformance import cli, kinds_ovirt_rest, reading, registry, rest

from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.compose import engines

CASES = Path(__file__).resolve().parents[1] / "cases" / "ovirt_rest" / "rest_contract.json"
POLICIES = "/ovirt-engine/api/schedulingpolicies"
RATIO = "<property><name>VCpuToPhysicalCpuRatio</name><value>1.5</value></property>"


@pytest.fixture(autouse=True)
def _(monkeypatch):
    """A session of its own for each test, whatever the order of tests."""
    monkeypatch.setattr(kinds_ovirt_rest, "_sessions", [])


@pytest.mark.parametrize(
    "document", list(reading.documents(CASES)), ids=lambda each: each.value["name"]
)
def test_we_answer_as_an_engine_does(document):
    outcome = registry.run(document)
    assert (outcome.kind, outcome.differences) == ("ovirt-rest", [])
    assert outcome.skipped is None


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_archive_changes_no_answer_and_is_a_copy(kind, request, tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'policies.sqlite'}"
    if kind == "postgresql":
        url = request.getfixturevalue("postgres_server").create_database()
    with contextlib.closing(engines.open_policy_schema(PolicyStoreSettings(connection=url))) as it:
        it.upgrade()
    archived = partial(rest.Rest, url)
    monkeypatch.setattr(kinds_ovirt_rest, "Rest", archived)
    for document in reading.documents(CASES):
        assert registry.run(document).differences == []
    [session] = kinds_ovirt_rest._sessions
    parts = session.rest.parts
    archive = parts.copies.open()
    assert archive is not None
    assert archive.documents() == parts.book.documents()
    assert archive.audit(limit=1000) == parts.book.audit(limit=1000)
    session.rest.close()


def ran(tmp_path, capsys, *cases):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"source": "made up", "cases": cases}))
    status = cli.main([str(path)])
    lines = capsys.readouterr().out.splitlines()
    return status, [line.partition("ovirt-rest: ")[2] for line in lines]


def case(name, status, method="GET", path=POLICIES, **fields):
    return {"name": name, "method": method, "path": path, "status": status, **fields}


def test_a_session_makes_policies_and_goes_on_with_them(tmp_path, capsys):
    attached = '<cluster><scheduling_policy id="{p1}"/></cluster>'
    properties = f"<scheduling_policy><properties>{RATIO}</properties></scheduling_policy>"
    named = "<scheduling_policy><name>walk</name></scheduling_policy>"
    status, lines = ran(
        tmp_path,
        capsys,
        case("add", 201, "POST", body=named, location=True, root="scheduling_policy"),
        case("again", 400, "POST", body=named, fault={"detail_contains": "Name is in use"}),
        case("set", 200, "PUT", f"{POLICIES}/{{p1}}", body=properties),
        case("attach", 200, "PUT", "/ovirt-engine/api/clusters/{cluster}", body=attached),
        case("in use", 400, "DELETE", f"{POLICIES}/{{p1}}", fault={"detail_contains": "Default"}),
    )
    assert (status, lines) == (0, ["5 passed, 0 failed"])


@pytest.mark.parametrize(
    ("wrong", "difference"),
    [
        ({"status": 404}, "status is 200; expected is 404"),
        ({"root": "clusters"}, "the answer is a <scheduling_policies>; expected is <clusters>"),
        ({"expect_id": "1"}, "the id is None; expected is 1"),
        ({"location": True}, "Location is None; one is expected: True"),
        ({"fault": {"reason": "R"}}, "the fault's reason is None; expected is 'R'"),
        ({"fault": {"detail_contains": "D"}}, "the fault's detail is ''; it lacks 'D'"),
    ],
)
def test_every_difference_is_reported(tmp_path, capsys, wrong, difference):
    status, lines = ran(tmp_path, capsys, case("list", 200) | wrong)
    assert status == cli.FAILED
    assert lines[0].startswith(difference)
    assert lines[-1] == "0 passed, 1 failed"


def test_a_placeholder_that_means_nothing_is_named(tmp_path, capsys):
    assert ran(tmp_path, capsys, case("odd", 200, path="/ovirt-engine/api/{moon}"))[0] == 2
