"""Removal of hosts, with their instances, reservations and remembered answers."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_worker.errors import Conflict
from scheduler_worker.ports import Guard, Transaction
from scheduler_worker.service.inventory.known_hosts import KnownHosts, uuids_of
from scheduler_worker.service.state import records, reservations
from scheduler_worker.service.state.moves import Moves
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.state.writing import WritePlan, Writer

_ROUNDS = 8
"""Attempts to remove hosts that others move meanwhile."""


class HostRemoval:
    """Removes hosts from whichever clusters have them."""

    def __init__(self, fleet: Fleet, writer: Writer, moves: Moves) -> None:
        self._fleet = fleet
        self._known_hosts = KnownHosts(fleet)
        self._writer = writer
        self._moves = moves

    def remove(self, hosts: Sequence[tuple[str, str | None]]) -> dict[str, int]:
        """Remove (host, nodename) pairs; unknown ones are ignored.

        Returns each touched cluster's version afterwards. Raises Conflict if other workers
        keep moving the hosts, and StateUnavailable.
        """
        versions: dict[str, int] = {}
        for _ in range(_ROUNDS):
            self._known_hosts.refresh()
            self._moves.finish(hosts={host for host, _ in hosts})
            found = {replica: uuids_of(replica, hosts) for replica in self._fleet.clusters()}
            if not any(found.values()):
                return versions
            for replica, uuids in found.items():
                if uuids:
                    versions[replica.scope] = self._remove_from(replica, uuids)
        raise Conflict("Other workers kept moving the hosts between clusters; try again.")

    def _remove_from(self, replica: ClusterReplica, uuids: Sequence[str]) -> int:
        def plan(uuid: str, _: float) -> WritePlan | None:
            row = replica.table.row_of(uuid)
            reserved = reservations.on_host(replica, uuid)
            puts = reservations.given_back(reserved)
            guards = reservations.guards(replica, reserved)
            # Once the host is back, such an answer would be given again with nothing reserved.
            answers = [
                records.ANSWER + each.instance_uuid
                for each in replica.answers.values()
                if each.host_uuid == uuid
            ]
            puts += map(records.gone, answers)
            guards += [Guard(key, replica.version(key)) for key in answers]
            if row is not None:
                host = replica.table.records[row].host
                puts.append(records.gone(records.HOST + uuid))
                guards.append(Guard(records.HOST + uuid, replica.version(records.HOST + uuid)))
                if len(replica.table.find(host)) == 1:
                    puts.append(records.gone(records.INSTANCES + host))
            return (
                WritePlan(Transaction(puts, guards), {"removed": len(reserved)}) if puts else None
            )

        self._writer.write(replica, uuids, plan)
        # Once more, for what was reserved on them while the first write was planned.
        return self._writer.write(replica, uuids, plan)
