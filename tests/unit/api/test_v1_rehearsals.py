"""``/v1/rehearsals``: what can be asked, who may, and what is told of each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler_worker.model.rehearsals import (
    Asked,
    BeforeAfter,
    ChangedDecision,
    PackingChange,
    RehearsalSummary,
)
from scheduler_worker.operations.callers import Grant
from scheduler_worker.service.replay.records import MOST, SILENT_S
from tests.support.rest import DEFAULT, Rest

JSON = {"Content-Type": "application/json"}
PLAIN = Asked(since_s=1.0, until_s=2.0)
SUMMARY = RehearsalSummary(
    rehearsed=2,
    left_out={"it failed": 1},
    placed=BeforeAfter(2, 1),
    refused=BeforeAfter(0, 1),
    counts={"same": 1, "refused": 1, "moved": 0, "placed": 0},
    changes=[
        ChangedDecision(
            id="1-0@east",
            change="refused",
            instances=("one",),
            flavor="small",
            hosts_before=("a",),
            hosts=(),
            reason="No host: none.",
        )
    ],
    packing=PackingChange([], []),
)


@pytest.fixture
def rest() -> Rest:
    return Rest("east", "west")


def ask(rest: Rest, method: str, path: str = "", body: Any = None, **named: Any) -> Any:
    text = b"" if body is None else msgspec.json.encode(body)
    return rest.request(method, f"/v1/rehearsals{path}", text, headers=JSON, **named)


def test_one_begins_with_all_that_is_tried(rest):
    response = ask(
        rest,
        "POST",
        body={
            "since": "2023-11-14T20:00:00Z",
            "until": "2023-11-14T21:00:00Z",
            "cluster": "east",
            "project": "p",
            "policy": {"name": "strict", "filters": [{"unit": "Memory"}]},
            "drained": ["host-east"],
            "added": [{"host": "new", "uuid": "uuid-new"}],
        },
    )
    assert response.status_code == 202
    found = response.get_json()
    assert (found["state"], found["result"], found["user"]) == ("reading", None, "admin@internal")
    assert (found["since"], found["until"]) == ("2023-11-14T20:00:00Z", "2023-11-14T21:00:00Z")
    assert (found["cluster"], found["project"], found["policy"]) == ("east", "p", "strict")
    assert (found["drained"], found["added"]) == (["host-east"], ["new"])
    [(policy, [added])] = rest.rehearsals.tried
    assert [each.unit for each in policy.filters] == ["Memory"]
    assert added.host == "new"
    assert ask(rest, "GET", f"/{found['id']}").get_json() == found


def test_by_default_it_is_of_the_last_day_under_the_policies_in_force(rest):
    found = ask(rest, "POST", body={}).get_json()
    now_s = rest.world.clock.time_s()
    [record] = rest.rehearsals.records.all()
    assert (record.asked.since_s, record.asked.until_s) == (now_s - 86_400.0, now_s)
    assert rest.rehearsals.tried == [(None, ())]
    assert found["policy"] is None


def test_a_stored_policy_can_be_tried_under_its_own_name(rest):
    body = {name: value for name, value in msgspec.to_builtins(DEFAULT).items()
            if name not in {"id", "version"}}  # fmt: skip
    assert ask(rest, "POST", body={"policy": body}).status_code == 202


@pytest.mark.parametrize(
    ("body", "pointer", "problem"),
    [
        ({"since": "2023-11-14T21:00:00Z", "until": "2023-11-14T20:00:00Z"}, "/since", "before"),
        ({"since": "2023-11-14T21:00:00"}, "/since", "timezone"),
        (
            {"policy": {"name": "x", "filters": [{"unit": "Memori"}]}},
            "/policy/filters",
            "did you mean Memory?",
        ),
        ({"added": [{"vcpus": 1}]}, "/added/0/host", ""),
        ({"drained": "a"}, "/drained", "a list"),
        ({"drain": []}, "/drain", "is not known"),
    ],
)
def test_what_is_wrong_is_named(rest, body, pointer, problem):
    before = rest.state()
    response = ask(rest, "POST", body=body)
    assert response.status_code == 400
    [error] = response.get_json()["errors"]
    assert error["pointer"].startswith(pointer)
    assert problem in error["detail"]
    assert rest.state() == before


def test_its_result_is_told_once_it_is_done(rest):
    record = rest.rehearsals.begin(PLAIN, None, (), "anna")
    running = msgspec.structs.replace(record, state="deciding", done=1, total=2)
    assert rest.rehearsals.records.renew(running)
    found = ask(rest, "GET", f"/{record.id}").get_json()
    assert (found["state"], found["done"], found["total"]) == ("deciding", 1, 2)
    ended = msgspec.structs.replace(running, state="done", done=2)
    assert rest.rehearsals.records.renew(ended, SUMMARY)
    found = ask(rest, "GET", f"/{record.id}").get_json()
    assert found["state"] == "done"
    assert found["result"] == msgspec.json.decode(msgspec.json.encode(SUMMARY))


def test_they_are_listed_the_latest_first_page_by_page(rest):
    for _ in range(3):
        rest.world.clock.advance(1)
        rest.rehearsals.begin(PLAIN, None, (), "anna")
    first = ask(rest, "GET", "?limit=2").get_json()
    assert [each["id"] for each in first["items"]] == ["r2", "r1"]
    assert "result" not in first["items"][0]
    second = rest.request("GET", first["next"]).get_json()
    assert ([each["id"] for each in second["items"]], second["next"]) == (["r0"], None)


def test_one_that_runs_is_cancelled_and_says_by_whom_until_it_is_removed(rest):
    record = rest.rehearsals.begin(PLAIN, None, (), "anna")
    assert ask(rest, "DELETE", f"/{record.id}").status_code == 204
    found = ask(rest, "GET", f"/{record.id}").get_json()
    assert (found["state"], found["problem"]) == ("cancelled", "cancelled by admin@internal")
    assert not rest.rehearsals.records.renew(record), "its process learns of it"
    assert ask(rest, "DELETE", f"/{record.id}").status_code == 204
    assert ask(rest, "GET", f"/{record.id}").status_code == 404
    assert ask(rest, "DELETE", f"/{record.id}").status_code == 404


def test_one_that_is_silent_counts_as_failed_until_it_is_heard_of(rest):
    record = rest.rehearsals.begin(PLAIN, None, (), "anna")
    rest.world.clock.advance(SILENT_S + 5)
    found = ask(rest, "GET", f"/{record.id}").get_json()
    assert found["state"] == "failed"
    assert found["problem"] == "its API process ended, or has said nothing for 35 s"
    assert rest.rehearsals.records.renew(record)
    assert ask(rest, "GET", f"/{record.id}").get_json()["state"] == "reading"
    rest.world.clock.advance(SILENT_S + 1)
    assert ask(rest, "DELETE", f"/{record.id}").status_code == 204
    assert ask(rest, "GET", f"/{record.id}").status_code == 404


def test_the_oldest_that_have_ended_make_room(rest):
    for number in range(MOST + 2):
        rest.world.clock.advance(1)
        record = rest.rehearsals.begin(PLAIN, None, (), "anna")
        if number != 1:
            ended = msgspec.structs.replace(record, state="done")
            assert rest.rehearsals.records.renew(ended, SUMMARY)
    found = [each.id for each in rest.rehearsals.records.all()]
    assert "r0" not in found
    assert {"r1", "r2", f"r{MOST + 1}"} <= set(found)


def test_readers_read_and_editors_of_any_cluster_begin(rest):
    rest.add_user("reader", Grant("reader"))
    rest.add_user("editor", Grant("policy_editor", "east"))
    assert ask(rest, "POST", body={}, user="reader").status_code == 403
    assert ask(rest, "POST", body={}, user="editor").status_code == 202
    assert ask(rest, "GET", user="reader").status_code == 200
    assert ask(rest, "DELETE", "/r0", user="reader").status_code == 403
    assert ask(rest, "DELETE", "/r0", user="editor").status_code == 204
