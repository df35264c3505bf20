"""The book of documents: many who edit at once, a process that dies, and a state that is emptied.

The rules of single edits are those of every policy store: ``test_policy_store.py``.
"""

import itertools
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.errors import AdministrationError
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.policy_store import NEW, Attachment, AuditEntry, StoredPolicy, StoredUnit
from scheduler_worker.ports import Store, Transaction
from scheduler_worker.service.documents import book as books
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.book import Book, Edited
from scheduler_worker.service.documents.rules import Documents
from tests.support.patience import NEVER_S
from tests.support.threads import Threads

EDITS, WHO = 60, 4


def text(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def entry(action: str, subject: str, before: object = None, after: object = None) -> AuditEntry:
    was, now = text(before), text(after)
    return AuditEntry(at_s=1.0, user="u", action=action, subject=subject, before=was, after=now)


def some_edit(rng: random.Random) -> books.Edit:
    """Put, remove or attach one of a few policies, whose few names differ in letter case, too."""
    policy_id, cluster = f"id{rng.randrange(6)}", f"c{rng.randrange(5)}"
    name = rng.choice(["Name", "name"]) + str(rng.randrange(5))
    kind, pause_s = rng.randrange(4), rng.random() * 0.002

    def edit(now: Documents) -> Edited:
        time.sleep(pause_s)  # what compiling a policy takes
        stored = now.policies.get(policy_id)
        if kind < 2:
            version = stored.document.version if stored else NEW
            document = ClusterPolicy(id=policy_id, name=name, version=version + 1)
            made = StoredPolicy(document=document)
            after = rules.replaced(now, made, version) if stored else rules.added(now, made)
            return Edited(after, [entry("policy", policy_id, stored, made)])
        if kind == 2:
            after = rules.removed(now, policy_id)
            return Edited(after, [entry("policy", policy_id, stored)])
        before = now.attachments.get(cluster)
        version = before.version if before else NEW
        attachment = Attachment(cluster=cluster, policy_id=policy_id, version=version + 1)
        after = rules.attached(now, attachment, version)
        return Edited(after, [entry("cluster", cluster, before, attachment)])

    return edit


def edit_at_random(store: Store, seed: int, edits: int = EDITS) -> Counter[str]:
    """What became of each edit."""
    rng, book, found = random.Random(seed), Book(store), Counter[str]()
    for _ in range(edits):
        try:
            book.edit(some_edit(rng))
        except AdministrationError as error:
            found[type(error).__name__] += 1
        else:
            found["done"] += 1
    return found


def check(store: Store) -> None:
    """Every rule holds, and the audit replayed gives the book."""
    book = Book(store)
    documents = book.documents()
    names = [each.document.name.casefold() for each in documents.policies.values()]
    assert len(names) == len(set(names))
    assert {each.policy_id for each in documents.attachments.values()} <= documents.policies.keys()
    again: dict[tuple[str, str], str | None] = {}
    marker = None
    while page := book.audit(after=marker, limit=1000):
        for change in page:
            key = change.action, change.subject
            assert again.get(key) == change.before, "an edit did not see the one before it"
            again[key] = change.after
        marker = page[-1].id
    stored = {("policy", key): text(each) for key, each in documents.policies.items()}
    stored |= {("cluster", key): text(each) for key, each in documents.attachments.items()}
    assert {key: text for key, text in again.items() if text is not None} == stored


def test_rules_hold_when_many_edit_at_once(engine):
    store = engine.open()
    with Threads(WHO) as pool:
        found = sum(pool.map(lambda seed: edit_at_random(store, seed), range(WHO)), Counter())
    assert found["done"] > EDITS
    assert found.keys() >= {"NameTaken", "NotFound", "InUse"}
    check(store)


def test_the_guard_is_what_makes_them_hold(engine, monkeypatch):
    monkeypatch.setattr(books, "Transaction", lambda puts, _: Transaction(puts))
    store = engine.open()
    with Threads(WHO) as pool:
        for first in range(0, 20 * WHO, WHO):  # mostly the first time breaks a rule
            list(pool.map(lambda seed: edit_at_random(store, seed), range(first, first + WHO)))
            try:
                check(store)
            except AssertionError:
                return
    pytest.fail("every rule holds without the guard")


def connected(url: str) -> RedisState:
    return RedisState(
        url, clock=SystemClock(), prefix="book", hold_timeout_s=NEVER_S, offer_s=NEVER_S
    )


def edit_for_ever(url: str, seed: int) -> None:
    """As a process of its own; prints a line for each edit."""
    store = connected(url)
    for number in itertools.count():
        edit_at_random(store, 1000 * seed + number, 1)
        print(number, flush=True)


def test_rules_hold_over_processes_that_are_killed(redis_url):
    program = f"from {__name__} import *"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"{program}; edit_for_ever({redis_url!r}, {seed})"],
            stdout=subprocess.PIPE, text=True,
        )
        for seed in range(WHO)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert len(list(itertools.islice(process.stdout, 20))) == 20
        process.kill()
        process.communicate()
    store = connected(redis_url)
    check(store)
    store.close()


@pytest.fixture
def copy() -> Documents:
    """What an archive has."""
    policy = StoredPolicy(document=ClusterPolicy(id="p", name="packing", version=7))
    return Documents(
        {"p": policy},
        {"east": Attachment(cluster="east", policy_id="p", version=3)},
        {"u": StoredUnit(id="u", name="Bought", kind="filter")},
    )


def test_a_book_is_founded_once(engine, copy):
    store = engine.open()
    many = [Book(store) for _ in range(WHO)]
    with Threads(WHO) as pool:
        found = list(pool.map(lambda book: book.found(copy, "archive 1"), many))
    assert found.count(True) == 1
    assert Book(store).documents() == copy
    assert many[0].documents() == copy
    assert many[0].head() == books.Head(archive="archive 1")


def test_an_emptied_state_has_no_book_and_can_be_refilled(redis_engine, redis_client, copy):
    book = Book(redis_engine.open())
    assert book.found(copy, "archive 1")
    redis_client.flushall()
    assert book.documents() == Documents()
    assert book.head() is None
    assert book.found(copy, "archive 1")
    assert book.documents() == copy


@pytest.fixture
def interrupted(monkeypatch) -> Iterator[list[str]]:
    """Another edit comes first, each time; what was tried is listed."""
    tried: list[str] = []
    monkeypatch.setattr(books, "_TRIES", 3)
    yield tried


def test_an_edit_that_is_always_second_is_refused_after_some_tries(engine, interrupted):
    store = engine.open()
    other = Book(store)

    def edit(now: Documents) -> Edited:
        interrupted.append("")
        other.record(entry("x", "y"))
        return Edited(now, [entry("a", "b")])

    with pytest.raises(AdministrationError, match="repeat the change"):
        Book(store).edit(edit)
    assert len(interrupted) == 3


def test_an_edit_that_changes_nothing_writes_nothing(engine, copy):
    book = Book(engine.open())
    book.found(copy, "")
    before = book.seen
    assert book.edit(lambda now: Edited(now, ())) == copy
    book.documents()
    assert book.seen == before
