"""The audit: its filters, and how long entries are kept."""

import msgspec
import pytest

from scheduler_worker.errors import Forbidden, PolicyStoreUnavailable, RequestError
from scheduler_worker.operations.audit import list_audit
from scheduler_worker.operations.callers import Caller, Grant
from scheduler_worker.operations.operation import when
from scheduler_worker.operations.policies import create_policy
from scheduler_worker.policy_store import AuditEntry
from scheduler_worker.service.policies.audit import PURGED_AT_ONCE
from scheduler_worker.service.policies.reconciler import Reconciler
from tests.support.interrupted import raising
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
    for each in rest.world.audited():
        rest.store.record(each)


def ids(rest, **query):
    return [each.id for each in rest.call(list_audit, **query).items]


def test_it_says_who_did_what_from_where(rest):
    first, second, last = rest.call(list_audit).items
    assert (first.user, first.origin, first.action) == ("anna", "127.0.0.1", "policy.create")
    assert first.at == when(1_700_000_000.0)
    assert (first.before, first.after["name"], second.user) == (None, "one", "bert")
    assert (last.action, last.result, "no right" in last.reason) == ("audit:read", "refused", True)


def test_it_is_filtered(rest):
    second = rest.call(list_audit).items[1]
    for query, found in (
        ({"user": "bert"}, ["2", "3"]),
        ({"user": "bert", "result": "done"}, ["2"]),
        ({"action": "policy.create"}, ["1", "2"]),
        ({"resource": second.resource}, ["2"]),
        ({"since": "2023-11-14T23:13:20Z"}, ["2", "3"]),
        ({"until": "2023-11-14T23:13:20Z"}, ["1"]),
        ({"since": "2023-11-15T00:13:20+01:00", "until": "2023-11-15T00:13:20Z"}, ["2"]),
    ):
        assert ids(rest, **query) == found, query


def test_its_pages_keep_the_filter(rest):
    first = rest.call(list_audit, user="bert", limit=1)
    assert [each.id for each in first.items] == ["2"]
    assert ids(rest, user="bert", limit=1, marker=first.next) == ["3"]


@pytest.mark.parametrize(
    "query",
    [{"since": "yesterday"}, {"since": "0.5"}, {"since": "2023-11-14T23:13:20"}, {"marker": "x"}],
)
def test_a_wrong_parameter_is_named(rest, query):
    with pytest.raises(RequestError) as error:
        rest.call(list_audit, **query)
    assert [error.value.field] == [*query]


def test_old_entries_are_deleted_in_batches(rest):
    entry = AuditEntry(at_s=rest.clock.time_s(), user="anna", action="x", subject="")
    for number in range(PURGED_AT_ONCE + 5):
        rest.store.record(msgspec.structs.replace(entry, subject=str(number)))
    assert Reconciler(rest.administration, report=print).purge() == 0
    rest.clock.advance(2 * 86_400.0)
    refused(rest)
    purging = Reconciler(rest.administration, report=print, audit_retention_days=1.0)
    assert purging.purge() == PURGED_AT_ONCE + 5 + 3
    assert [each.action for each in rest.call(list_audit).items] == ["audit:read"]


def test_a_store_that_fails_is_reported_and_does_not_end_the_reconciler(rest, monkeypatch):
    away = raising(PolicyStoreUnavailable("no database"))
    monkeypatch.setattr(rest.store, "purge_audit", away)
    said = []
    purging = Reconciler(rest.administration, report=said.append, audit_retention_days=1.0)
    assert purging.purge() == 0
    assert said == ["Old entries of the audit are not deleted yet: no database"]
