"""How values are encoded in the records of the shared state.

A key begins with one letter and a colon, the kind of the record:

=================  ========  ================================================================
scope              key       value
=================  ========  ================================================================
a cluster          ``h:``    a host, by its uuid
a cluster          ``i:``    the instances of a host, by the host's name
a cluster          ``p:``    a reservation, by its id
a cluster          ``r:``    the remembered answer for an instance: its absorbed reservation
a cluster          ``o:``    the announcements read of a host's instances, by the host's name
a cluster          ``e:``    an instance whose reservations were released a short while ago
a cluster          ``y:``    the policy in force, with the key ``y:policy``
a cluster          ``d:``    a host that leaves for another cluster, by its uuid
a cluster          ``f:``    a move that brought a host here, by the move's id
a cluster          ``n:``    that a node came here a short while ago, by the names of host and node
a cluster          ``b:``    its balancing: ``b:ledger`` the migrations, ``b:power`` the power
                             actions, ``b:switch`` the mode
``@global``        ``a:``    an aggregate, by its id
``@global``        ``c:``    a cluster's name
``@global``        ``u:``    that a unit is enabled, by the unit's id
``@whereabouts``   ``w:``    the cluster where an instance is being decided
``@moves``         ``m:``    a move, by its host's uuid
``@verdicts``      ``v:``    whether a request by cast got hosts, by the request's digest
=================  ========  ================================================================

The value of ``w:`` is the name itself; all others are JSON. Readers ignore fields and kinds of
records that a newer release added.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from scheduler_worker.conversion import json_reader
from scheduler_worker.model import policies
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.cluster_load import BalancingSwitch
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.ledgers import MigrationLedger, PowerLedger
from scheduler_worker.model.moves import Departure, Move
from scheduler_worker.model.policies import ClusterPolicy, write_policy
from scheduler_worker.ports import Put

HOST, INSTANCES, RESERVATION, ANSWER = "h:", "i:", "p:", "r:"
POLICY = "y:"
POLICY_IN_FORCE = POLICY + "policy"
"""The key of the policy in force."""
DEPARTURE, FINISHED, NODE = "d:", "f:", "n:"
BALANCING = "b:"
LEDGER, POWER, SWITCH = BALANCING + "ledger", BALANCING + "power", BALANCING + "switch"
"""The keys of the migrations and power actions that the balance asked for, and of the mode that was
set."""
AGGREGATE, CLUSTER, UNIT = "a:", "c:", "u:"
RELEASED = "e:"
READ = "o:"
HOME = "w:"
MOVE = "m:"
VERDICT = "v:"

Instances = dict[str, dict[str, Any]]
"""Instance uuid -> its facts."""

_encode = msgspec.json.Encoder().encode


def put_host(record: HostRecord) -> Put:
    """A host."""
    return Put(HOST + record.uuid, _encode(record))


def put_instances(host: str, instances: Mapping[str, Mapping[str, Any]]) -> Put:
    """The instances of a host name."""
    return Put(INSTANCES + host, _encode(instances))


def put_read(host: str, announcements: Mapping[str, float], until_s: float) -> Put:
    """Which announcements were read of the instances of a host name: message id -> when."""
    return Put(READ + host, _encode(announcements), until_s)


def put_reservation(reservation: Reservation) -> Put:
    """A reservation, which the store deletes when it expires."""
    return Put(RESERVATION + reservation.id, _encode(reservation), reservation.expires_at_s)


def put_answer(reservation: Reservation, until_s: float) -> Put:
    """An absorbed reservation, remembered for a repeated request."""
    return Put(ANSWER + reservation.instance_uuid, _encode(reservation), until_s)


def put_policy(policy: ClusterPolicy) -> Put:
    """The cluster's policy in force."""
    return Put(POLICY_IN_FORCE, write_policy(policy))


