"""The book of documents: many who edit at once, a process that dies, and a state that is emptied.

The rules of single edits are pure: ``tests/unit/service/documents/test_rules.py``.
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
from msgspec import structs

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.errors import AdministrationError, RequestError
from scheduler_worker.model.audit import AuditEntry, AuditFilter
from scheduler_worker.model.documents import NEW, Attachment, Documents, StoredPolicy, StoredUnit
from scheduler_worker.model.policies import (
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    SelectorUse,
    WeightUse,
)
from scheduler_worker.ports import Store, Transaction
from scheduler_worker.service.documents import book as books
from scheduler_worker.service.documents import rules
from scheduler_worker.service.documents.book import Book, Edited
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
            after = rules.with_policy(now, made)
            return Edited(after, [entry("policy", policy_id, stored, made)])
        if kind == 2:
            after = rules.removed(now, policy_id)
            return Edited(after, [entry("policy", policy_id, stored)])
        before = now.attachments.get(cluster)
        version = before.version if before else NEW
        attachment = Attachment(cluster=cluster, policy_id=policy_id, version=version + 1)
        after = rules.attached(now, attachment)
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


def broken_rules(store: Store) -> Iterator[str]:
    """Each rule that does not hold; the audit replayed is to give the book."""
    book = Book(store)
    documents = book.documents()
    names = [each.document.name.casefold() for each in documents.policies.values()]
    if len(names) > len(set(names)):
        yield "names are unique"
    if {each.policy_id for each in documents.attachments.values()} - documents.policies.keys():
        yield "nothing in use is removed"
    again: dict[tuple[str, str], str | None] = {}
    marker = None
    while page := book.audit(after=marker, limit=1000):
        for change in page:
            key = change.action, change.subject
            if again.get(key) != change.before:
                yield "an edit sees the edit before it"
            again[key] = change.after
        marker = page[-1].id
    stored = {("policy", key): text(each) for key, each in documents.policies.items()}
    stored |= {("cluster", key): text(each) for key, each in documents.attachments.items()}
    if {key: text for key, text in again.items() if text is not None} != stored:
        yield "the audit says what there is"


def test_rules_hold_when_many_edit_at_once(engine):
    store = engine.open()
    with Threads(WHO) as pool:
        found = sum(pool.map(lambda seed: edit_at_random(store, seed), range(WHO)), Counter())
    assert found["done"] > EDITS
    assert found.keys() >= {"NameTaken", "NotFound", "InUse"}
    assert list(broken_rules(store)) == []


RULES = {
    "names are unique", "nothing in use is removed", "an edit sees the edit before it",
    "the audit says what there is",
}  # fmt: skip


def test_the_guard_is_what_makes_each_of_them_hold(engine, monkeypatch):
    monkeypatch.setattr(books, "Transaction", lambda puts, _: Transaction(puts))
    store, broken = engine.open(), set()
    with Threads(WHO) as pool:
        for first in range(0, 100 * WHO, WHO):  # mostly some rounds break all rules
            list(pool.map(lambda seed: edit_at_random(store, seed), range(first, first + WHO)))
            broken |= set(broken_rules(store))
            if broken == RULES:
                return
    pytest.fail(f"without the guard these hold: {RULES - broken}")


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
    assert list(broken_rules(store)) == []
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


def found(book: Book, documents: Documents) -> bool:
    """Whether this one made the book."""
    head = books.Head(archive="archive 1", number=7)

    def founded(before: books.Head | None, _: Documents) -> tuple[books.Head, Edited] | None:
        return (head, Edited(documents, [entry("found", "")])) if before is None else None

    return book.rewrite(founded) is not None


def test_a_book_is_founded_once(engine, copy):
    store = engine.open()
    many = [Book(store) for _ in range(WHO)]
    with Threads(WHO) as pool:
        made = list(pool.map(lambda book: found(book, copy), many))
    assert made.count(True) == 1
    assert Book(store).documents() == copy
    assert many[0].documents() == copy
    assert many[0].head == books.Head(archive="archive 1", number=8)
    assert [each.id for each in many[0].audit()] == ["8"]


def test_an_emptied_state_has_no_book_and_is_founded_by_whoever_asks(
    redis_engine, redis_client, copy
):
    book = Book(redis_engine.open())
    assert found(book, copy)
    redis_client.flushall()
    assert book.documents() == Documents()
    assert book.head is None
    book.found = lambda: found(book, copy)
    assert book.documents() == copy
    redis_client.flushall()
    book.edit(lambda now: Edited(rules.removed(detached(now), "p"), [entry("remove", "p")]))
    assert book.documents().policies == {}
    assert book.documents().units == copy.units


def detached(now: Documents) -> Documents:
    away = Attachment(cluster="east", policy_id="nova", is_built_in=True, version=4)
    return rules.attached(now, away)


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
    found(book, copy)
    book.documents()
    before = book.seen
    assert book.edit(lambda now: Edited(now, ())) == (copy, copy)
    book.documents()
    assert book.seen == before


RICH = ClusterPolicy(
    id="8f6b2f8e",
    name="Größe ✓ 🙂",
    version=1,
    description="two\nlines\tand a tab; ünïcödé 🙂",
    filters=(
        FilterUse(unit="Memory", position="last", parameters={"a": "1", "b": ""}),
        FilterUse(unit="CPU", name="CPU#2"),
        FilterUse(unit="Memory", name="again", position="first", parameters={"a": "2"}),
    ),
    weights=(
        WeightUse(unit="Memory", factor=0.1),
        WeightUse(unit="HA", factor=1e300, parameters={"Scale_Down": "100"}),
        WeightUse(unit="Never", factor=0.0),
        WeightUse(unit="RAMWeigher", factor=-2.5),
    ),
    balance=BalanceUse(unit="Even", parameters={"x": "y"}),
    selector=SelectorUse(unit="RankSum", parameters={"host_subset_size": "3"}),
    parameters={"HighUtilization": "80", "a": "x" * 4096, "empty": ""},
)


def test_documents_come_back_as_they_were_stored(engine, copy):
    store = engine.open()
    stored = StoredPolicy(document=RICH, changed_by="anna ✓", changed_at_s=1763800000.123456)
    other = copy.policies["p"]
    wanted = structs.replace(copy, policies={RICH.id: stored, "p": other})
    Book(store).edit(lambda _: Edited(wanted, [entry("policy", RICH.id)]))
    assert Book(store).documents() == wanted


# The audit


@pytest.mark.parametrize("field", ["user", "origin", "action", "subject", "reason"])
def test_an_entry_with_a_long_text_is_cut_not_lost(engine, field):
    book = Book(engine.open())
    book.record(structs.replace(entry("a", "b"), **{field: "x" * 5000}))
    [found] = book.audit()
    assert 60 <= len(getattr(found, field)) <= 4096


def test_entries_are_read_in_pages_and_by_what_is_wanted(engine):
    book = Book(engine.open())
    for number in range(5):
        book.record(entry("b" if number == 2 else "a", f"s{number}"))
    entries = book.audit()
    assert [(each.id, each.subject) for each in entries] == [
        (str(number + 1), f"s{number}") for number in range(5)
    ]
    assert book.audit(limit=2) == entries[:2]
    assert book.audit(after="2", limit=2) == entries[2:4]
    assert book.audit(AuditFilter(action="a"), after="2") == entries[3:]
    assert book.audit(after="5") == []


@pytest.mark.parametrize(
    "marker", ["", "x", "-1", "1.5", "\N{SUPERSCRIPT TWO}", str(2**63), "9" * 5000]
)
def test_a_marker_that_no_page_gave_is_refused(engine, marker):
    book = Book(engine.open())
    with pytest.raises(RequestError, match=r"^marker: ") as refused:
        book.audit(after=marker)
    assert len(str(refused.value)) < 200
    assert book.audit(after=str(2**63 - 1)) == []


def test_of_too_many_entries_the_oldest_go(engine, monkeypatch):
    monkeypatch.setattr(books, "MAX_ENTRIES", 3)
    book = Book(engine.open())
    for number in range(5):
        book.record(entry("a", f"s{number}"))
    assert [(each.id, each.subject) for each in book.audit()] == [
        ("3", "s2"), ("4", "s3"), ("5", "s4"),
    ]  # fmt: skip


def test_a_rewritten_book_has_the_entries_that_it_is_given(engine):
    book = Book(engine.open())
    for number in range(3):
        book.record(entry("a", f"s{number}"))

    def past(head: books.Head | None, now: Documents) -> tuple[books.Head, Edited] | None:
        assert head is not None
        return structs.replace(head, number=2), Edited(now, [entry("a", "again")])

    assert book.rewrite(past, renumbers=True)
    assert [(each.id, each.subject) for each in book.audit()] == [("3", "again")]
    assert [each.id for each in Book(book._store).audit()] == ["3"]
