"""Every operation over every edge: RPC, the client, REST and the command line."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from scheduler_worker.errors import Forbidden, NotFound, RemoteFailure, RequestError
from scheduler_worker.model.rehearsals import RehearsalQuery
from scheduler_worker.model.worker_reports import WorkerFacts, WorkerReport
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.callers import Grant
from scheduler_worker.operations.forms import answered, choices, is_document, is_time
from scheduler_worker.operations.operation import PageQuery
from scheduler_worker.operations.policies import attach_cluster, put_policy
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.service.state.presence import Presence
from tests.support.edges import UNIT, AnyOperation, Edges, filled, right
from tests.support.services import host
from tests.support.tuners import BALLOON, tuned


def made() -> Edges:
    rest = filled()
    rest.add_user("reader", Grant("reader"))
    rest.add_user("nobody")
    return Edges(rest)


@pytest.fixture
def edges() -> Edges:
    return made()


@pytest.fixture(scope="module")
def shared() -> Edges:
    """Those of all tests that change nothing."""
    return made()


@pytest.fixture(scope="module")
def longer() -> Edges:
    """Likewise, with two at least of all that is listed."""
    edges = made()
    more(edges.rest)
    return edges


@pytest.fixture
def edges_for(shared) -> Callable[[AnyOperation], Edges]:
    return lambda operation: made() if is_change(operation) else shared


def given_to(operation) -> dict[str, Any]:
    return right(operation, unit=UNIT.id_as(UnitKind.FILTER), text=BALLOON)


def of(edge):
    """The operations that an edge has."""
    if edge == "http":
        return [each for each in OPERATIONS if each.path is not None]
    if edge == "command":
        return [each for each in OPERATIONS if each.command is not None]
    return [each for each in OPERATIONS if each.home != "api"]


def each(*edges):
    found = [(edge, operation) for edge in edges for operation in of(edge)]
    ids = [f"{operation.name}-{edge}" for edge, operation in found]
    return pytest.mark.parametrize(("edge", "operation"), found, ids=ids)


def is_change(operation) -> bool:
    return operation.right is not None and operation.right.value not in {"api:read", "audit:read"}


def words_of(operation, given, folder) -> list[str]:
    words = operation.command.split()
    for each in operation.fields:
        if is_document(each):
            path = folder / each.name
            path.write_text(given[each.name])
            words.append(str(path))
        elif each.required:
            words.append(str(given[each.name]))
    return words


def asked(edges, edge, operation, given) -> Any:
    """The plain answer over an edge, a list as its items."""
    if edge == "rpc":
        found = edges.rpc(operation, given)
        return found[operation.noun] if operation.is_list else found
    if edge == "client":
        parameters = msgspec.convert(given, operation.parameters)
        answer = edges.client_of_it.call(operation, parameters)
        found = msgspec.json.decode(msgspec.json.encode(answer))
        return found["items"] if operation.is_list else found
    response = edges.http(operation, given, headers={"If-Match": "*"})
    assert response.status_code in {200, 201, 202, 204}, response.get_data(as_text=True)
    found = response.get_json() if response.status_code != 204 else None
    return found["items"] if operation.is_list else found


# Right parameters


@each("rpc", "client", "http")
def test_it_answers_in_its_own_form(edges_for, edge, operation):
    found = asked(edges_for(operation), edge, operation, given_to(operation))
    plain = {operation.noun: found, "next": None} if operation.is_list else found
    answered(operation, plain)
    assert operation.is_list is isinstance(found, list)


BOTH = [each for each in of("http") if each.home == "fleet" and not is_change(each)]


@pytest.mark.parametrize("operation", BOTH, ids=[each.name for each in BOTH])
def test_rpc_client_and_rest_answer_alike(shared, operation):
    given = given_to(operation)
    by_rest = asked(shared, "http", operation, given)
    assert asked(shared, "rpc", operation, given) == by_rest
    assert asked(shared, "client", operation, given) == by_rest


@each("command")
def test_a_command_prints_it_for_programs_and_for_people(
    edges_for, edge, operation, capsys, tmp_path
):
    edges, given = edges_for(operation), given_to(operation)
    words = words_of(operation, given, tmp_path)
    if operation.answer is None or operation.done:
        status, out, err = edges.run(capsys, *words)
        assert (status, err) == (0, "")
        if operation.done:
            answer = SimpleNamespace(state="serving")
            assert out == f"{operation.done.format(*given.values(), answer)}\n"
        return
    long = ["--long"] if operation.long else []
    status, out, err = edges.run(capsys, *words, *long, "-f", "json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    row = found[0] if operation.is_list and found else found
    expected = {**operation.columns, **operation.long}
    if row and expected:
        assert list(row) == list(expected)
    assert edges.run(capsys, *words, *long)[0] == 0


# Wrong parameters


@each("rpc", "http")
def test_a_parameter_that_is_not_known_is_named(shared, edge, operation):
    assert "nonsense" in refused(shared, edge, operation, given_to(operation) | {"nonsense": "1"})


@each("rpc", "http")
def test_each_parameter_of_another_type_is_named(shared, edge, operation):
    given = given_to(operation)
    for field in operation.fields:
        if f"{{{field.name}}}" in (operation.path or "") and edge == "http":
            continue  # any text is one
        is_checked = choices(field.type) or is_time(field.type) or field.name == "limit"
        if edge == "http" and operation.method in {"GET", "DELETE"} and not is_checked:
            continue  # likewise
        wrong = "nonsense" if isinstance(given.get(field.name), list | dict | bool) else -1.5
        said = refused(shared, edge, operation, given | {field.name: wrong})
        assert field.name in said, (field.name, said)


@each("rpc", "http")
def test_what_is_missing_is_named(shared, edge, operation):
    given = given_to(operation)
    for field in operation.fields:
        if field.required and (edge == "rpc" or f"{{{field.name}}}" not in operation.path):
            left = {name: value for name, value in given.items() if name != field.name}
            assert field.name in refused(shared, edge, operation, left)


def refused(edges, edge, operation, given) -> str:
    """What is said of the wrong field; nothing has changed."""
    before = edges.rest.state()
    if edge == "rpc":
        with pytest.raises(RemoteFailure) as error:
            edges.rpc(operation, given)
        assert error.value.class_name == "RequestError"
        said = str(error.value)
    else:
        response = edges.http(operation, given, headers={"If-Match": "*"})
        assert response.status_code == 400, response.get_data(as_text=True)
        [problem] = response.get_json()["errors"]
        said = str(problem.get("pointer") or problem.get("parameter"))
    assert edges.rest.state() == before
    return said


# Pages

LISTS = [each for each in OPERATIONS if each.is_list and issubclass(each.parameters, PageQuery)]


@pytest.mark.parametrize("operation", LISTS, ids=[each.name for each in LISTS])
def test_pages_have_each_item_once(longer, operation):
    given = given_to(operation)
    if operation.home != "api":
        whole = asked(longer, "rpc", operation, given | {"limit": 1000})
        found, marker, first = [], None, True
        while first or marker is not None:
            page = longer.rpc(operation, given | {"limit": 1, "marker": marker})
            found, marker, first = found + page[operation.noun], page["next"], False
        assert found == whole
        assert len(found) > 1
    if operation.path is not None:
        whole = asked(longer, "http", operation, given | {"limit": 1000})
        response = longer.http(operation, given | {"limit": 1})
        found = []
        while True:
            page = response.get_json()
            found += page["items"]
            if page["next"] is None:
                break
            assert response.headers["Link"] == f'<{page["next"]}>; rel="next"'
            response = longer.rest.request("GET", page["next"])
        assert found == whole
        assert len(found) > 1


def more(rest):
    """A second one at least of all that is listed."""
    world = rest.world
    world.report(host("more", cluster="east"), host("most", cluster="west"))
    world.place("two"), world.place("three")
    rest.records.recorder.write()
    rest.tuning.set("other", BALLOON)
    tuned(world.state, "west", "uuid-host-west", world.clock.time_s())
    rest.rehearsals.begin(RehearsalQuery(since_s=0.0, until_s=1.0), None, (), "setup")
    rest.call(put_policy, id="packing", name="packed")
    rest.call(attach_cluster, name="east", policy="packing")
    rest.call(attach_cluster, name="east", policy="nova")
    for name in ("w1", "w2"):
        facts = WorkerFacts(name=name, version="1", topic="scheduler")
        Presence(world.state, facts, WorkerReport).renew()


# Rights and audit


@each("rpc", "http")
def test_who_has_no_right_is_refused_changes_nothing_and_is_in_the_audit(shared, edge, operation):
    before = shared.rest.state()
    who = "reader" if is_change(operation) else "nobody"
    given = given_to(operation)
    if edge == "rpc":
        roles = ["auditor"] if is_change(operation) else ["stranger"]
        with pytest.raises(RemoteFailure, match="is not authorized") as error:
            shared.rpc(operation, given, user_id=who, roles=roles, project_id="p")
        assert error.value.class_name == "Forbidden"
        *_, last = audited(shared)
        assert last.origin == "RPC, project p"
        assert not given or last.subject in map(str, given.values())
    else:
        response = shared.http(operation, given, user=who, headers={"If-Match": "*"})
        assert response.status_code == 403, response.get_data(as_text=True)
        *_, last = audited(shared)
        assert last.origin == "127.0.0.1"
    assert (last.user, last.result, last.action) == (who, "refused", operation.right.value)
    assert (shared.rest.state(), shared.worker.calls) == (before, [])


CHANGES = [each for each in OPERATIONS if is_change(each) and each.home == "fleet"]


@pytest.mark.parametrize("operation", CHANGES, ids=[each.name for each in CHANGES])
def test_a_change_over_rpc_is_in_the_audit(edges, operation):
    audited(edges)
    edges.rpc(operation, given_to(operation), user_id="anna", roles=["admin"])
    assert {(entry.user, entry.origin, entry.result) for entry in audited(edges)} == {
        ("anna", "RPC", "done")
    }


def audited(edges) -> list[Any]:
    """The entries of the audit since the last time."""
    return edges.rest.world.audited()


def test_callers_without_roles_have_the_configured_one(edges):
    [release] = [each for each in OPERATIONS if each.name == "release_reservation"]
    with pytest.raises(RemoteFailure, match="reservation:release"):
        Edges(edges.rest, "reader").rpc(release, {"id": "one"})
    with pytest.raises(RemoteFailure, match="is not authorized"):
        Edges(edges.rest, None).rpc(release, {"id": "one"}, roles=["stranger"])
    assert edges.rpc(release, {"id": "one"}) is None


def test_of_several_roles_the_greatest_counts(edges):
    [release] = [each for each in OPERATIONS if each.name == "release_reservation"]
    edges = Edges(edges.rest, None)
    assert edges.rpc(release, {"id": "one"}, roles=["auditor", "admin"]) is None


# Preconditions

CONDITIONAL = [each for each in of("http") if each.has_condition]
WITHOUT = {"release_reservation"}
"""Changes that need not name the state: what they end does not come back."""


@pytest.mark.parametrize("operation", CONDITIONAL, ids=[each.name for each in CONDITIONAL])
def test_a_change_needs_the_state_that_its_caller_has_seen(edges, operation):
    given = given_to(operation)
    before = edges.rest.state()
    assert edges.http(operation, given, headers={"If-Match": '"old"'}).status_code == 412
    if operation.name not in WITHOUT:
        assert edges.http(operation, given).status_code == 428
    assert edges.rest.state() == before
    [show] = [each for each in of("http") if each.path == operation.path and each.method == "GET"]
    seen = edges.http(show, {each.name: given[each.name] for each in show.fields})
    changed = edges.http(operation, given, headers={"If-Match": seen.headers["ETag"]})
    assert changed.status_code in {200, 201, 204}, changed.get_data(as_text=True)


READS = [each for each in of("http") if each.method == "GET"]


@pytest.mark.parametrize("operation", READS, ids=[each.name for each in READS])
def test_an_answer_that_is_known_is_not_sent_again(shared, operation):
    given = given_to(operation)
    etag = shared.http(operation, given).headers["ETag"]
    again = shared.http(operation, given, headers={"If-None-Match": etag})
    assert (again.status_code, again.get_data()) == (304, b"")


# The client


def test_the_client_raises_our_own_errors(edges):
    client = edges.client_of_it
    with pytest.raises(RequestError, match="limit: expected an integer from 1 to 1000, got 0"):
        client.list_hosts(limit=0)
    with pytest.raises(NotFound, match="There is no host 'x'"):
        client.get_host("x")
    with pytest.raises(RequestError, match="there is no cluster 'nowhere'"):
        client.list_hosts("nowhere")
    with pytest.raises(NotFound, match="There is no worker 'w9'"):
        client.get_worker("w9")
    with pytest.raises(AttributeError, match="there is no operation 'get_health'"):
        client.get_health()
    with pytest.raises(Forbidden, match="is not authorized"):
        Edges(edges.rest, None).client_of_it.list_hosts()
