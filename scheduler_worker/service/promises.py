"""How promises end: what is written when they become use, are confirmed or given back.

Each function gives puts, or a whole :class:`Plan`; nothing here writes. The replica's lock is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.ports import Guard, Put, Transaction
from scheduler_worker.service import records
from scheduler_worker.service.replica import ClusterReplica
from scheduler_worker.service.writing import Plan


def on_host(replica: ClusterReplica, host_uuid: str) -> list[Reservation]:
    """The stored promises on a host."""
    found = replica.table.promises_of_host(host_uuid)
    return [replica.promises[each.id] for each in found if each.id in replica.promises]


def guards(replica: ClusterReplica, promises: Iterable[Reservation]) -> list[Guard]:
    """The promises must still be as they were."""
    keys = [records.PROMISE + each.id for each in promises]
    return [Guard(key, replica.version(key)) for key in keys]


def announced(promises: Iterable[Reservation], seen: Iterable[str], now_s: float) -> list[Put]:
    """Mark the promises whose instances were seen on their host for the first time."""
    present = set(seen)
    return [
        records.put_promise(msgspec.structs.replace(each, announced_at_s=now_s))
        for each in promises
        if each.announced_at_s is None and each.instance_uuid in present
    ]


def absorbed(promises: Iterable[Reservation], now_s: float, remember_s: float) -> list[Put]:
    """They have become use that the host reports.

    Until ``remember_s`` after it was made, a promise is remembered as an answer: its request may
    come again.
    """
    puts: list[Put] = []
    for each in promises:
        puts.append(records.gone(records.PROMISE + each.id))
        until_s = each.created_at_s + remember_s
        if each.request_id and until_s > now_s:
            puts.append(records.put_answer(each, until_s))
    return puts


def confirmed(
    replica: ClusterReplica, instance_uuid: str, now_s: float, *, ttl_s: float
) -> Plan | None:
    """The instance exists; its promises last until the host reports its use, at most ``ttl_s``."""
    promises = replica.promises_of(instance_uuid)
    puts = [
        records.put_promise(
            msgspec.structs.replace(
                each,
                state="confirmed",
                announced_at_s=each.announced_at_s or now_s,
                expires_at_s=now_s + ttl_s,
            )
        )
        for each in promises
    ]
    return _plan(replica, promises, puts, "confirmed")


def released(replica: ClusterReplica, instance_uuid: str, now_s: float) -> Plan | None:
    """The instance will not come; neither its promises nor an answer are kept."""
    promises = replica.promises_of(instance_uuid)
    puts = [*given_back(promises), *forgotten(replica, instance_uuid)]
    return _plan(replica, promises, puts, "released")


def given_back(promises: Iterable[Reservation]) -> list[Put]:
    """They end, and leave nothing."""
    return [records.gone(records.PROMISE + each.id) for each in promises]


def forgotten(replica: ClusterReplica, instance_uuid: str, *, host: str | None = None) -> list[Put]:
    """The remembered answer for an instance ends, if there is one (and if it was that host)."""
    answer = replica.answers.get(instance_uuid)
    if answer is None or host not in {None, answer.host}:
        return []
    return [records.gone(records.ANSWER + instance_uuid)]


def renamed(before: HostRecord, after: HostRecord, promises: Iterable[Reservation]) -> list[Put]:
    """A node that was made again, with another uuid: the old one goes, its promises stay."""
    puts = [records.gone(records.HOST + before.uuid)]
    for each in promises:
        puts.append(records.gone(records.PROMISE + each.id))
        puts.append(records.put_promise(msgspec.structs.replace(each, host_uuid=after.uuid)))
    return puts


def _plan(
    replica: ClusterReplica, promises: Sequence[Reservation], puts: Sequence[Put], how: str
) -> Plan | None:
    if not puts:
        return None
    return Plan(Transaction(puts, guards(replica, promises)), {how: len(promises)})
