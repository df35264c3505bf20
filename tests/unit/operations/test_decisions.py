"""Kept decisions: pages of records, and one with all that is kept."""

import pytest

from scheduler_worker.errors import Disabled, NotFound, NoValidHost, RequestError
from scheduler_worker.operations.decisions import get_decision, list_decisions
from scheduler_worker.operations.operation import when
from tests.support.rest import Rest


@pytest.fixture
def rest() -> Rest:
    found = Rest("east", "west")
    found.world.place("one", project_id="p", scheduler_hints={"cluster": ["east"]})
    found.records.recorder.write()
    found.world.clock.advance(60)
    with pytest.raises(NoValidHost):
        found.world.place("two", vcpus=99)
    found.records.recorder.write()
    return found


def instances(rest, **query):
    return [uuid for each in rest.call(list_decisions, **query).items for uuid in each.instances]


def test_they_are_listed_newest_first_and_filtered(rest):
    later = when(rest.world.clock.time_s() - 30).isoformat()
    for query, expected in (
        ({}, ["two", "one"]),
        ({"cluster": "east"}, ["two", "one"]),  # a refusal is of the cluster tried first
        ({"instance": "two"}, ["two"]),
        ({"project": "p"}, ["one"]),
        ({"result": "refused"}, ["two"]),
        ({"host": "host-east"}, ["one"]),
        ({"since": later}, ["two"]),
        ({"until": later}, ["one"]),
    ):
        assert instances(rest, **query) == expected, query


def test_one_is_shown_with_request_filters_ranking_and_waits(rest):
    [outline] = rest.call(list_decisions, instance="one").items
    found = rest.call(get_decision, id=outline.id)
    assert all(getattr(found, name) == getattr(outline, name) for name in outline.__struct_fields__)
    assert found.decided_at == when(1_700_000_000.0)
    assert found.spec["project_id"] == "p"
    assert [each.host for each in found.ranked] == ["host-east"]
    assert found.filters[0].hosts_in == 1
    [[chosen]] = found.selections
    assert (chosen.host, chosen.nodename) == ("host-east", "host-east")
    assert rest.call(get_decision, id="one") == found


def test_a_refusal_says_why_in_one_sentence(rest):
    assert rest.call(get_decision, id="two").reason == (
        "No host of 2 in 2 clusters; nearest is cluster east: of 1 host none has 99 vCPUs left."
    )


@pytest.mark.parametrize("id", ["1-1@east", "nonsense"])
def test_one_that_is_not_kept_is_not_found(rest, id):
    with pytest.raises(NotFound, match="no recorded decision"):
        rest.call(get_decision, id=id)


def test_a_marker_that_is_none_is_named(rest):
    with pytest.raises(RequestError, match=r"^marker: "):
        rest.call(list_decisions, marker="x")


@pytest.mark.parametrize(
    ("operation", "asked"), [(list_decisions, {}), (get_decision, {"id": "x"})]
)
def test_where_none_are_kept_the_option_is_named(operation, asked):
    with pytest.raises(Disabled, match=r"\[decisions\] enabled is false"):
        Rest("east", keeps_records=False).call(operation, **asked)
