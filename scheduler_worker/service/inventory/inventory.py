"""The inventory: hosts, instances and aggregates as they are reported, and ends of reservations.

``once`` is the id of a message that every worker gets: the first one stores it. If other workers
keep moving the same hosts between clusters, Conflict is raised after several attempts.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial

from scheduler_worker.errors import Conflict
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.claims import Reservation
from scheduler_worker.ports import Put, Transaction
from scheduler_worker.scheduling.absorption import Facts, remembering
from scheduler_worker.service.inventory.reports import ROUNDS, HostReports
from scheduler_worker.service.state import records, reservations
from scheduler_worker.service.state.moves import REMEMBERED_S
from scheduler_worker.service.state.records import Instances
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.service.state.writing import WritePlan

MAX_READ = 256
"""Announcements remembered of a host: a bound on the record."""
_Ending = Callable[[ClusterReplica, str, float], WritePlan | None]


class Inventory(HostReports):
    """The use cases of the inventory; each raises StateUnavailable."""

    # Hosts

    def remove_hosts(self, hosts: Sequence[tuple[str, str | None]]) -> dict[str, int]:
        """Remove (host, nodename) pairs, with all that is on them; unknown ones are ignored.

        Without a nodename all nodes of the host. Returns each touched cluster's version afterwards.
        """
        versions: dict[str, int] = {}
        for _ in range(ROUNDS):
            self._fleet.refresh_globals()
            self._fleet.refresh()
            self._moves.finish(hosts={host for host, _ in hosts})
            known = {cluster: _uuids_of(cluster, hosts) for cluster in self._fleet.clusters()}
            if not any(known.values()):
                return versions
            for replica, uuids in known.items():
                if uuids:
                    plan = partial(_plan_removal, replica)
                    self._writer.write(replica, uuids, plan)
                    # Again, for what was reserved on them while the first write was planned.
                    versions[replica.scope] = self._writer.write(replica, uuids, plan)
        raise Conflict("Other workers kept moving the hosts between clusters; try again.")

    # Instances

    def update_instances(self, host: str, instances: Instances, *, once: str | None = None) -> None:
        """Add instances to those on a host, or replace their facts."""
        self._announce(host, lambda known: {**known, **instances}, instances, once)

    def delete_instance(self, host: str, uuid: str, *, once: str | None = None) -> None:
        """Remove an instance from a host, and its reservation there."""

        def without(known: Facts) -> Facts:
            return {key: facts for key, facts in known.items() if key != uuid}

        self._announce(host, without, {}, once, deleted=uuid)

    def sync_instances(self, host: str, uuids: Sequence[str], *, once: str | None = None) -> None:
        """Make these the only instances on a host."""

        def exactly(known: Facts) -> Facts:
            return {uuid: known.get(uuid, {"uuid": uuid}) for uuid in uuids}

        self._announce(host, exactly, {uuid: {"uuid": uuid} for uuid in uuids}, once)

    def _announce(
        self,
        host: str,
        change: Callable[[Facts], Facts],
        announced: Facts,
        once: str | None,
        *,
        deleted: str | None = None,
    ) -> None:
        has_moved = False

        def plan(_: str, now_s: float) -> WritePlan | None:
            nonlocal has_moved
            has_moved = is_known and not replica.table.find(host)
            if has_moved:  # since it was found: the write belongs to another cluster
                return None
            read = replica.announcements.get(host, {})
            if once in read:
                return None
            known = replica.table.reported_instances(host)
            nodes = [record.uuid for record in replica.table.find(host)]
            reserved = [held for uuid in nodes for held in reservations.on_host(replica, uuid)]
            changed = remembering(change(known), known, now_s, reserved)
            gone = [reservation for reservation in reserved if reservation.instance_uuid == deleted]
            puts = [records.put_instances(host, changed)] if changed != known else []
            puts += reservations.given_back(gone)
            puts += reservations.forgotten(replica, deleted, host=host) if deleted else []
            puts += reservations.announced(reserved, announced, known, now_s)
            if once:
                puts.append(_read_too(host, read, once, now_s))
            keys = [*records.of_name(host), *(records.HOST + uuid for uuid in nodes)]
            guards = replica.guards(keys)  # it may leave meanwhile
            guards += reservations.guards(replica, reserved)
            return WritePlan(Transaction(puts, guards), {"released": len(gone)}) if puts else None

        for _ in range(ROUNDS):
            replica = self._cluster_of(host)
            is_known = bool(replica.table.find(host))
            self._writer.write(replica, [host], plan)
            if not has_moved:
                listed = self._listed(replica.scope, host)
                news = {uuid: listed[uuid] for uuid in announced if uuid in listed}
                self.sightings.follow({host: news})
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

    # Reservations

    def confirm(self, instance_uuids: Sequence[str]) -> int:
        """The instances exist: their reservations last for another TTL, or until reported.

        Returns how many instances had reservations.
        """
        confirmed = partial(reservations.confirmed, ttl_s=self._reservation_ttl_s)
        return self._end(instance_uuids, confirmed)

    def release(self, instance_uuids: Sequence[str]) -> int:
        """The instances will not come: give their reservations back.

        Returns how many instances had reservations, or had them released a short while ago, so
        that a repeated release answers the same.
        """
        released = partial(reservations.released, remember_s=self._remember_answers_s)
        return self._end(instance_uuids, released, ended=lambda replica: replica.released)

    def release_one(self, cluster: str, reservation: Reservation) -> None:
        """Give back one reservation that was read before.

        Raises Conflict: it has ended, changed or moved since; nothing was released.
        """
        replica = self._fleet.cluster(cluster)
        is_there = False

        def plan(uuid: str, now_s: float) -> WritePlan | None:
            nonlocal is_there
            released = reservations.released(
                replica, uuid, now_s, remember_s=self._remember_answers_s, only=reservation
            )
            is_there = released is not None
            return released

        self._writer.write(replica, [reservation.instance_uuid], plan)
        if not is_there:
            raise Conflict(
                f"Reservation {reservation.id} has ended or changed in the meantime; read it again."
            )

    def _end(
        self,
        instance_uuids: Sequence[str],
        end: _Ending,
        *,
        ended: Callable[[ClusterReplica], Container[str]] = lambda _: (),
    ) -> int:
        """End reservations; returns how many instances had some, or are among those ``ended``."""
        self._fleet.refresh_globals()
        having: set[str] = set()
        before: set[str] = set()
        for _ in range(ROUNDS):
            remaining = [uuid for uuid in instance_uuids if uuid not in having]
            moves_seen = self._known_hosts.moves_seen()
            self._moves.finish(instances=remaining)
            for replica in self._fleet.clusters():
                having |= self._end_in(replica, remaining, end)
                before |= {uuid for uuid in remaining if uuid in ended(replica)}
            # One may have moved from a cluster not yet read to one that was. That an instance's
            # earlier reservation has ended does not say that there is no later one.
            if having.issuperset(remaining) or moves_seen == self._known_hosts.moves_seen():
                break
        return len(having | before)

    def _end_in(
        self, replica: ClusterReplica, instance_uuids: Sequence[str], end: _Ending
    ) -> set[str]:
        """End the reservations in one cluster; returns the instances that had some."""
        having: set[str] = set()

        def plan(uuid: str, now_s: float) -> WritePlan | None:
            # A plan may be made several times; the last one is what was written, if anything.
            (having.add if replica.reservations_of(uuid) else having.discard)(uuid)
            return end(replica, uuid, now_s)

        self._writer.write(replica, instance_uuids, plan)
        return having

    # Aggregates

    def update_aggregates(self, aggregates: Sequence[Aggregate], once: str | None = None) -> None:
        """Add or replace aggregates by id.

        With ``once``, a message's id, only the first worker that handles the message does so. So
        what replaced them since stays, however late another worker is.
        """
        puts = [records.put_aggregate(aggregate) for aggregate in aggregates]
        if puts:
            self._write_shared(puts, once)

    def delete_aggregate(self, aggregate_id: int, *, once: str | None = None) -> None:
        """Delete an aggregate; an unknown one is ignored."""
        gone = records.gone(f"{records.AGGREGATE}{aggregate_id}")
        self._write_shared([gone], once)

    def _write_shared(self, puts: Sequence[Put], once: str | None) -> None:
        """Write records that belong to no cluster."""
        self._fleet.store.write(self._fleet.globals.scope, [Transaction(puts)], once=once)
        self._fleet.refresh_globals()


def _read_too(host: str, read: Mapping[str, float], once: str, now_s: float) -> Put:
    """Note one more announcement as read, and forget old ones."""
    kept = {key: at_s for key, at_s in read.items() if at_s > now_s - REMEMBERED_S}
    latest = [*kept.items()][1 - MAX_READ :]
    return records.put_read(host, {**dict(latest), once: now_s}, now_s + REMEMBERED_S)


def _uuids_of(replica: ClusterReplica, hosts: Iterable[tuple[str, str | None]]) -> list[str]:
    with replica.lock:
        return [record.uuid for host, node in hosts for record in replica.table.find(host, node)]


def _plan_removal(replica: ClusterReplica, uuid: str, _: float) -> WritePlan | None:
    row = replica.table.row_of(uuid)
    reserved = reservations.on_host(replica, uuid)
    puts = reservations.given_back(reserved)
    guards = reservations.guards(replica, reserved)
    # Once the host is back, such an answer would be given again with nothing reserved.
    keys = [
        records.ANSWER + answer.instance_uuid
        for answer in replica.answers.values()
        if answer.host_uuid == uuid
    ]
    if row is not None:
        keys.append(records.HOST + uuid)
    puts += map(records.gone, keys)
    guards += replica.guards(keys)
    if row is not None and len(replica.table.find(replica.table.records[row].host)) == 1:
        puts.append(records.gone(records.INSTANCES + replica.table.records[row].host))
    return WritePlan(Transaction(puts, guards), {"removed": len(reserved)}) if puts else None
