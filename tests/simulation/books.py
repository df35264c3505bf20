"""What must be true of the store: of locks and promises, by what it was seen to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.ports import Change, Grant, Put, Transaction, Written
from scheduler_worker.service import records
from tests.simulation.history import Event
from tests.simulation.plan import Setting
from tests.simulation.store import BEGINNING_S
from tests.simulation.tenants import Racks

T = TypeVar("T")
Blame = Callable[[str], None]
End = Literal["expired", "absorbed", "given back", "lost"]
NEVER_S = float("inf")


class Life:
    """From when until when a promise lived, and how it ended."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.ended_s = NEVER_S
        self.end: End | None = None


class Books:
    """Locks and promises, as an outsider keeps account of them."""

    def __init__(self, racks: Racks, setting: Setting, blame: Blame) -> None:
        self._racks = racks
        self._remembered_s = setting.remember_answers_s
        self._blame = blame
        self._now_s = 0.0
        self.hosts: dict[str, HostRecord] = {}
        self.promises: dict[str, Reservation] = {}
        self.lives: dict[tuple[str, str], list[Life]] = defaultdict(list)
        """Of promises, by instance and host name."""
        self.lost_s = -NEVER_S
        """When the store lost data last."""
        self.ran_out: list[str] = []
        """Holds that only time ended, which is well where something broke."""
        self._answers: dict[str, Reservation] = {}
        """What is remembered for an instance, as the promise that it was."""
        self._holds: dict[str, Grant] = {}
        self._ends_s: dict[str, float] = {}
        self._tokens: dict[tuple[str, str], int] = {}
        self._commits: set[tuple[str, int]] = set()
        self._rules: dict[str, Callable[[Event], None]] = {
            "holds": self._granted,
            "commits": self._committed,
            "releases": self._released,
            "writes": self._wrote,
            "lost data": self._lost,
        }

    def see(self, event: Event) -> None:
        self._now_s = event.time_s
        rule = self._rules.get(event.what)
        if rule is not None:
            rule(event)

    def living(self) -> Iterable[Reservation]:
        """The promises that have not expired, whether or not the store has looked."""
        store_s = BEGINNING_S + self._now_s
        return (each for each in self.promises.values() if each.expires_at_s > store_s)

    # The lock

    def _granted(self, event: Event) -> None:
        grant: Grant = event.facts["grant"]
        self._take(event.facts["changed"])
        before = self._holds.get(grant.scope)
        if before is not None and self._ends_s[before.owner] > self._now_s:
            self._blame(f"{grant.scope} was granted to {event.who} while somebody held it")
        elif before is not None:
            self.ran_out.append(f"{grant.scope}#{before.token.number}")
        token, last = grant.token, self._tokens.get((grant.scope, grant.token.epoch), 0)
        if token.number <= last:
            self._blame(f"token {token.number} of {grant.scope} came after {last}")
        self._tokens[grant.scope, token.epoch] = token.number
        self._holds[grant.scope] = grant
        self._ends_s[grant.owner] = event.facts["ends_s"]

    def _committed(self, event: Event) -> None:
        grant: Grant = event.facts["grant"]
        written: Written = event.facts["written"]
        commit = grant.owner, grant.turn
        if commit in self._commits:  # a repetition, which wrote nothing
            self._take(event.facts["changed"])
            return
        self._commits.add(commit)
        holder = self._holds.get(grant.scope)
        if holder is None or holder.owner != grant.owner:
            self._blame(f"{event.who} committed to {grant.scope} and did not hold it")
        elif self._ends_s[grant.owner] <= self._now_s:
            self._blame(f"{event.who} committed to {grant.scope} after the end of its hold")
        if not written.kept:
            self._end_hold(grant)
        applied = _applied(event)
        self._take(event.facts["changed"], applied)
        for put in _puts(applied):
            if put.key.startswith(records.PROMISE):
                self._check_promise(put.key[2:], grant)

    def _released(self, event: Event) -> None:
        self._take(event.facts["changed"] or ())
        self._end_hold(event.facts["grant"])

    def _end_hold(self, grant: Grant) -> None:
        holder = self._holds.get(grant.scope)
        if holder is not None and holder.owner == grant.owner:
            del self._holds[grant.scope]

    # Promises that are made

    def _check_promise(self, promise_id: str, grant: Grant) -> None:
        promise = self.promises.get(promise_id)
        if promise is None:
            self._blame(f"{promise_id} was committed and is not there")
            return
        if promise.token != grant.token.number:
            self._blame(f"{promise_id} carries token {promise.token}, not its hold's")
        others = [
            each.host
            for each in self.living()
            if each.instance_uuid == promise.instance_uuid and each.id != promise_id
        ]
        if others:
            self._blame(f"{promise_id} was promised while {others} was promised to it")
        answer = self._answers.get(promise.instance_uuid)
        if answer is not None and self._is_remembered(answer, promise.request_id):
            self._blame(f"{promise_id} was promised to a request that had got {answer.host}")
        host = self.hosts.get(promise.host_uuid)
        if host is None:
            self._blame(f"{promise_id} is on a host that is not there")
        else:
            self._check_room(promise_id, host)

    def _check_room(self, promise_id: str, host: HostRecord) -> None:
        on_it = [each.resources for each in self.living() if each.host_uuid == host.uuid]
        for what, used, total in (
            ("vCPUs", host.vcpus_used + sum(each.vcpus for each in on_it), host.vcpus),
            ("MiB", host.memory_mb_used + sum(each.memory_mb for each in on_it), host.memory_mb),
        ):
            if used > total:
                self._blame(f"{promise_id}: {host.host} owes {used} {what} and has {total}")

    def _is_remembered(self, answer: Reservation, request_id: str) -> bool:
        forgotten_s = answer.created_at_s + self._remembered_s
        return (
            answer.request_id == request_id
            and answer.host_uuid in self.hosts
            and forgotten_s > BEGINNING_S + self._now_s
        )

    def _wrote(self, event: Event) -> None:
        is_first = event.facts["written"].before >= 0  # otherwise it answers what it did before
        applied = _applied(event) if is_first else []
        living = {records.PROMISE + each.id for each in self.living()}
        for put in _puts(applied):
            if put.key.startswith(records.PROMISE) and put.key not in living:
                self._blame(f"{event.who} wrote {put.key} without the lock")
        self._take(event.facts["changed"], applied)

    # Promises that end

    def _end_of(self, promise: Reservation, applied: Sequence[Transaction]) -> End:
        """Why a promise went; nothing else is a reason."""
        key = records.PROMISE + promise.id
        for transaction in applied:
            if Put(key, None) in transaction.puts:
                written = {put.key: put.value for put in transaction.puts if put.value is not None}
                use = written.get(records.HOST + promise.host_uuid)
                if use is not None:
                    self._check_use(promise, records.read_host(use))
                    return "absorbed"
                listed = written.get(records.INSTANCES + promise.host)
                if listed is not None and promise.instance_uuid in records.read_instances(listed):
                    self._blame(f"{key} was freed by an announcement")
                return "given back"
        if promise.expires_at_s > BEGINNING_S + self._now_s:
            self._blame(f"{key} went without a reason")
        return "expired"

    def _check_use(self, promise: Reservation, host: HostRecord) -> None:
        """Use frees a promise only if it includes the instance, or the instance is elsewhere."""
        measured_s = (host.updated_at or 0.0) - BEGINNING_S
        built_s = [
            when_s
            for (instance, where), when_s in self._racks.built_s.items()
            if instance == promise.instance_uuid and where == host.host
        ]
        is_elsewhere = not built_s and self._racks.is_known(promise.instance_uuid)
        if not is_elsewhere and min(built_s, default=NEVER_S) > measured_s:
            self._blame(f"{records.PROMISE}{promise.id} was absorbed by use without it")

    # Records

    def _take(self, changes: Iterable[Change], applied: Sequence[Transaction] = ()) -> None:
        for change in changes:
            kind, name = change.key[:2], change.key[2:]
            if kind == records.PROMISE and change.value is None:
                if name in self.promises:
                    self._end(name, self._end_of(self.promises[name], applied))
            elif kind == records.PROMISE and change.value is not None:
                self._keep(records.read_promise(change.value))
            elif kind == records.HOST:
                _put(self.hosts, name, change.value, records.read_host)
            elif kind == records.ANSWER:
                _put(self._answers, name, change.value, records.read_promise)

    def _keep(self, promise: Reservation) -> None:
        if promise.id not in self.promises:
            self.lives[promise.instance_uuid, promise.host].append(Life(self._now_s))
        self.promises[promise.id] = promise

    def _end(self, promise_id: str, how: End) -> None:
        promise = self.promises.pop(promise_id)
        life = self.lives[promise.instance_uuid, promise.host][-1]
        life.ended_s, life.end = self._now_s, how

    def _lost(self, event: Event) -> None:
        self.lost_s = self._now_s
        for promise_id in list(self.promises):
            self._end(promise_id, "lost")
        self.hosts.clear()
        self._answers.clear()
        self._holds.clear()
        for changes in event.facts["held"].values():
            self._take(changes)


def _applied(event: Event) -> list[Transaction]:
    # Only a broken build answers for fewer than it was given, and that is found out elsewhere.
    pairs = zip(event.facts["transactions"], event.facts["written"].applied, strict=False)
    return [transaction for transaction, is_applied in pairs if is_applied]


def _puts(transactions: Iterable[Transaction]) -> list[Put]:
    return [put for each in transactions for put in each.puts if put.value is not None]


def _put(kept: dict[str, T], name: str, value: bytes | None, read: Callable[[bytes], T]) -> None:
    if value is None:
        kept.pop(name, None)
    else:
        kept[name] = read(value)