def put_ledger(ledger: MigrationLedger | PowerLedger) -> Put:
    """The migrations, or the power actions, that the cluster's balance has asked for."""
    return Put(LEDGER if isinstance(ledger, MigrationLedger) else POWER, _encode(ledger))


def put_switch(switch: BalancingSwitch | None) -> Put:
    """The mode that was set for the cluster's balance; None: none is set any more."""
    return gone(SWITCH) if switch is None else Put(SWITCH, _encode(switch))


def put_aggregate(aggregate: Aggregate) -> Put:
    """An aggregate."""
    return Put(f"{AGGREGATE}{aggregate.id}", _encode(aggregate))


def put_key(key: str, until_s: float | None = None) -> Put:
    """A record that says everything by its key, such as a cluster's name."""
    return Put(key, b"{}", until_s)


def put_home(instance_uuid: str, cluster: str, until_s: float) -> Put:
    """The cluster where an instance is being decided."""
    return Put(HOME + instance_uuid, cluster.encode(), until_s)


def put_move(move: Move, until_s: float) -> Put:
    """A host that changes its cluster."""
    return Put(MOVE + move.host_uuid, _encode(move), until_s)


def put_departure(departure: Departure) -> Put:
    """A host that has left its cluster and not arrived in the next."""
    return Put(DEPARTURE + departure.move.host_uuid, _encode(departure))


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Whether a request got hosts."""

    refusal: str | None = None
    """The reason why it got none."""


def put_verdict(digest: str, verdict: Verdict, until_s: float) -> Put:
    """The verdict on a request by cast."""
    return Put(VERDICT + digest, _encode(verdict), until_s)


def of_name(host: str) -> Sequence[str]:
    """The keys of what belongs to the name of a host, not to one of its nodes."""
    return INSTANCES + host, READ + host


def gone(key: str) -> Put:
    """Delete the record under a key."""
    return Put(key, None)


_COMMON = (
    *("cluster", "cell_uuid", "hypervisor_type", "hypervisor_version", "cpu_info"),
    *("supported_hv_specs", "traits", "networks", "memory_mb", "local_gb"),
    *("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio", "power"),
)
"""The fields that are the same for many hosts; one object serves all of these."""
_OFTEN_EMPTY = ("sources", "stats", "service", "load", "vms")
"""The dicts of which one empty one serves all hosts: nobody writes into a record."""
_EMPTY: dict[str, Any] = {}
# Bounded: facts of hosts that are gone are forgotten.
_common = lru_cache(maxsize=16_384, typed=True)(lambda value: value)
_common_stats = lru_cache(maxsize=16_384, typed=True)(lambda *items: dict(items))
_read_host = json_reader(HostRecord)


def read_host(value: bytes | str) -> HostRecord:
    """A host. Equal facts are one object: half the memory, and less with many traits."""
    record = _read_host(value)
    for name in _COMMON:
        fact = getattr(record, name)
        # Agents mostly send the CPU's description as text; an object cannot be looked up.
        if fact and not isinstance(fact, dict):
            # Nobody else has this record yet; from now on it is frozen.
            msgspec.structs.force_setattr(record, name, _common(fact))
    for name in _OFTEN_EMPTY:
        if getattr(record, name) == _EMPTY:
            msgspec.structs.force_setattr(record, name, _EMPTY)
    if record.stats:
        stats = _common_stats(*record.stats.items())
        msgspec.structs.force_setattr(record, "stats", stats)
    if record.nodename == record.host:
        msgspec.structs.force_setattr(record, "nodename", record.host)
    return record


read_instances = json_reader(Instances)
read_reservation = json_reader(Reservation)
read_announcements = json_reader(dict[str, float])
read_aggregate = json_reader(Aggregate)
read_move = json_reader(Move)
read_departure = json_reader(Departure)
read_ledger = json_reader(MigrationLedger)
read_power = json_reader(PowerLedger)
read_switch = json_reader(BalancingSwitch)
read_verdict = json_reader(Verdict)
read_policy = policies.read_policy
