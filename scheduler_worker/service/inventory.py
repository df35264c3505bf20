"""What hosts report, what is announced, and how promises end.

Reports are not under the cluster's lock: a host must always be able to report. Every write is
guarded by the versions it was computed from and is computed again when somebody was faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from scheduler_worker.errors import RequestError, StateUnavailable
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_records import HostRecord, HostReport, fields_of, merged
from scheduler_worker.ports import Guard, Observer, Put, Transaction
from scheduler_worker.scheduling.pending import absorbed
from scheduler_worker.service import promises, records
from scheduler_worker.service.records import Instances
from scheduler_worker.service.replica import ClusterReplica, Fleet
from scheduler_worker.service.writing import Plan, Writer

LOG = logging.getLogger(__name__)

MAX_CLOCK_SKEW_S = 60.0
"""How far in the future a report may say it was made."""
_CHUNK = 500
"""Hosts written by one call to the store, which it serves in a few milliseconds."""

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class Ratios(msgspec.Struct, frozen=True):
    """Allocation ratios of hosts that report none (or 0.0)."""

    cpu: float = 4.0
    ram: float = 1.0
    disk: float = 1.0


def _tells_failures(
    method: Callable[Concatenate[Inventory, Arguments], Answer],
) -> Callable[Concatenate[Inventory, Arguments], Answer]:
    """A use case that ends in StateUnavailable is told to the observer."""

    @wraps(method)
    def told(self: Inventory, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        try:
            return method(self, *args, **kwargs)
        except StateUnavailable:
            self._observer.state_failed()
            raise

    return told


class Inventory:
    """The use cases around hosts, instances, aggregates and the end of promises."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        ratios: Ratios,
        promise_ttl_s: float,
        remember_answers_s: float = 120.0,
        clusters: Sequence[str] = (),
        observer: Observer | None = None,
    ) -> None:
        self._fleet = fleet
        self._observer = observer or Observer()
        self._writer = Writer(fleet.store, self._observer)
        self._ratios = ratios
        self._promise_ttl_s = promise_ttl_s
        self._remember_answers_s = remember_answers_s
        self._allowed = frozenset(clusters)

    # Hosts

    @_tells_failures
    def update_hosts(self, reports: Sequence[HostReport]) -> dict[str, int]:
        """Take in reports; the answer is each touched cluster's version afterwards.

        Raises:
            RequestError: a report is incomplete, of an unknown cluster or from the future; then
                none of the reports of this message was taken in.
        """
        self._fleet.refresh_globals()
        for replica in self._fleet.clusters():
            with replica.lock:
                replica.refresh(self._fleet.store)
        homes: dict[str, list[tuple[int, HostReport]]] = {}
        for number, report in enumerate(reports):
            homes.setdefault(self._home(number, report), []).append((number, report))
        for scope, mine in homes.items():
            self._check(self._fleet.cluster(scope), mine)
        return {scope: self._take_in(scope, mine) for scope, mine in homes.items()}

    def _home(self, number: int, report: HostReport) -> str:
        """The cluster of a report: the one it names, where its host is, or the default."""
        if isinstance(report.cluster, str):
            if self._allowed and report.cluster not in self._allowed:
                raise RequestError(
                    f"hosts[{number}].cluster",
                    f"there is no cluster {report.cluster!r}; [DEFAULT] clusters allows "
                    + ", ".join(sorted(self._allowed)),
                )
            return report.cluster
        for replica in self._fleet.clusters():
            if _known(replica, report) is not None:
                return replica.scope
        return self._fleet.default_cluster

    def _check(self, replica: ClusterReplica, mine: Sequence[tuple[int, HostReport]]) -> None:
        with replica.lock:
            now_s = replica.refresh(self._fleet.store).now_s
            for number, report in mine:
                try:
                    self._merged(replica, report, now_s)
                except RequestError as error:
                    raise RequestError(f"hosts[{number}].{error.field}", error.problem) from None

    def _take_in(self, scope: str, mine: Sequence[tuple[int, HostReport]]) -> int:
        self._register(scope)
        replica = self._fleet.cluster(scope)
        version = 0
        for start in range(0, len(mine), _CHUNK):
            chunk = [report for _, report in mine[start : start + _CHUNK]]
            elsewhere = self._held_elsewhere(replica, chunk)
            plan = partial(self._report_plan, replica, elsewhere=elsewhere)
            version = self._writer.write(replica, chunk, plan)
        # Once more, for a store that lost its data meanwhile has lost the name, too.
        self._fleet.refresh_globals()
        self._register(scope)
        self._leave_other_clusters(replica, [report for _, report in mine])
        return version

    def _register(self, scope: str) -> None:
        if scope not in self._fleet.globals.clusters:
            put = records.put_cluster(scope)
            self._fleet.store.write(self._fleet.globals.scope, [Transaction([put])])
            self._fleet.refresh_globals()

    def _merged(self, replica: ClusterReplica, report: HostReport, now_s: float) -> HostRecord:
        said = fields_of(report)
        updated_at = said.get("updated_at")
        if updated_at is not None and updated_at > now_s + MAX_CLOCK_SKEW_S:
            ahead_s = updated_at - now_s
            raise RequestError("updated_at", f"is {ahead_s:.0f} s ahead; check the host's clock")
        known = _known(replica, report)
        missing = [name for name in ("uuid", "vcpus", "memory_mb", "local_gb") if name not in said]
        if known is None and missing:
            raise RequestError(
                missing[0], f"is missing; the first report of {report.host!r} needs it"
            )
        ratios = {
            f"{kind}_allocation_ratio": getattr(self._ratios, kind)
            for kind in ("cpu", "ram", "disk")
            if not said.get(f"{kind}_allocation_ratio", known is not None)
        }
        nodename = said.get("nodename") or (
            known.nodename if known else said.get("hypervisor_hostname") or report.host
        )
        stamped = {"nodename": nodename, "cluster": replica.scope, "reported_at_s": now_s, **ratios}
        try:
            return merged(known, said, **stamped)
        except msgspec.ValidationError as error:
            raise RequestError(report.host, str(error)) from None

    def _report_plan(
        self,
        replica: ClusterReplica,
        report: HostReport,
        now_s: float,
        *,
        elsewhere: Mapping[str, Sequence[Put]],
    ) -> Plan | None:
        known = _known(replica, report)
        record = self._merged(replica, report, now_s)
        if known and known.updated_at and (record.updated_at or 0.0) < known.updated_at:
            return None
        said = fields_of(report)
        # What the report itself says comes after what was known elsewhere, and wins.
        puts = [
            *(elsewhere.get(record.host, ()) if known is None else ()),
            records.put_host(record),
        ]
        listed = None
        if isinstance(report.instances, list):
            instances = {str(each["uuid"]): each for each in report.instances}
            listed = instances.keys()
            puts.append(records.put_instances(record.host, instances))
        promised = promises.on_host(replica, record.uuid)
        ended = absorbed(promised, said, listed, said.get("updated_at"))
        puts += promises.absorbed(ended, now_s, self._remember_answers_s)
        left = [each for each in promised if each not in ended]
        puts += promises.announced(left, listed or (), now_s)
        if known is not None and known.uuid != record.uuid:
            puts += promises.renamed(known, record, promises.on_host(replica, known.uuid))
        key = records.HOST + record.uuid
        guards = [Guard(key, replica.version(key)), *promises.guards(replica, promised)]
        return Plan(Transaction(puts, guards), {"absorbed": len(ended)})

    def _held_elsewhere(
        self, home: ClusterReplica, reports: Sequence[HostReport]
    ) -> dict[str, list[Put]]:
        """What other clusters hold of hosts that are new in this one, by host name.

        Promises come along with a host that changes its cluster; instances that were announced
        before the first report wait in the default cluster. Read before the home's lock is taken,
        for nobody may want two replicas' locks in an order of his own.
        """
        with home.lock:
            new = [report for report in reports if _known(home, report) is None]
        found: dict[str, list[Put]] = {}
        for replica in self._fleet.clusters() if new else ():
            if replica is not home:
                with replica.lock:
                    for report in new:
                        found.setdefault(report.host, []).extend(_leaving(replica, report))
        return found

    def _leave_other_clusters(self, home: ClusterReplica, reports: Iterable[HostReport]) -> None:
        """A host that changed its cluster is forgotten where it was."""
        uuids = {report.uuid for report in reports if isinstance(report.uuid, str)}
        for replica in self._fleet.clusters():
            moved = [uuid for uuid in uuids if replica.table.row_of(uuid) is not None]
            if replica is not home and moved:
                self._forget(replica, moved, "moved")

    @_tells_failures
    def remove_hosts(self, hosts: Sequence[tuple[str, str | None]]) -> dict[str, int]:
        """Forget (host, nodename) pairs, their instances and promises; unknown ones are fine."""
        self._fleet.refresh_globals()
        versions = {}
        for replica in self._fleet.clusters():
            with replica.lock:
                replica.refresh(self._fleet.store)
                uuids = [
                    record.uuid
                    for host, nodename in hosts
                    for record in replica.table.find(host, nodename)
                ]
            if uuids:
                versions[replica.scope] = self._forget(replica, uuids, "removed")
        return versions

    def _forget(self, replica: ClusterReplica, uuids: Sequence[str], how: str) -> int:
        def plan(uuid: str, _: float) -> Plan:
            row = replica.table.row_of(uuid)
            promised = promises.on_host(replica, uuid)
            puts = [records.gone(records.HOST + uuid), *promises.given_back(promised)]
            if row is not None and len(replica.table.find(replica.table.records[row].host)) == 1:
                puts.append(records.gone(records.INSTANCES + replica.table.records[row].host))
            return Plan(Transaction(puts), {how: len(promised)})

        return self._writer.write(replica, uuids, plan)

    # Promises

    @_tells_failures
    def confirm(self, instance_uuids: Sequence[str]) -> int:
        """The promised instances exist; their promises last until the hosts report them."""
        return self._end(instance_uuids, partial(promises.confirmed, ttl_s=self._promise_ttl_s))

    @_tells_failures
    def release(self, instance_uuids: Sequence[str]) -> int:
        """The promised instances will not come; their promises are given back."""
        return self._end(instance_uuids, promises.released)

    def _end(
        self,
        instance_uuids: Sequence[str],
        end: Callable[[ClusterReplica, str, float], Plan | None],
    ) -> int:
        self._fleet.refresh_globals()
        found: set[str] = set()
        for replica in self._fleet.clusters():

            def plan(uuid: str, now_s: float, replica: ClusterReplica = replica) -> Plan | None:
                if replica.promises_of(uuid):
                    found.add(uuid)
                return end(replica, uuid, now_s)

            self._writer.write(replica, instance_uuids, plan)
        return len(found)

    # Instances

    @_tells_failures
    def update_instances(self, host: str, instances: Instances, *, once: str | None = None) -> None:
        """Instances were seen on a host: merge them by uuid."""
        self._change_instances(host, lambda known: {**known, **instances}, instances, once)

    @_tells_failures
    def delete_instance(self, host: str, uuid: str, *, once: str | None = None) -> None:
        """An instance left a host; a promise for it there ends."""

        def without(known: Instances) -> Instances:
            return {key: facts for key, facts in known.items() if key != uuid}

        self._change_instances(host, without, (), once, ended=uuid)

    @_tells_failures
    def sync_instances(self, host: str, uuids: Sequence[str], *, once: str | None = None) -> None:
        """These and no others are on a host."""

        def exactly(known: Instances) -> Instances:
            return {uuid: known.get(uuid, {"uuid": uuid}) for uuid in uuids}

        self._change_instances(host, exactly, uuids, once)

    def _change_instances(
        self,
        host: str,
        change: Callable[[Instances], Instances],
        seen: Iterable[str],
        once: str | None,
        *,
        ended: str | None = None,
    ) -> None:
        replica = self._home_of(host)
        seen = tuple(seen)

        def plan(_: str, now_s: float) -> Plan | None:
            known = {
                key: dict(facts) for key, facts in replica.table.reported_instances(host).items()
            }
            changed = change(known)
            promised = [
                promise
                for record in replica.table.find(host)
                for promise in promises.on_host(replica, record.uuid)
            ]
            gone = [each for each in promised if each.instance_uuid == ended]
            puts = [records.put_instances(host, changed)] if changed != known else []
            puts += promises.given_back(gone)
            puts += promises.forgotten(replica, ended, host=host) if ended else []
            puts += promises.announced(promised, seen, now_s)
            key = records.INSTANCES + host
            guards = [Guard(key, replica.version(key)), *promises.guards(replica, promised)]
            return Plan(Transaction(puts, guards), {"released": len(gone)}) if puts else None

        self._writer.write(replica, [host], plan, once=once)

    def _home_of(self, host: str) -> ClusterReplica:
        """The cluster of a host name; an unknown host's instances wait in the default one."""
        self._fleet.refresh_globals()
        for replica in self._fleet.clusters():
            with replica.lock:
                if not replica.table.find(host):
                    replica.refresh(self._fleet.store)
                if replica.table.find(host):
                    return replica
        self._register(self._fleet.default_cluster)
        return self._fleet.cluster(self._fleet.default_cluster)

    # Aggregates

    @_tells_failures
    def update_aggregates(
        self, aggregates: Sequence[Aggregate], *, once: str | None = None
    ) -> None:
        """Replace aggregates by id."""
        self._write_globals([records.put_aggregate(each) for each in aggregates], once)

    @_tells_failures
    def delete_aggregate(self, aggregate_id: int, *, once: str | None = None) -> None:
        """Forget an aggregate; an unknown one is fine."""
        self._write_globals([records.gone(f"{records.AGGREGATE}{aggregate_id}")], once)

    def _write_globals(self, puts: Sequence[Put], once: str | None) -> None:
        scope = self._fleet.globals.scope
        self._fleet.store.write(scope, [Transaction(puts)], once=once)
        self._fleet.refresh_globals()


def _known(replica: ClusterReplica, report: HostReport) -> HostRecord | None:
    """The record a report is about: of the same uuid, else of the same host and node name."""
    if isinstance(report.uuid, str):
        row = replica.table.row_of(report.uuid)
        if row is not None:
            return replica.table.records[row]
    nodename = report.nodename if isinstance(report.nodename, str) else None
    if nodename is None and isinstance(report.hypervisor_hostname, str):
        nodename = report.hypervisor_hostname
    found = replica.table.find(report.host, nodename)
    return found[0] if len(found) == 1 else None


def _leaving(replica: ClusterReplica, report: HostReport) -> list[Put]:
    """What a cluster holds of a host that reports to another one now."""
    puts: list[Put] = []
    if isinstance(report.uuid, str):
        puts += map(records.put_promise, promises.on_host(replica, report.uuid))
    instances = replica.table.reported_instances(report.host)
    if instances:
        kept = {uuid: dict(facts) for uuid, facts in instances.items()}
        puts.append(records.put_instances(report.host, kept))
    return puts
