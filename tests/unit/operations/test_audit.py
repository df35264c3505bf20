"""The audit: its filters, and how long entries are kept."""

import pytest

from scheduler_worker.errors import Forbidden, RequestError
from scheduler_worker.operations.audit import list_audit
from scheduler_worker.operations.callers import Caller, Grant
from scheduler_worker.operations.operation import when
from scheduler_worker.operations.policies import create_policy
from tests.support.rest import Rest

BERT = Caller("bert", (Grant("policy_editor"),), "192.0.2.1")


@pytest.fixture
def rest():
    """Two policies an hour apart, and an attempt to read the audit."""
    rest = Rest("east")
    rest.call(create_policy, name="one")
    rest.clock.advance(3600.0)
    rest.call(create_policy, name="two", caller=BERT)
    rest.clock.advance(3600.0)
    refused(rest)
    return rest


def refused(rest):
    with pytest.raises(Forbidden):
        rest.call(list_audit, caller=BERT)


def ids(rest, **query):
    return [each.id for each in rest.call(list_audit, **query).items]


def test_it_says_who_did_what_from_where(rest):
    founded, first, second, last = rest.call(list_audit).items
    assert (founded.user, founded.action) == ("scheduler_worker", "book.found")
    assert (first.user, first.origin, first.action) == ("anna", "127.0.0.1", "policy.create")
    assert first.at == when(1_700_000_000.0)
    assert (first.before, first.after["name"], second.user) == (None, "one", "bert")
    assert (last.action, last.result, "no right" in last.reason) == ("audit:read", "refused", True)


def test_it_is_filtered(rest):
    second = rest.call(list_audit).items[2]
    for query, found in (
        ({"user": "bert"}, ["3", "4"]),
        ({"user": "bert", "result": "done"}, ["3"]),
        ({"action": "policy.create"}, ["2", "3"]),
        ({"resource": second.resource}, ["3"]),
        ({"since": "2023-11-14T23:13:20Z"}, ["3", "4"]),
        ({"until": "2023-11-14T23:13:20Z"}, ["1", "2"]),
        ({"since": "2023-11-15T00:13:20+01:00", "until": "2023-11-15T00:13:20Z"}, ["3"]),
    ):
        assert ids(rest, **query) == found, query


def test_its_pages_keep_the_filter(rest):
    first = rest.call(list_audit, user="bert", limit=1)
    assert [each.id for each in first.items] == ["3"]
    assert ids(rest, user="bert", limit=1, marker=first.next) == ["4"]


@pytest.mark.parametrize(
    "query",
    [{"since": "yesterday"}, {"since": "0.5"}, {"since": "2023-11-14T23:13:20"}, {"marker": "x"}],
)
def test_a_wrong_parameter_is_named(rest, query):
    with pytest.raises(RequestError) as error:
        rest.call(list_audit, **query)
    assert [error.value.field] == [*query]
