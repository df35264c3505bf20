"""Records of tuning in the shared state: policies set by RPC, leaderships, and the states of hosts.

In the scope ``@tuning`` ``t:`` and a policy's name is its text, ``u:`` and a cluster's name its
leadership. What one cycle hands to the next is in a scope for each cluster, so that no decision has
to read it: one record for each host, ``m:`` and its uuid, which lasts for a day without tuning.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple, Self, TypeVar

import msgspec

from scheduler_worker.conversion import json_reader
from scheduler_worker.ports import Put, Seen, Store, Transaction
from scheduler_worker.service.state.leadership import Leadership, LeadershipRecords
from scheduler_worker.service.state.replica import RecordKind, Replica
from scheduler_worker.tuning.averages import Windows
from scheduler_worker.tuning.samples import Entity, EvaluatorState, HeldChange

SCOPE = "@tuning"
POLICY = "t:"


class TuningLeadership(Leadership, frozen=True):
    """The right to tune a cluster, which is good for one cycle."""

    worker: str = msgspec.field(name="tuner")
    at_s: float
    cycle: int
    """Grows even if the shared state is lost in between, as it is derived from the clock."""

    @classmethod
    def after(cls, before: Self | None, worker: str, now_s: float) -> Self:
        return cls(worker, now_s, max(int(now_s * 1000), before.cycle + 1 if before else 0))


_encode = msgspec.json.Encoder().encode


class TuningRecords(LeadershipRecords[TuningLeadership]):
    """A replica of the records."""

    def __init__(self) -> None:
        self.texts = RecordKind(POLICY, json_reader(str))
        """Policies set by RPC, by name."""
        super().__init__(SCOPE, TuningLeadership, self.texts)


def put_policy(name: str, text: str | None) -> Put:
    """Return the write of a policy, or its deletion if the text is None."""
    return Put(POLICY + name, None if text is None else _encode(text))


HOST_KEY = "m:"
KEEP_S = 86_400.0
_CHUNK = 200
"""Hosts written in one call to the store, which serves no other client meanwhile."""


class SetBy(NamedTuple):
    """Why and when a value was emitted."""

    rules: tuple[str, ...]
    """The ids of the rules that voted."""
    at_s: float
    """The time of the cycle, by the store's clock."""


class EntityState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a host, a VM or a disk; stored as an array, so the order of fields counts."""

    entity: Entity
    evaluated_at_s: float | None = None
    emitted: dict[str, float] = {}
    """By output: the last value that was emitted."""
    held: dict[str, HeldChange] = {}
    """By rule."""
    windows: Windows = {}
    """Values of the last reports, for averages."""
    set_by: dict[str, SetBy] = {}
    """By output; one whose value an earlier release emitted has no entry."""


class TunedHostState(msgspec.Struct, frozen=True):
    """The state of a host and of everything on it."""

    reported_at_s: float
    """The time of the last report that is in the averages."""
    notified_at_s: float = msgspec.field(name="told_at_s")
    """When the agent was last sent its values, or none had to be sent."""
    entities: list[EntityState]


_Kept = TypeVar("_Kept")
_decode = json_reader(TunedHostState)


class StoredHostStates(Replica):
    """A replica that reads the state of a host when it is asked for: for a few hosts of many."""

    def __init__(self, cluster: str) -> None:
        self.stored = RecordKind(HOST_KEY, bytes)
        """By the uuid of the host."""
        super().__init__(_scope(cluster), self.stored)

    def get(self, uuid: str) -> TunedHostState | None:
        stored = self.stored.get(uuid)
        return None if stored is None else _decode(stored)


class HostStates(Replica):
    """A replica of the states of a cluster's hosts, of which a cycle reads all and writes all."""

    def __init__(self, cluster: str) -> None:
        self.hosts = RecordKind(HOST_KEY, _decode)
        """By the uuid of the host."""
        super().__init__(_scope(cluster), self.hosts)

    def write(self, store: Store, hosts: Mapping[str, TunedHostState | None], now_s: float) -> None:
        """Write states, or delete a state that is None; skips states that another worker changed.

        Raises StateUnavailable.
        """
        remaining = iter(hosts.items())
        while chunk := dict(islice(remaining, _CHUNK)):
            with self.lock:
                transactions = [self._transaction(*item, now_s) for item in chunk.items()]
                written = store.write(self.scope, transactions)
                for (uuid, state), is_applied in zip(chunk.items(), written.applied, strict=True):
                    if is_applied:
                        self._keep(uuid, state, written.version)
                if all(written.applied) and written.before == self.seen.version:
                    # Nothing else was written in between, so this need not be read back.
                    self.seen = Seen(self.seen.epoch, written.version)

    def _transaction(self, uuid: str, state: TunedHostState | None, now_s: float) -> Transaction:
        key = HOST_KEY + uuid
        put = Put(key, None) if state is None else Put(key, _encode(state), now_s + KEEP_S)
        return self.replacing(put)

    def _keep(self, uuid: str, state: TunedHostState | None, version: int) -> None:
        """Know what was written as it is: to decode it would take as long as to write it."""
        if state is None:
            self.hosts.pop(uuid, None)
            self.versions.pop(HOST_KEY + uuid, None)
        else:
            self.hosts[uuid] = state
            self.versions[HOST_KEY + uuid] = version


def _scope(cluster: str) -> str:
    return f"@tuning/{cluster}"


def evaluator_state(hosts: Iterable[TunedHostState]) -> EvaluatorState:
    """Return the state of the entities of all hosts, as the evaluator takes it."""
    state = EvaluatorState({}, {}, {})
    for entity in (entity for host in hosts for entity in host.entities):
        if entity.evaluated_at_s is not None:
            state.evaluated_at_s[entity.entity] = entity.evaluated_at_s
        for output, value in entity.emitted.items():
            state.emitted.setdefault(output, {})[entity.entity] = value
        for rule, held in entity.held.items():
            state.held.setdefault(rule, {})[entity.entity] = held
    return state


def entity_states(
    state: EvaluatorState,
    windows: Mapping[Entity, Windows],
    set_by: Mapping[Entity, dict[str, SetBy]],
) -> list[EntityState]:
    """Return the states to keep of the entities that have windows; all others are dropped."""
    return [
        EntityState(
            entity,
            state.evaluated_at_s.get(entity),
            emitted := _of(entity, state.emitted),
            _of(entity, state.held),
            kept,
            _restricted(set_by.get(entity, {}), emitted),
        )
        for entity, kept in windows.items()
    ]


def _of(entity: Entity, by_name: Mapping[str, Mapping[Entity, _Kept]]) -> dict[str, _Kept]:
    return {name: of[entity] for name, of in by_name.items() if entity in of}


def _restricted(set_by: dict[str, SetBy], emitted: Mapping[str, float]) -> dict[str, SetBy]:
    """Leave out outputs that no policy sets any more."""
    if set_by.keys() <= emitted.keys():
        return set_by
    return {output: emission for output, emission in set_by.items() if output in emitted}
