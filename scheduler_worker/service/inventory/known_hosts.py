"""Finds hosts in the clusters that this process knows, and registers new clusters."""

from collections.abc import Sequence
from typing import NamedTuple

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.ports import Transaction
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import ClusterReplica, Fleet

_READ_ALL_S = 10.0
"""After so long all clusters are read, for a host may be in two when a server lost writes."""


class KnownHost(NamedTuple):
    """A host's record, and the cluster that has it or that it moves to."""

    scope: str
    record: HostRecord


class KnownHosts:
    """The hosts of a fleet; every method reads replicas under their own locks."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._read_all_s = float("-inf")

    def refresh(self) -> set[str]:
        """Read what changed in all clusters; returns their names. Raises StateUnavailable."""
        self._read_all_s = self._fleet.refresh_globals()
        return self._fleet.refresh()

    def look(self, reports: Sequence[HostReport]) -> tuple[set[str], list[KnownHost | None]]:
        """Read the clusters that reports are about: where their hosts are, and which they name.

        All clusters are read if one of the hosts is nowhere. Returns the names of clusters that
        were read, and the host of each report. Raises StateUnavailable.
        """
        now_s, places = self._fleet.refresh_globals(), self._fleet.places
        if abs(now_s - self._read_all_s) < _READ_ALL_S:
            named = {report.cluster for report in reports if isinstance(report.cluster, str)}
            known = places.of(name for report in reports for name in (report.host, *_uuid(report)))
            read = self._fleet.refresh(self._fleet.known(named | known))
            hosts = list(map(self.find, reports))
            if None not in hosts:
                return read, hosts
        read = self.refresh()
        return read, list(map(self.find, reports))

    def find(self, report: HostReport) -> KnownHost | None:
        """The host of a report, in whichever cluster; by its uuid before its name."""
        places = self._fleet.places
        for scopes, record_of in (
            (places.of(_uuid(report)), record_of_uuid),
            (places.of([report.host]), record_of_name),
        ):
            for replica in self._fleet.known(scopes):
                with replica.lock:
                    record = record_of(replica, report)
                    if record is not None:
                        return KnownHost(replica.scope, record)
                    for departure in replica.departures.values():
                        if departure.host is not None and _is_about(report, departure.host):
                            return KnownHost(departure.move.to, departure.host)
        return None

    def is_elsewhere(self, replica: ClusterReplica, report: HostReport) -> bool:
        """Whether another cluster has a host of the report's uuid."""
        for other in self._fleet.known(self._fleet.places.of(_uuid(report)) - {replica.scope}):
            with other.lock:
                if record_of_uuid(other, report):
                    return True
        return False

    def register(self, scope: str) -> None:
        """Store a cluster's name unless it is known. Raises StateUnavailable."""
        known = self._fleet.globals
        if scope not in known.clusters:
            put = records.put_key(records.CLUSTER + scope)
            self._fleet.store.write(known.scope, [Transaction([put])])
            self._fleet.refresh_globals()

    def moves_seen(self) -> list[int]:
        """A number for each cluster that grows with every move to or from it."""
        return [replica.moves_seen for replica in self._fleet.clusters()]


def record_of(replica: ClusterReplica, report: HostReport) -> HostRecord | None:
    """The record a report is about: of the same uuid, else of the same host and node name."""
    return record_of_uuid(replica, report) or record_of_name(replica, report)


def record_of_uuid(replica: ClusterReplica, report: HostReport) -> HostRecord | None:
    """The record with the report's uuid."""
    rows = map(replica.table.row_of, _uuid(report))
    return next((replica.table.records[row] for row in rows if row is not None), None)


def record_of_name(replica: ClusterReplica, report: HostReport) -> HostRecord | None:
    """The record with the report's host and node name, if it is the only one."""
    nodes = replica.table.find(report.host, _nodename(report))
    return nodes[0] if len(nodes) == 1 else None


def _is_about(report: HostReport, record: HostRecord) -> bool:
    if record.uuid == report.uuid:
        return True
    return record.host == report.host and _nodename(report) in {None, record.nodename}


def _uuid(report: HostReport) -> Sequence[str]:
    return (report.uuid,) if isinstance(report.uuid, str) else ()


def _nodename(report: HostReport) -> str | None:
    names = (report.nodename, report.hypervisor_hostname)
    return next((name for name in names if isinstance(name, str)), None)
