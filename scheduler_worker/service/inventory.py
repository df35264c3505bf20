"""What hosts report, what is announced, and how promises end.

Reports are not under the cluster's lock: a host must always be able to report. Every write is
guarded by the versions it was computed from and is computed again when somebody was faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from tenacity import RetryError, Retrying, retry_if_result, stop_after_attempt

from scheduler_worker.errors import Conflict, RequestError
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_records import HostRecord, HostReport, fields_of, merged
from scheduler_worker.ports import Guard, Put, Transaction
from scheduler_worker.scheduling.pending import absorbed
from scheduler_worker.service import records
from scheduler_worker.service.records import Instances
from scheduler_worker.service.replica import ClusterReplica, Fleet

LOG = logging.getLogger(__name__)

MAX_CLOCK_SKEW_S = 60.0
"""How far in the future a report may say it was made."""
_CHUNK = 500
"""Hosts written by one call to the store, which it serves in a few milliseconds."""
_ROUNDS = 8


class Ratios(msgspec.Struct, frozen=True):
    """Allocation ratios of hosts that report none (or 0.0)."""

    cpu: float = 4.0
    ram: float = 1.0
    disk: float = 1.0


class Inventory:
    """The use cases around hosts, instances, aggregates and the end of promises."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        ratios: Ratios,
        promise_ttl_s: float,
        clusters: Sequence[str] = (),
    ) -> None:
        self._fleet = fleet
        self._ratios = ratios
        self._promise_ttl_s = promise_ttl_s
        self._allowed = frozenset(clusters)

    # Hosts

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
            version = self._write(
                replica,
                chunk,
                partial(self._report_transaction, replica, elsewhere=elsewhere),
            )
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

    def _report_transaction(
        self,
        replica: ClusterReplica,
        report: HostReport,
        now_s: float,
        *,
        elsewhere: Mapping[str, Sequence[Put]],
    ) -> Transaction | None:
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
        promises = _promises_on(replica, record.uuid)
        ended = absorbed(promises, said, listed, said.get("updated_at"))
        puts += [records.gone(records.PROMISE + each.id) for each in ended]
        left = [each for each in promises if each not in ended]
        puts += _announced(left, listed or (), now_s)
        if known is not None and known.uuid != record.uuid:
            puts += _renamed(known, record, _promises_on(replica, known.uuid))
        key = records.HOST + record.uuid
        return Transaction(puts, [Guard(key, replica.version(key)), *_guards(replica, promises)])

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
                self._forget(replica, moved)

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
                versions[replica.scope] = self._forget(replica, uuids)
        return versions

    def _forget(self, replica: ClusterReplica, uuids: Sequence[str]) -> int:
        def transaction(uuid: str, _: float) -> Transaction:
            row = replica.table.row_of(uuid)
            puts = [records.gone(records.HOST + uuid)]
            puts += [records.gone(records.PROMISE + p.id) for p in _promises_on(replica, uuid)]
            if row is not None and len(replica.table.find(replica.table.records[row].host)) == 1:
                puts.append(records.gone(records.INSTANCES + replica.table.records[row].host))
            return Transaction(puts)

        return self._write(replica, uuids, transaction)

    # Promises

    def confirm(self, instance_uuids: Sequence[str]) -> int:
        """The promised instances exist; their promises last until the hosts report them."""

        def confirmed(promise: Reservation, now_s: float) -> Put:
            return records.put_promise(
                msgspec.structs.replace(
                    promise,
                    state="confirmed",
                    announced_at_s=promise.announced_at_s or now_s,
                    expires_at_s=now_s + self._promise_ttl_s,
                )
            )

        return self._end(instance_uuids, confirmed)

    def release(self, instance_uuids: Sequence[str]) -> int:
        """The promised instances will not come; their promises are given back."""
        return self._end(
            instance_uuids, lambda promise, _: records.gone(records.PROMISE + promise.id)
        )

    def _end(self, instance_uuids: Sequence[str], put: Callable[[Reservation, float], Put]) -> int:
        self._fleet.refresh_globals()
        found: set[str] = set()
        for replica in self._fleet.clusters():

            def transaction(
                uuid: str, now_s: float, replica: ClusterReplica = replica
            ) -> Transaction | None:
                promises = replica.promises_of(uuid)
                if not promises:
                    return None
                found.add(uuid)
                return Transaction(
                    [put(each, now_s) for each in promises], _guards(replica, promises)
                )

            self._write(replica, instance_uuids, transaction)
        return len(found)

    # Instances

    def update_instances(self, host: str, instances: Instances, *, once: str | None = None) -> None:
        """Instances were seen on a host: merge them by uuid."""
        self._change_instances(host, lambda known: {**known, **instances}, instances, once)

    def delete_instance(self, host: str, uuid: str, *, once: str | None = None) -> None:
        """An instance left a host; a promise for it there ends."""

        def without(known: Instances) -> Instances:
            return {key: facts for key, facts in known.items() if key != uuid}

        self._change_instances(host, without, (), once, ended=uuid)

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

        def transaction(_: str, now_s: float) -> Transaction | None:
            known = {
                key: dict(facts) for key, facts in replica.table.reported_instances(host).items()
            }
            changed = change(known)
            promises = [
                promise
                for record in replica.table.find(host)
                for promise in _promises_on(replica, record.uuid)
            ]
            gone = [each for each in promises if each.instance_uuid == ended]
            puts = [records.put_instances(host, changed)] if changed != known else []
            puts += [records.gone(records.PROMISE + each.id) for each in gone]
            puts += _announced(promises, seen, now_s)
            key = records.INSTANCES + host
            guards = [Guard(key, replica.version(key)), *_guards(replica, promises)]
            return Transaction(puts, guards) if puts else None

        self._write(replica, [host], transaction, once=once)

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

    def update_aggregates(
        self, aggregates: Sequence[Aggregate], *, once: str | None = None
    ) -> None:
        """Replace aggregates by id."""
        self._write_globals([records.put_aggregate(each) for each in aggregates], once)

    def delete_aggregate(self, aggregate_id: int, *, once: str | None = None) -> None:
        """Forget an aggregate; an unknown one is fine."""
        self._write_globals([records.gone(f"{records.AGGREGATE}{aggregate_id}")], once)

    def _write_globals(self, puts: Sequence[Put], once: str | None) -> None:
        scope = self._fleet.globals.scope
        self._fleet.store.write(scope, [Transaction(puts)], once=once)
        self._fleet.refresh_globals()

    # Writing

    def _write(
        self,
        replica: ClusterReplica,
        items: Sequence[Any],
        transaction: Callable[[Any, float], Transaction | None],
        *,
        once: str | None = None,
    ) -> int:
        """Write one transaction for each item, again for those that somebody else overtook."""
        left = list(items)

        def attempt() -> bool:
            nonlocal left
            with replica.lock:
                now_s = replica.refresh(self._fleet.store).now_s
                pairs = [(item, transaction(item, now_s)) for item in left]
                writing = [(item, each) for item, each in pairs if each is not None]
                if writing:
                    written = self._fleet.store.write(
                        replica.scope, [each for _, each in writing], once=once
                    )
                    left = [
                        item
                        for (item, _), applied in zip(writing, written.applied, strict=True)
                        if not applied
                    ]
                    replica.refresh(self._fleet.store)
            return bool(writing and left)

        try:
            Retrying(stop=stop_after_attempt(_ROUNDS), retry=retry_if_result(bool))(attempt)
        except RetryError:
            raise Conflict(
                f"{len(left)} records of {replica.scope} changed during each of {_ROUNDS} attempts;"
                " try again."
            ) from None
        return replica.seen.version


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
        puts += map(records.put_promise, _promises_on(replica, report.uuid))
    instances = replica.table.reported_instances(report.host)
    if instances:
        kept = {uuid: dict(facts) for uuid, facts in instances.items()}
        puts.append(records.put_instances(report.host, kept))
    return puts


def _renamed(before: HostRecord, after: HostRecord, promises: Iterable[Reservation]) -> list[Put]:
    """A node that was made again, with another uuid: the old one goes, its promises stay."""
    puts = [records.gone(records.HOST + before.uuid)]
    for each in promises:
        puts.append(records.gone(records.PROMISE + each.id))
        puts.append(records.put_promise(msgspec.structs.replace(each, host_uuid=after.uuid)))
    return puts


def _promises_on(replica: ClusterReplica, host_uuid: str) -> list[Reservation]:
    found = replica.table.promises_of_host(host_uuid)
    return [replica.promises[each.id] for each in found if each.id in replica.promises]


def _announced(promises: Iterable[Reservation], seen: Iterable[str], now_s: float) -> list[Put]:
    """Mark the promises whose instances were seen on their host for the first time."""
    present = set(seen)
    return [
        records.put_promise(msgspec.structs.replace(each, announced_at_s=now_s))
        for each in promises
        if each.announced_at_s is None and each.instance_uuid in present
    ]


def _guards(replica: ClusterReplica, promises: Iterable[Reservation]) -> list[Guard]:
    keys = [records.PROMISE + each.id for each in promises]
    return [Guard(key, replica.version(key)) for key in keys]
