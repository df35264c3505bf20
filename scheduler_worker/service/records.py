"""How the words are packed into the records of the shared state.

One letter and a colon begin each key. In a cluster's scope: ``h:`` a host by its uuid, ``i:`` the
instances of a host name, ``p:`` a promise, ``r:`` the remembered answer for an instance, which is
the promise as it was. In the global scope: ``a:`` an aggregate, ``c:`` a cluster's name. In the
scope of whereabouts: ``w:`` the name of the cluster where an instance is being decided. All other
values are JSON; readers ignore fields and kinds of records that a newer release added.
"""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.ports import Put

HOST, INSTANCES, PROMISE, ANSWER = "h:", "i:", "p:", "r:"
AGGREGATE, CLUSTER = "a:", "c:"
HOME = "w:"

Instances = dict[str, dict[str, Any]]
"""Instance uuid -> its facts."""

_encode = msgspec.json.Encoder().encode
_host = msgspec.json.Decoder(HostRecord)
_instances = msgspec.json.Decoder(Instances)
_reservation = msgspec.json.Decoder(Reservation)
_aggregate = msgspec.json.Decoder(Aggregate)


def put_host(record: HostRecord) -> Put:
    """A host."""
    return Put(HOST + record.uuid, _encode(record))


def put_instances(host: str, instances: Instances) -> Put:
    """The instances of a host name."""
    return Put(INSTANCES + host, _encode(instances))


def put_promise(reservation: Reservation) -> Put:
    """A promise, which the store ends when it expires."""
    return Put(PROMISE + reservation.id, _encode(reservation), reservation.expires_at_s)


def put_answer(reservation: Reservation, until_s: float) -> Put:
    """A promise that has become use, remembered for the request that may come again."""
    return Put(ANSWER + reservation.instance_uuid, _encode(reservation), until_s)


def put_aggregate(aggregate: Aggregate) -> Put:
    """An aggregate."""
    return Put(f"{AGGREGATE}{aggregate.id}", _encode(aggregate))


def put_cluster(name: str) -> Put:
    """A cluster's name."""
    return Put(CLUSTER + name, b"{}")


def put_home(instance_uuid: str, cluster: str, until_s: float) -> Put:
    """The cluster where an instance is being decided."""
    return Put(HOME + instance_uuid, cluster.encode(), until_s)


def gone(key: str) -> Put:
    """Delete the record under a key."""
    return Put(key, None)


read_host = _host.decode
read_instances = _instances.decode
read_promise = _reservation.decode
read_aggregate = _aggregate.decode
