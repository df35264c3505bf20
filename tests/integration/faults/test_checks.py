"""Every check of the arena fails where it has to: on false histories, without a server."""

import contextlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from scheduler_worker import codec
from scheduler_worker.backends import redis as redis_backend
from scheduler_worker.errors import NoValidHost, StateUnavailable
from scheduler_worker.model.decisions import Selection
from tests.integration.faults import arena as arenas
from tests.integration.faults import books as accounts
from tests.integration.faults import skewed, tenants
from tests.integration.faults.arena import CLUSTERS, TENANTS, Arena
from tests.integration.faults.books import Auditor, Books, Snapshot
from tests.integration.faults.tenants import Mailbox, Racks, Served, Tenant


class Client:
    """Workers that answer as they are told."""

    def list_reservations(self, **_: Any) -> dict[str, Any]:
        return {"reservations": []}

    def update_hosts(self, reports: list[Any]) -> None: ...


def at_once(is_so: Any, _timeout_s: float = 0.0) -> None:
    assert is_so(), "it is not so"


@pytest.fixture
def arena(tmp_path, monkeypatch) -> Any:
    """After a history in which all is well; nothing runs, and nothing is waited for."""
    monkeypatch.setattr(arenas, "SOON_S", 0.0)
    monkeypatch.setattr(arenas, "NEVER_S", 0.0)
    monkeypatch.setattr(arenas, "eventually", at_once)
    made: Any = Arena(tmp_path)
    made.served, made.client = Served(), Client()
    made.racks = Racks(CLUSTERS, 5)
    made._tenants, made._reporters = [], []
    hosts = [
        {"uuid": name, "host": name, "vcpus": 5, "cluster": cluster}
        for cluster, names in CLUSTERS.items()
        for name in names
    ]
    instances: dict[str, set[str]] = {name: set() for name in made.racks.instances}
    snapshot = Snapshot(100.0, hosts, [], instances)
    made.auditor = SimpleNamespace(
        look=lambda: snapshot, until_it_looked=lambda: None, violations=set()
    )
    made.client.update_instance_info = lambda host, facts: instances[host].add(facts[0]["uuid"])
    return made


def reservation(**fields: Any) -> dict[str, Any]:
    plain = {"instance_uuid": "i", "host_uuid": "e1", "host": "e1", "resources": {"vcpus": 1}}
    return plain | {"expires_at_s": 200.0, "created_at_s": 50.0} | fields


def served_all(arena: Any, begun_s: float) -> None:
    for number in range(TENANTS):
        arena.served.note(f"tenant-{number}", begun_s)


def overbook(arena: Any) -> None:
    arena.auditor.violations.add("a host owes more than it has")


def lose_a_cast(arena: Any) -> None:
    arena.served.broken.append("a cast was not answered")


def leave_a_reservation(arena: Any) -> None:
    arena.auditor.look().reservations.append(reservation(expires_at_s=99.0))


def close_the_listing(arena: Any) -> None:
    def away(**_: Any) -> dict[str, Any]:
        raise StateUnavailable("it is away")

    arena.client.list_reservations = away


def keep_an_instance(arena: Any) -> None:
    arena.auditor.look().instances["e1"].add("deleted long ago")


def forget_an_instance(arena: Any) -> None:
    arena.racks.build("built", "w2")


def forget_a_host(arena: Any) -> None:
    del arena.auditor.look().instances["w4"]


def lose_announcements(arena: Any) -> None:
    arena.client.update_instance_info = lambda *_: None


def keep_a_reservation(arena: Any) -> None:
    arena.auditor.look().reservations.append(reservation())


def hang_a_tenant(arena: Any) -> None:
    tenant: Any = SimpleNamespace(
        name="tenant-1", stop=lambda: None, join=lambda _: None, is_alive=lambda: True
    )
    arena._tenants.append(tenant)


def test_a_history_in_which_all_is_well_passes(arena):
    arena.check()
    arena.stop()


@pytest.mark.parametrize(
    "harm",
    [overbook, lose_a_cast, leave_a_reservation, close_the_listing],
    ids=lambda harm: harm.__name__,
)
def test_what_is_wrong_after_a_fault_fails_it(arena, harm):
    harm(arena)
    with pytest.raises(AssertionError):
        arena.check()


@pytest.mark.parametrize(
    "harm",
    [
        overbook,
        keep_an_instance,
        forget_an_instance,
        forget_a_host,
        lose_announcements,
        keep_a_reservation,
        hang_a_tenant,
    ],
    ids=lambda harm: harm.__name__,
)
def test_what_is_wrong_in_the_end_fails_the_last_one(arena, harm):
    harm(arena)
    with pytest.raises(AssertionError):
        arena.stop()


def test_a_reservation_made_before_the_clock_went_back_may_last(arena):
    arena.auditor.look().reservations.append(reservation(created_at_s=101.0))
    arena.stop()


def test_a_service_that_stands_still_fails_a_fault(arena):
    with pytest.raises(AssertionError, match="stuck"):
        arena.serve_some(1)
    arena.serve_some(0)


