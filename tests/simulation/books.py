"""Invariants of reservations, checked on what the store was seen to do."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.ports import Change, LockGrant, Put, Transaction
from scheduler_worker.service.state import records
from tests.simulation.history import Auditor, Blame, Event
from tests.simulation.locks import Locks
from tests.simulation.plan import Ask, Plan
from tests.simulation.store import BEGINNING_S
from tests.simulation.tenants import Racks

T = TypeVar("T")
End = Literal["expired", "absorbed", "given back", "built elsewhere", "removed", "lost"]
NEVER_S = float("inf")
ROUNDED_S = 1e-6
"""Rounding of times of day."""
FOLLOWED_S = 0.3
"""How late a reservation ends whose instance was built elsewhere, where nothing breaks."""


class Life(msgspec.Struct):
    """The life of a reservation: from when until when, and how it ended."""

    began_s: float
    ended_s: float = NEVER_S
    end: End | None = None


class Books(Auditor):
    """Hosts and reservations."""

    def __init__(self, racks: Racks, plan: Plan, locks: Locks, blame: Blame) -> None:
        super().__init__(blame)
        self._racks = racks
        self._remembered_s = plan.setting.remember_answers_s
        asked = [each for each in plan.deeds if isinstance(each, Ask)]
        self._groups = {each.request: frozenset(each.group) for each in asked}
        self._clusters = {each.request: each.cluster for each in asked}
        self._locks = locks
        self._ahead_s = 0.0
        """By how much the store's clock is wrong."""
        self._latest_s = 0.0
        """The latest time that it ever showed."""
        self._wrong_s = 0.0
        """By how much it ever was."""
        self.hosts: dict[str, dict[str, HostRecord]] = defaultdict(dict)
        """Of a cluster, by uuid."""
        self._reservations: dict[str, dict[str, Reservation]] = defaultdict(dict)
        """Of a cluster, by their ids; one that moves with its host may be in two for a while."""
        self._versions: dict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
        """Of a cluster, by key: the version of the record, 0 if it is gone, and since when."""
        self.lives: dict[tuple[str, str], list[Life]] = defaultdict(list)
        """The lives of reservations, by instance and host name."""
        self.lost_s = -NEVER_S
        """When the store lost data last."""
        self._departing: dict[str, Sequence[Reservation]] = {}
        """The remembered answers of hosts that move; their reservations are in a pseudo-cluster."""
        self._listed: dict[str, dict[str, dict[str, Any]]] = {}
        """The instances that are known to be on a host."""
        self._moving: dict[str, HostRecord] = {}
        """The records of hosts that move."""
        self._torn: set[str] = set()
        """The uuids of hosts that moved when the store lost data: two clusters may have them."""
        self._ended: dict[str, End] = {}
        """How reservations ended that a departure still contains."""
        self._is_calm = plan.is_calm
        self._void_s: dict[str, float] = {}
        """Since when the store shows of a reservation that its instance was built elsewhere."""
        self._read: dict[tuple[str, str], Mapping[str, float]] = {}
        """By cluster and host name: the announcements that count as read there."""
        self._ever_read: set[tuple[str, str]] = set()
        """The same by host name and message, wherever."""
        self._answers: dict[str, Reservation] = {}
        """The remembered answer of an instance, as the reservation that it was."""
        self._rules = {
            "leases": lambda event: self._take(event.facts["grant"].scope, event.facts["changed"]),
            "releases": self._found_ended,
            "leaves": self._found_ended,
            "finds ended": self._found_ended,
            "commits": self._committed,
            "writes": self._wrote,
            "lost data": self._lost,
            "is set": self._was_set,
        }

    def see(self, event: Event) -> None:
        self._now_s = event.time_s
        self._latest_s = max(self._latest_s, self._store_s)
        for reservation_id, since_s in self._void_s.items() if self._is_calm else ():
            if self._now_s > since_s + FOLLOWED_S:
                self._blame(f"{reservation_id} was built elsewhere and is reserved still")
        super().see(event)

    def living(self) -> Iterable[Reservation]:
        """The reservations in the store.

        A departure still has a copy of those that have ended in the new cluster.
        """
        by_id = {
            key: each
            for where, some in self._reservations.items()
            for key, each in some.items()
            if not (where in self._departing and key in self._ended)
        }
        return by_id.values()

    def is_outside(self, request: str, host: str) -> bool:
        """Whether a host moved out of the cluster that a request names; it suits no longer."""
        cluster = self._clusters.get(request)
        known = [each.host for each in self.hosts[cluster].values()] if cluster else ()
        return cluster is not None and host not in known

    def hosts_named(self, name: str) -> list[HostRecord]:
        """The host's record, in whichever cluster it is, or between two."""
        hosts = [each for some in self.hosts.values() for each in some.values()]
        return [each for each in (*hosts, *self._moving.values()) if each.host == name]

    @property
    def _store_s(self) -> float:
        return BEGINNING_S + self._now_s + self._ahead_s

    def _was_set(self, event: Event) -> None:
        self._ahead_s += event.facts["by_s"]
        self._wrong_s = max(self._wrong_s, abs(self._ahead_s))

    def _found_ended(self, event: Event) -> None:
        self._take(event.facts["scope"], event.facts["changed"] or ())

    # Reservations that are made

    def _committed(self, event: Event) -> None:
        grant: LockGrant = event.facts["grant"]
        applied = _applied(event) if self._locks.committed(event) else []
        if applied:
            self._check_knowledge(event, grant)
        before = {each.id for each in self.living()}
        self._take(grant.scope, event.facts["changed"], applied)
        for put in _puts(applied):
            if put.key.startswith(records.RESERVATION):
                self._check_reservation(
                    put.key[2:],
                    grant,
                    is_renewed=put.key[2:] in before,
                    known=event.facts["known"],
                )

    def _check_knowledge(self, event: Event, grant: LockGrant) -> None:
        """A worker that commits knows every change that there was when it got the lock."""
        began_s, known = self._locks.known_since_s(grant), event.facts["known"]
        if self.lost_s > began_s:
            return
        since = {change.key for change in event.facts["changed"]}
        unknown = [
            key
            for key, (version, since_s) in self._versions[grant.scope].items()
            if since_s < began_s and known.get(key, 0) != version and key not in since
        ]
        if unknown:
            self._blame(f"{event.who} committed and did not know of {unknown}")

    def _check_reservation(
        self, reservation_id: str, grant: LockGrant, *, is_renewed: bool, known: Mapping[str, int]
    ) -> None:
        reservation = self._reservations[grant.scope].get(reservation_id)
        if reservation is None:
            self._blame(f"{reservation_id} was committed and is not there")
            return
        if reservation.token != grant.token.number:
            self._blame(f"{reservation_id} carries token {reservation.token}, not its lease's")
        others = [
            each.host
            for each in self.living()
            if each.instance_uuid == reservation.instance_uuid and each.id != reservation_id
            if self.hosts_named(each.host)  # one on a removed host does not count
            if not self.is_outside(reservation.request_id, each.host)
        ]
        if others:
            self._blame(f"{reservation_id} was reserved while {others} was reserved for it")
        answer = self._answers.get(reservation.instance_uuid)
        if (
            answer is not None
            and self._is_remembered(answer, reservation.request_id)
            and not self.is_outside(reservation.request_id, answer.host)
        ):
            self._blame(f"{reservation_id} was reserved for a request that had got {answer.host}")
        host = self.hosts[grant.scope].get(reservation.host_uuid)
        if host is None:
            # Renewed before it was packed, it goes along with its host; under a former uuid of
            # its node it is where the node is; and of a removal its worker may not have heard.
            hosts = (*self._moving.values(), *self.hosts[grant.scope].values())
            may_be = any(each.host == reservation.host for each in hosts)
            may_be |= records.HOST + reservation.host_uuid in known
            if not (is_renewed and may_be):
                self._blame(f"{reservation_id} is on a host that is not there")
        elif not is_renewed and host.uuid not in self._torn:
            self._check_room(reservation, host)

    def _check_room(self, reservation: Reservation, host: HostRecord) -> None:
        # By name: a host that is created anew has what is reserved under its former uuid.
        on_it = [each for each in self.living() if each.host == host.host]
        taken = [each.resources for each in on_it]
        for what, used, total in (
            ("vCPUs", host.vcpus_used + sum(each.vcpus for each in taken), host.vcpus),
            ("MiB", host.memory_mb_used + sum(each.memory_mb for each in taken), host.memory_mb),
        ):
            if used > total:
                self._blame(
                    f"{reservation.id}: {host.host} has {used} {what} used or reserved, of {total}"
                )
        others = [each for each in on_it if each.id != reservation.id]
        pinned = _pinned_by(host).union(*map(_pinned, others))
        if shared := pinned & _pinned(reservation):
            self._blame(f"{reservation.id}: CPUs {sorted(shared)} of {host.host} are taken")
        group = self._groups.get(reservation.request_id, frozenset())
        if reservation.instance_uuid in self._listed.get(host.host, ()):
            return  # the rule lets an instance stay where it is
        members = [each.instance_uuid for each in others if each.instance_uuid in group]
        if members:
            self._blame(f"{reservation.id} shares {host.host} with {members} of its group")

    def _is_remembered(self, answer: Reservation, request_id: str) -> bool:
        forgotten_s = answer.created_at_s + self._remembered_s
        is_there = any(answer.host_uuid in some for some in self.hosts.values())
        return answer.answers(request_id) and is_there and forgotten_s > self._store_s

    def _wrote(self, event: Event) -> None:
        is_first = event.facts["written"].before >= 0  # otherwise it repeats its answer
        applied = _applied(event) if is_first else []
        departing = (each for some in self._departing.values() for each in some)
        before = (*self.living(), *self._answers.values(), *departing)
        for put in _puts(applied):
            if put.key.startswith((records.RESERVATION, records.ANSWER)):
                reservation = records.read_reservation(put.value or b"")
                known = before if put.key.startswith(records.ANSWER) else self.living()
                if reservation.host_uuid not in self._torn and not any(
                    _is_of(reservation, each) for each in known
                ):
                    self._blame(f"{event.who} wrote {put.key}, for which there was no reservation")
        self._take(event.facts["scope"], event.facts["changed"], applied)

    # Reservations that end

    def _end_of(self, reservation: Reservation, applied: Sequence[Transaction] | None) -> End:
        """How a reservation ended; there are no other ways."""
        if applied is None:
            return "lost"
        key = records.RESERVATION + reservation.id
        for transaction in applied:
            if Put(key, None) in transaction.puts:
                removed = Put(records.HOST + reservation.host_uuid, None) in transaction.puts
                if removed or not self.hosts_named(reservation.host):
                    return "removed"
                written = {put.key: put.value for put in transaction.puts if put.value is not None}
                use = self._written_host(written, reservation.host)
                listed = written.get(records.INSTANCES + reservation.host)
                if use is not None:
                    is_known = self._lists_deleted(reservation.host, listed)
                    if not is_known and not self._may_include(use, reservation):
                        self._blame(f"{key} was absorbed by use without it")
                    return "absorbed"
                if listed is None and reservation.id in self._void_s:
                    return "built elsewhere"
                if listed is None or reservation.instance_uuid not in records.read_instances(
                    listed
                ):
                    return "given back"
                # Use that was reported earlier, by a clock ahead of the store's, may include it.
                if not any(
                    self._may_include(each, reservation)
                    for each in self.hosts_named(reservation.host)
                ):
                    self._blame(f"{key} was freed by an announcement")
                return "absorbed"
        if reservation.expires_at_s > self._latest_s:
            self._blame(f"{key} went without a reason")
        return "expired"

    def _written_host(self, written: Mapping[str, bytes], name: str) -> HostRecord | None:
        """The host of this name that a transaction writes, under whichever uuid."""
        hosts = (
            records.read_host(value)
            for key, value in written.items()
            if key.startswith(records.HOST)
        )
        return next((each for each in hosts if each.host == name), None)

    def _may_include(self, host: HostRecord, reservation: Reservation) -> bool:
        """Whether a host's use may include the instance, or that is known to be elsewhere."""
        # Whether it was announced before: the host's clock is compared with the store's.
        wrong_s = ROUNDED_S + self._wrong_s
        measured_s = (host.updated_at or 0.0) - BEGINNING_S + wrong_s
        built_s = [
            when_s
            for (instance, where), when_s in self._racks.built_s.items()
            if instance == reservation.instance_uuid and where == host.host
        ]
        is_elsewhere = not built_s and self._racks.is_known(reservation.instance_uuid)
        is_built = min(built_s, default=NEVER_S) <= measured_s
        return is_elsewhere or is_built or self._has_unknown_use(host.host)

    def _lists_deleted(self, host: str, listed: bytes | None) -> bool:
        """Whether a report is older than the deletion of an instance that it lists.

        Nobody knows any more what that instance took.
        """
        named = records.read_instances(listed) if listed is not None else {}
        there = self._racks.instances[host]
        return any((uuid, host) in self._racks.built_s and uuid not in there for uuid in named)

    def _has_unknown_use(self, host: str) -> bool:
        """Whether its use may have grown by something of which no worker knows.

        Then an instance that is listed before it is built may be taken for a part of the use: use
        is one sum.
        """
        if not self._racks.setting.begun_s:
            return False
        known = {"absorbed", None}
        lives = (
            self.lives.get((instance, where), [])
            for instance, where in self._racks.built_s
            if where == host
        )
        return (
            host in self._racks.used_by_others
            or self.lost_s > -NEVER_S
            or any(not some or some[-1].end not in known for some in lives)
        )

    # Records

    def _take(
        self, scope: str, changes: Iterable[Change], applied: Sequence[Transaction] = ()
    ) -> None:
        # New ones come first: a reservation that moves with its host does not end.
        for change in sorted(changes, key=lambda each: each.value is None):
            kind, name = change.key[:2], change.key[2:]
            version = change.version if change.value is not None else 0
            self._versions[scope][change.key] = version, self._now_s
            if kind == records.RESERVATION and change.value is None:
                if name in self._reservations[scope]:
                    self._end(scope, name, applied)
            elif kind == records.DEPARTURE:
                self._depart(f"{scope} {change.key}", change.value, applied)
            elif kind == records.RESERVATION and change.value is not None:
                self._keep(scope, records.read_reservation(change.value))
            elif kind == records.HOST:
                _put(self.hosts[scope], name, change.value, records.read_host)
            elif kind == records.INSTANCES:
                _put(self._listed, name, change.value, records.read_instances)
                self._find_void(scope, name)
            elif kind == records.READ:
                self._read_announcements(scope, name, change.value, applied)
            elif kind == records.ANSWER:
                _put(self._answers, name, change.value, records.read_reservation)

    def _find_void(self, scope: str, host: str) -> None:
        """An instance that has come to a host since another was reserved for it."""
        listed = self._listed.get(host, {})
        for where, some in self._reservations.items():
            # A worker may know of the reservations of other clusters some seconds late.
            since_s = self._now_s if where == scope else NEVER_S
            for reservation in some.values():
                facts = listed.get(reservation.instance_uuid, {})
                has_come = facts.get("since_s", 0.0) > reservation.created_at_s
                if reservation.host != host and facts.get("vm_state") == "active" and has_come:
                    self._void_s.setdefault(reservation.id, since_s)

    def _read_announcements(
        self, scope: str, host: str, value: bytes | None, applied: Sequence[Transaction]
    ) -> None:
        """Each is read once where its host is; with the host, that comes along."""
        before = self._read.pop((scope, host), {})
        now = self._read[scope, host] = records.read_announcements(value) if value else {}
        new = {(host, message) for message in now.keys() - before.keys()}
        comes_along = any(put.key.startswith(records.FINISHED) for put in _puts(applied))
        if any(each.host == host for each in self.hosts[scope].values()):
            again = new & self._ever_read
            if again and applied and not comes_along:
                self._blame(f"{again} was read again in {scope}")
            self._ever_read |= new

    def _depart(self, where: str, value: bytes | None, applied: Sequence[Transaction]) -> None:
        """A host that moves takes its reservations along."""
        departure = records.read_departure(value) if value else None
        for reservation in departure.reservations if departure else ():
            self._keep(where, reservation)
        self._departing.pop(where, None)
        self._moving.pop(where, None)
        if departure:
            self._departing[where] = departure.answers
            if departure.host:
                self._moving[where] = departure.host
        else:
            for reservation_id in list(self._reservations[where]):
                self._end(where, reservation_id, applied)

    def _keep(self, scope: str, reservation: Reservation) -> None:
        if not self._where(reservation):
            self.lives[reservation.instance_uuid, reservation.host].append(Life(self._now_s))
        self._reservations[scope][reservation.id] = reservation

    def _end(self, scope: str, reservation_id: str, applied: Sequence[Transaction] | None) -> None:
        """It ended by these transactions; without any, the store lost it."""
        reservation = self._reservations[scope].pop(reservation_id)
        where = self._where(reservation)
        if where and not any(each.startswith(f"{scope} ") for each in where):
            # It ended where its host has arrived; the departure is not over yet.
            if all(each in self._departing for each in where):
                self._ended[reservation_id] = self._end_of(reservation, applied)
        elif not where:
            life = self.lives[reservation.instance_uuid, reservation.host][-1]
            life.ended_s = self._now_s
            known = self._ended.pop(reservation_id, None)
            life.end = known or self._end_of(reservation, applied)
            self._void_s.pop(reservation_id, None)

    def _where(self, reservation: Reservation) -> list[str]:
        """The reservations of the instance on this host, in clusters and with hosts that move."""
        return [
            where
            for where, some in self._reservations.items()
            if any(_is_of(reservation, each) for each in some.values())
        ]

    def _lost(self, event: Event) -> None:
        self.lost_s = self._now_s
        self._torn |= {each.uuid for each in self._moving.values()}
        for scope, some in self._reservations.items():
            for reservation_id in list(some):
                self._end(scope, reservation_id, None)
        for known in (self.hosts, self._answers, self._departing, self._moving, self._listed,
                      self._ended, self._versions, self._void_s, self._read):  # fmt: skip
            known.clear()
        self._ever_read.clear()
        for scope, changes in event.facts["held"].items():
            self._take(scope, changes)


def reserved_by(event: Event) -> list[Reservation]:
    puts = _puts(_applied(event))
    return [
        records.read_reservation(put.value or b"")
        for put in puts
        if put.key.startswith(records.RESERVATION)
    ]


def _is_of(reservation: Reservation, other: Reservation) -> bool:
    return (reservation.instance_uuid, reservation.host) == (other.instance_uuid, other.host)


def _pinned(reservation: Reservation) -> set[int]:
    return {cpu for cell in reservation.resources.numa or () for cpu in cell.pinned}


def _pinned_by(host: HostRecord) -> set[int]:
    """The CPUs that a host reports as pinned."""
    topology: Any = host.numa_topology or {"cells": ()}
    return {cpu for cell in topology["cells"] for cpu in cell["pinned_cpus"]}


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
