"""What is remembered of each host from one tuning cycle to the next, in the shared state.

A cluster's memories have a scope of their own, so that no decision has to read them: one record
for each host, ``m:`` and its uuid. Whoever has the cluster's turn reads what others wrote and goes
on from there; that of hosts that nobody tuned for a day is forgotten by the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TypeVar

import msgspec

from scheduler_worker.ports import Guard, Put, Seen, Store, Transaction
from scheduler_worker.service.replica import Replica
from scheduler_worker.service.tuner_statistics import Rows
from scheduler_worker.tuning.samples import Entity, Held, Memory

MEMORY = "m:"
KEEP_S = 86_400.0
_CHUNK = 200
"""Hosts written by one call to the store, which serves nobody else meanwhile."""


class EntityMemory(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of a host, a VM or a disk."""

    entity: Entity
    evaluated_at_s: float | None = None
    emitted: dict[str, float] = {}
    """The last value of each output."""
    held: dict[str, Held] = {}
    """By rule: a change that is too small yet."""
    rows: Rows = {}
    """The figures of the last reports that averages are over."""


class HostMemory(msgspec.Struct, frozen=True):
    """What is remembered of a host and everything on it."""

    reported_at_s: float
    """When the last report came that is in the averages."""
    told_at_s: float
    """When the agent was last told, or there was nothing to tell it."""
    entities: list[EntityMemory]


_Kept = TypeVar("_Kept")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HostMemory).decode


class Memories(Replica):
    """A cluster's memories, as this process knows them."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"@tuning/{cluster}")
        self.hosts: dict[str, HostMemory] = {}
        """By the uuid of the host."""

    def take(self, key: str, version: int, value: bytes | None) -> None:
        uuid = key.removeprefix(MEMORY)
        if value is None:
            self.hosts.pop(uuid, None)
        else:
            self.hosts[uuid] = _decode(value)

    def write(self, store: Store, hosts: Mapping[str, HostMemory | None], now_s: float) -> None:
        """Remember, or forget where there is None; what somebody else wrote meanwhile stays.

        Raises StateUnavailable.
        """
        left = iter(hosts.items())
        while chunk := dict(islice(left, _CHUNK)):
            with self.lock:
                transactions = [self._transaction(*each, now_s) for each in chunk.items()]
                written = store.write(self.scope, transactions)
                for (uuid, memory), applied in zip(chunk.items(), written.applied, strict=True):
                    if applied:
                        self._keep(uuid, memory, written.version)
                if all(written.applied) and written.before == self.seen.version:
                    # Nobody wrote in between: there is no need to read it back.
                    self.seen = Seen(self.seen.epoch, written.version)

    def _transaction(self, uuid: str, memory: HostMemory | None, now_s: float) -> Transaction:
        key = MEMORY + uuid
        put = Put(key, None) if memory is None else Put(key, _encode(memory), now_s + KEEP_S)
        return Transaction([put], [Guard(key, self.version(key))])

    def _keep(self, uuid: str, memory: HostMemory | None, version: int) -> None:
        if memory is None:
            self.hosts.pop(uuid, None)
            self.versions.pop(MEMORY + uuid, None)
        else:
            self.hosts[uuid] = memory
            self.versions[MEMORY + uuid] = version


def recalled(hosts: Iterable[HostMemory]) -> Memory:
    """What the evaluator is to remember of all hosts."""
    memory = Memory({}, {}, {})
    for each in (entity for host in hosts for entity in host.entities):
        if each.evaluated_at_s is not None:
            memory.evaluated_at_s[each.entity] = each.evaluated_at_s
        for output, value in each.emitted.items():
            memory.emitted.setdefault(output, {})[each.entity] = value
        for rule, held in each.held.items():
            memory.held.setdefault(rule, {})[each.entity] = held
    return memory


def remembered(memory: Memory, rows: Mapping[Entity, Rows]) -> list[EntityMemory]:
    """What there is to remember of some entities; of all others nothing is."""
    return [
        EntityMemory(
            entity,
            memory.evaluated_at_s.get(entity),
            _of(entity, memory.emitted),
            _of(entity, memory.held),
            kept,
        )
        for entity, kept in rows.items()
    ]


def rows_of(hosts: Iterable[HostMemory]) -> dict[Entity, Rows]:
    """The figures of the last reports of everybody."""
    return {each.entity: each.rows for host in hosts for each in host.entities}


def _of(entity: Entity, by_name: Mapping[str, Mapping[Entity, _Kept]]) -> dict[str, _Kept]:
    return {name: of[entity] for name, of in by_name.items() if entity in of}