@pytest.mark.parametrize("hungry", ["tenant-7", None])
def test_a_tenant_who_is_not_served_again_fails_a_fault(arena, hungry):
    served_all(arena, begun_s=10.0)
    if hungry is None:
        assert arena.until_all_are_served(9.0) > 0
    else:
        arena.served.note(hungry, 9.0)
        with pytest.raises(AssertionError, match="not every tenant"):
            arena.until_all_are_served(9.0)


def test_a_worker_that_does_not_answer_fails_a_fault(arena):
    def silent(*_: Any, **__: Any) -> None:
        raise StateUnavailable("no answer")

    answers = {"one": lambda *_, **__: None, "two": silent}
    arena._bus = SimpleNamespace(
        client=lambda *_, server, **__: SimpleNamespace(call=answers[server])
    )
    arena.workers = {"one": None}
    arena.until_all_workers_answer()
    arena.workers["two"] = None
    with pytest.raises(AssertionError):
        arena.until_all_workers_answer()


def test_a_host_in_another_cluster_or_in_two_has_not_moved(arena):
    assert arena.is_in("e1", "east")
    assert not arena.is_in("e1", "west")
    hosts = arena.auditor.look().hosts
    hosts.append({**hosts[0], "cluster": "west"})
    assert not arena.is_in("e1", "east")
    assert not arena.is_in("nowhere", "east")


# Tenants


class CastClient:
    """Workers that answer each cast with these hosts, one answer for each; none: it is lost."""

    def __init__(self, mailbox: Mailbox, *hosts: str) -> None:
        self._mailbox, self._hosts = mailbox, hosts

    def request_destinations(self, *_: Any, request_id: str, **__: Any) -> None:
        for host in self._hosts:
            chosen = Selection(service_host=host, nodename=host, compute_node_uuid=host)
            self._mailbox.take(
                None, request_id, selections=codec.encode_selections([[chosen]]), error=None
            )


@pytest.mark.parametrize(
    ("hosts", "broken"),
    [
        (["a"], ""),
        (["a", "a"], ""),
        (["b", "a"], r"the cast \S+ was answered with \['a', 'b'\]"),
        ([], r"the cast \S+ was not answered"),
    ],
)
def test_a_cast_that_is_lost_or_answered_with_two_hosts_is_noted(monkeypatch, hosts, broken):
    monkeypatch.setattr(tenants, "LOST_S", 0.0)
    mailbox, served = Mailbox(), Served()
    client: Any = CastClient(mailbox, *hosts)
    tenant = Tenant("tenant", client, Racks(CLUSTERS, 5), mailbox, served)
    if hosts:
        assert tenant._by_cast("i") == "a"
    else:
        with pytest.raises(NoValidHost):
            tenant._by_cast("i")
    assert re.fullmatch(broken, "".join(served.broken))


def test_a_tenant_who_breaks_down_is_noted():
    served = Served()
    client: Any = None
    tenant = Tenant("tenant", client, Racks(CLUSTERS, 5), Mailbox(), served)
    with pytest.raises(AttributeError):
        tenant.run()
    assert "".join(served.broken).startswith("tenant: AttributeError")


# What is read


class Pipeline:
    """Redis with these records of one cluster, whose expiry is held back by two seconds."""

    def __init__(self, records: dict[str, Any]) -> None:
        self._answer = {key: msgspec.json.encode(value) for key, value in records.items()}

    def pipeline(self, **_: Any) -> Any:
        return contextlib.nullcontext(self)

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None

    def execute(self) -> list[Any]:
        return [(100, 500_000), self._answer, "2000000"]


def test_books_have_hosts_reservations_and_instances_with_their_cluster():
    books: Any = Books("redis://127.0.0.1", "faults", ["east"])
    held = {"instance_uuid": "i", "expires_at_s": 98.0}
    records = {"h:u": {"host": "e1"}, "p:i@u": held, "i:e1": ["i"], "q:x": {}}
    books._redis = Pipeline(records)
    found = books.look()
    assert found.now_s == 100.5
    assert found.hosts == [{"host": "e1", "cluster": "east"}]
    assert (found.instances, found.lists) == ({"e1": {"i"}}, [("east", "e1")])
    assert (found.left_behind(100.0), found.left_behind(100.1)) == ([], ["i"])


def test_an_auditor_that_has_ended_fails_a_fault(monkeypatch):
    monkeypatch.setattr(accounts, "SOON_S", 0.0)
    books: Any = None
    with pytest.raises(AssertionError, match="has ended"):
        Auditor(books).until_it_looked()


def test_the_scripts_read_the_clock_of_the_test(monkeypatch):
    monkeypatch.setattr(Path, "read_text", Path.read_text)  # restored in the end
    path = Path(redis_backend.__file__).with_name("common.lua")
    before = path.read_text()
    skewed.skew()
    text = path.read_text()
    assert text != before
    assert text.replace(skewed.SKEWED, skewed.CLOCK) == before
