"""Instances on hosts, as Nova's compute services announce them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scheduler_worker.errors import Conflict
from scheduler_worker.ports import Guard, Transaction
from scheduler_worker.scheduling.absorption import Facts, remembering
from scheduler_worker.service.inventory.known_hosts import KnownHosts
from scheduler_worker.service.state import records, reservations
from scheduler_worker.service.state.moves import Moves
from scheduler_worker.service.state.records import Instances
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.state.writing import WritePlan, Writer

_ROUNDS = 8
"""Attempts to store the instances of a host that others move meanwhile."""


class InstanceAnnouncements:
    """Stores which instances are on a host name.

    ``once`` is the id of a message that every worker gets: the first one stores it. All methods
    raise Conflict if other workers keep moving the host, and StateUnavailable.
    """

    def __init__(self, fleet: Fleet, writer: Writer, moves: Moves) -> None:
        self._fleet = fleet
        self._known_hosts = KnownHosts(fleet)
        self._writer = writer
        self._moves = moves

    def update(self, host: str, instances: Instances, *, once: str | None = None) -> None:
        """Add instances to those on a host, or replace their facts."""
        self._change(
            host, lambda known: {**known, **remembering(instances, known)}, instances, once
        )

    def delete(self, host: str, uuid: str, *, once: str | None = None) -> None:
        """Remove an instance from a host, and its reservation there."""

        def without(known: Facts) -> Facts:
            return {key: facts for key, facts in known.items() if key != uuid}

        self._change(host, without, (), once, deleted=uuid)

    def sync(self, host: str, uuids: Sequence[str], *, once: str | None = None) -> None:
        """Make these the only instances on a host."""

        def exactly(known: Facts) -> Facts:
            return {uuid: known.get(uuid, {"uuid": uuid}) for uuid in uuids}

        self._change(host, exactly, uuids, once)

    def _change(
        self,
        host: str,
        change: Callable[[Facts], Facts],
        announced: Iterable[str],
        once: str | None,
        *,
        deleted: str | None = None,
    ) -> None:
        announced = tuple(announced)
        has_moved = False

        def plan(_: str, now_s: float) -> WritePlan | None:
            nonlocal has_moved
            has_moved = is_known and not replica.table.find(host)
            if has_moved:
                return None
            known = replica.table.reported_instances(host)
            changed = change(known)
            nodes = [record.uuid for record in replica.table.find(host)]
            reserved = [each for uuid in nodes for each in reservations.on_host(replica, uuid)]
            gone = [each for each in reserved if each.instance_uuid == deleted]
            puts = [records.put_instances(host, changed)] if changed != known else []
            puts += reservations.given_back(gone)
            puts += reservations.forgotten(replica, deleted, host=host) if deleted else []
            puts += reservations.announced(reserved, announced, now_s)
            keys = [records.INSTANCES + host, *(records.HOST + uuid for uuid in nodes)]
            guards = [Guard(key, replica.version(key)) for key in keys]  # it may leave meanwhile
            guards += reservations.guards(replica, reserved)
            return WritePlan(Transaction(puts, guards), {"released": len(gone)}) if puts else None

        for _ in range(_ROUNDS):
            replica = self._cluster_of(host)
            is_known = bool(replica.table.find(host))
            self._writer.write(replica, [host], plan, once=once)
            if not has_moved:
                return
        raise Conflict(f"Other workers kept moving host {host!r} between clusters; try again.")

    def _cluster_of(self, host: str) -> ClusterReplica:
        """The cluster of a host name; an unknown host's instances wait in the default one."""
        self._fleet.refresh_globals()
        moves_seen = None
        while moves_seen != (moves_seen := self._known_hosts.moves_seen()):
            self._moves.finish(hosts=[host])
            known = self._fleet.known(self._fleet.places.of([host]))
            for replica in (*known, *self._fleet.clusters()):
                with replica.lock:
                    if not replica.table.find(host):
                        replica.refresh(self._fleet.store)
                    if replica.table.find(host):
                        return replica
        self._known_hosts.register(self._fleet.default_cluster)
        return self._fleet.cluster(self._fleet.default_cluster)
