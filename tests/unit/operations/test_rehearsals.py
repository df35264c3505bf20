"""Rehearsals: what can be asked, who may, and what is told of each."""

import msgspec
import pytest

from scheduler_worker.errors import Forbidden, NotFound, RequestError
from scheduler_worker.model.rehearsals import (
    BeforeAfter,
    ChangedDecision,
    PackingChange,
    RehearsalQuery,
    RehearsalSummary,
)
from scheduler_worker.operations.callers import Caller, Grant
from scheduler_worker.operations.rehearsals import (
    begin_rehearsal,
    get_rehearsal,
    list_rehearsals,
    remove_rehearsal,
)
from scheduler_worker.service.rehearsal.records import MOST, SILENT_S
from tests.support.rest import DEFAULT

PLAIN = RehearsalQuery(since_s=1.0, until_s=2.0)
REFUSED = ChangedDecision(
    id="1-0@east", change="refused", instances=("one",), flavor="small", hosts_before=("a",),
    hosts=(), reason="No host: none.",
)  # fmt: skip
SUMMARY = RehearsalSummary(
    rehearsed=2, left_out={"it failed": 1}, placed=BeforeAfter(2, 1), refused=BeforeAfter(0, 1),
    counts={"same": 1, "refused": 1, "moved": 0, "placed": 0}, changes=[REFUSED],
    packing=PackingChange([], []),
)  # fmt: skip


@pytest.fixture
def record(rest):
    """One that runs."""
    return rest.rehearsals.begin(PLAIN, None, (), "anna")


def test_one_begins_with_all_that_is_tried(rest):
    asked = {
        "since": "2023-11-14T20:00:00Z",
        "until": "2023-11-14T21:00:00Z",
        "cluster": "east",
        "project": "p",
        "policy": {"name": "strict", "filters": [{"unit": "Memory"}]},
        "drained": ["host-east"],
        "added": [{"host": "new", "uuid": "uuid-new"}],
    }
    found = rest.call(begin_rehearsal, **asked)
    assert (found.state, found.result, found.user) == ("reading", None, "anna")
    same = asked | {"policy": "strict", "added": ["new"]}
    assert msgspec.to_builtins(found).items() >= same.items()
    [(policy, [added])] = rest.rehearsals.tried
    assert [each.unit for each in policy.filters] == ["Memory"]
    assert added.host == "new"
    assert rest.call(get_rehearsal, id=found.id) == found


def test_by_default_it_is_of_the_last_day_under_the_policies_in_force(rest):
    found = rest.call(begin_rehearsal)
    now_s = rest.world.clock.time_s()
    [record] = rest.rehearsals.records.all()
    assert (record.asked.since_s, record.asked.until_s) == (now_s - 86_400.0, now_s)
    assert rest.rehearsals.tried == [(None, ())]
    assert found.policy is None


def test_a_stored_policy_can_be_tried_under_its_own_name(rest):
    text = msgspec.to_builtins(DEFAULT)
    del text["id"], text["version"]
    assert rest.call(begin_rehearsal, policy=text).policy == "none"


@pytest.mark.parametrize(
    ("asked", "field", "problem"),
    [
        ({"since": "2023-11-14T21:00:00Z", "until": "2023-11-14T20:00:00Z"}, "since", "before"),
        ({"since": "2023-11-14T21:00:00"}, "since", "a time with its zone"),
        ({"policy": {"name": "x", "filters": [{"unit": "Memori"}]}},
         "policy.filters", "did you mean Memory?"),
        ({"added": [{"vcpus": 1}]}, "added[0].host", ""),
        ({"drained": "a"}, "drained", "a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(rest, asked, field, problem):
    with pytest.raises(RequestError) as error:
        rest.call(begin_rehearsal, **asked)
    assert error.value.field.startswith(field)
    assert problem in error.value.problem
    assert rest.rehearsals.records.all() == []


def test_its_result_is_told_once_it_is_done(rest, record):
    running = msgspec.structs.replace(record, state="deciding", done=1, total=2)
    assert rest.rehearsals.records.renew(running)
    found = rest.call(get_rehearsal, id=record.id)
    assert (found.state, found.done, found.total) == ("deciding", 1, 2)
    ended = msgspec.structs.replace(running, state="done", done=2)
    assert rest.rehearsals.records.renew(ended, SUMMARY)
    found = rest.call(get_rehearsal, id=record.id)
    assert (found.state, found.result) == ("done", SUMMARY)


def test_they_are_listed_the_latest_first(rest):
    for _ in range(3):
        rest.world.clock.advance(1)
        rest.rehearsals.begin(PLAIN, None, (), "anna")
    found = rest.call(list_rehearsals).items
    assert [each.id for each in found] == ["r2", "r1", "r0"]
    assert not hasattr(found[0], "result")


def test_another_user_ends_it_with_the_right_in_its_clusters(rest):
    grants = {"east": [Grant("policy_editor", "east")], "west": [Grant("policy_editor", "west")]}
    grants["both"] = [*grants["east"], *grants["west"]]
    callers = {name: Caller(name, tuple(own), "127.0.0.1") for name, own in grants.items()}

    def ends(asked, caller):
        record = rest.rehearsals.begin(asked, None, (), "east")
        try:
            rest.call(remove_rehearsal, id=record.id, caller=caller)
        except Forbidden:
            return False
        return True

    own = msgspec.structs.replace(PLAIN, cluster="east")
    assert [ends(own, callers[name]) for name in ("east", "west", "both")] == [True, False, True]
    assert [ends(PLAIN, callers[name]) for name in ("east", "west", "both")] == [True, False, True]


def test_one_that_runs_is_cancelled_and_says_by_whom_until_it_is_removed(rest, record):
    rest.call(remove_rehearsal, id=record.id)
    found = rest.call(get_rehearsal, id=record.id)
    assert (found.state, found.problem) == ("cancelled", "cancelled by anna")
    assert not rest.rehearsals.records.renew(record), "its process learns of it"
    rest.call(remove_rehearsal, id=record.id)
    for operation in (get_rehearsal, remove_rehearsal):
        with pytest.raises(NotFound):
            rest.call(operation, id=record.id)


def test_one_that_is_silent_counts_as_failed_until_it_is_heard_of(rest, record):
    rest.world.clock.advance(SILENT_S + 5)
    found = rest.call(get_rehearsal, id=record.id)
    assert found.state == "failed"
    assert found.problem == "its API process ended, or has said nothing for 35 s"
    assert rest.rehearsals.records.renew(record)
    assert rest.call(get_rehearsal, id=record.id).state == "reading"
    rest.world.clock.advance(SILENT_S + 1)
    rest.call(remove_rehearsal, id=record.id)
    assert rest.rehearsals.records.all() == []


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


def test_readers_read_and_editors_of_any_cluster_begin_and_end(rest):
    reader = Caller("bert", (Grant("reader"),), "")
    editor = Caller("cleo", (Grant("policy_editor", "east"),), "")
    for operation, asked in ((begin_rehearsal, {}), (remove_rehearsal, {"id": "r0"})):
        with pytest.raises(Forbidden):
            rest.call(operation, caller=reader, **asked)
        rest.call(operation, caller=editor, **asked)
    assert len(rest.call(list_rehearsals, caller=reader).items) == 1
