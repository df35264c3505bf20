"""Stores host reports: merges them into host records, and ends the reservations they absorb.

Reports are stored without the cluster's lock, since a host must always be able to report: each
write is guarded by the versions of all records that it was planned on.

A report of known hosts of one cluster takes three calls to the store: a look at the names of the
clusters, a look at the cluster, and the write. If others wrote in between, the guards of the
reports concerned fail, and these are planned again.
"""

import contextlib
import copy
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Annotated, Any, NamedTuple, Self

import msgspec

from scheduler_worker import remedies
from scheduler_worker.errors import Conflict, RequestError
from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_records import (
    SERVICE_DOWN_TIME_S,
    UP,
    HostRecord,
    contest_of,
    is_contested,
    reported_use,
)
from scheduler_worker.model.host_reports import (
    USE_FIELDS,
    HostReport,
    fields_of,
    is_outdated,
    measured_at_s,
    merged,
)
from scheduler_worker.model.virt import bounds_of_load, over_commit_since_s
from scheduler_worker.observer import Observer
from scheduler_worker.options import Opt
from scheduler_worker.ports import Guard, Put, Transaction
from scheduler_worker.scheduling.absorption import (
    SINCE,
    TAKES,
    Facts,
    UseReport,
    remembering,
    settled,
    takes,
    withdrawn,
)
from scheduler_worker.service.inventory.known_hosts import KnownHost, KnownHosts, record_of
from scheduler_worker.service.inventory.sightings import Sightings
from scheduler_worker.service.state import records, reservations
from scheduler_worker.service.state.moves import Moves
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.state.writing import WritePlan, Writer

LOG = logging.getLogger(__name__)

MAX_CLOCK_SKEW_S = 60.0
"""How far ahead of the store's clock a report's ``updated_at`` may be."""
_SAY_AGAIN_S = 60.0
_NEEDED_FIRST = ("uuid", "vcpus", "memory_mb", "local_gb")
"""What a host's first report has to carry."""
ROUNDS = 8
"""Attempts to change what others move meanwhile."""
_CHUNK = 500
"""Hosts written by one call to the store, which it serves in a few milliseconds."""


_REPORTS_BEFORE_DOWN = 2.5
"""How many reports of a host are missing before it counts as down, at least."""


def _ratio(kind: str, what: str) -> Opt:
    text = f"Allocation ratio of {what} for hosts that report none. Unset or 0.0: "
    return Opt(min=0, help=f"{text}initial_{kind}_allocation_ratio.")


def _initial(kind: str) -> Opt:
    return Opt(min=0, help=f"Used while {kind}_allocation_ratio is unset or 0.0.")


class InventorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What host reports may name, and what they may leave out."""

    clusters: Annotated[tuple[str, ...], Opt()] = ()
    """The only clusters that a host report may name. Empty: any; a new name makes a new cluster."""
    cpu_allocation_ratio: Annotated[float | None, _ratio("cpu", "vCPUs")] = None
    ram_allocation_ratio: Annotated[float | None, _ratio("ram", "memory")] = None
    disk_allocation_ratio: Annotated[float | None, _ratio("disk", "local disk")] = None
    initial_cpu_allocation_ratio: Annotated[float, _initial("cpu")] = 4.0
    initial_ram_allocation_ratio: Annotated[float, _initial("ram")] = 1.0
    initial_disk_allocation_ratio: Annotated[float, _initial("disk")] = 1.0

    @property
    def ratios(self) -> dict[str, float]:
        """The ratios of hosts that report none (or 0.0), by their fields."""
        names = ("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio")
        return {
            name: getattr(self, name) or getattr(self, f"initial_{name}") or 1.0 for name in names
        }


class HeartbeatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often hosts report, and when a silent one is down; times in seconds."""

    service_down_time_s: Annotated[float, Opt(min=1, mutable=True)] = SERVICE_DOWN_TIME_S
    """Seconds without a report after which a host counts as down."""
    report_interval_s: Annotated[int, Opt(min=0, mutable=True)] = 10
    """Seconds between two reports of a host. A service_down_time that is not longer than this is
    taken as 2.5 times this."""

    @property
    def down_after_s(self) -> float:
        """After how long a silent host is down: long enough for it to report in the meantime."""
        if self.service_down_time_s <= self.report_interval_s:
            return float(int(_REPORTS_BEFORE_DOWN * self.report_interval_s))
        return self.service_down_time_s


class _Update(NamedTuple):
    """A report, and what it makes of its host's record."""

    number: int
    """Its place in the message."""
    report: HostReport
    scope: str
    """The cluster in which it is stored."""
    known: HostRecord | None
    """The record that it was merged into, in whichever cluster; None for a host's first report."""
    record: HostRecord | None
    """The merged record; None if the report is outdated."""


class HostReports:
    """Stores host reports. ``clusters`` are the names that reports may use; none: all."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        ratios: Mapping[str, float],
        reservation_ttl_s: float,
        remember_answers_s: float,
        clusters: Sequence[str] = (),
        observer: Observer | None = None,
    ) -> None:
        self.observer = observer or Observer()
        self._fleet = fleet
        self._known_hosts = KnownHosts(fleet)
        self._writer = Writer(fleet.store, self.observer)
        self._moves = Moves(fleet, self.observer, remember_answers_s=remember_answers_s)
        self.sightings = Sightings(fleet, self._writer, ttl_s=reservation_ttl_s)
        self._ratios = ratios
        self._reservation_ttl_s = reservation_ttl_s
        self._remember_answers_s = remember_answers_s
        self._allowed = frozenset(clusters)
        self._said_old_s = -math.inf

    def only_while(self, check: Callable[[], object]) -> Self:
        """The same inventory for a worker that leads: ``check`` raises once it does not.

        It is called before each plan of a write to a cluster. A write that was planned before the
        lead was lost is refused by its guards if the next leader was first, and is planned again no
        more. Moves between clusters go on: any worker may finish them.
        """
        led = copy.copy(self)
        led._writer = Writer(self._fleet.store, self.observer, check)
        return led

    def update_hosts(self, reports: Sequence[HostReport]) -> dict[str, int]:
        """Store reports; returns each touched cluster's version afterwards.

        Raises:
            RequestError: a report is incomplete, of a cluster that is not allowed, or from the
                future; then none of the reports of this message is stored.
            Conflict: other workers kept moving the same hosts.
            StateUnavailable: the store cannot be reached; some may be stored.
        """
        read, known_hosts = self._known_hosts.look(reports)
        have_moved = True
        with contextlib.suppress(Conflict):  # Other workers are finishing the same moves.
            have_moved = self._moves.finish(hosts={report.host for report in reports})
        if have_moved:
            known_hosts = list(map(self._known_hosts.find, reports))
        if None in known_hosts:
            # It may have moved to a cluster that was read before.
            read = self._known_hosts.refresh()
            known_hosts = list(map(self._known_hosts.find, reports))
        scopes = list(map(self._scope_of, count(), reports, known_hosts))
        # Each report is stamped with the time of its own cluster's store.
        self._fleet.refresh(list(map(self._fleet.cluster, set(scopes) - read)))
        by_scope: dict[str, list[_Update]] = {}
        for update in map(self._update, count(), reports, scopes, known_hosts):
            by_scope.setdefault(update.scope, []).append(update)
        versions = {scope: self._store(scope, updates) for scope, updates in by_scope.items()}
        listed = {
            report.host: self._listed(scope, report.host)
            for scope, updates in by_scope.items()
            for _, report, _, _, record in updates
            if record is not None and isinstance(report.instances, list)
        }
        return versions | self.sightings.follow(listed)

    def _listed(self, scope: str, host: str) -> Facts:
        """The instances that are known to be on a host."""
        replica = self._fleet.cluster(scope)
        with replica.lock:
            return replica.table.reported_instances(host)

    def news(self, reports: Sequence[HostReport]) -> list[HostReport]:
        """The reports that would change anything, as far as this process knows.

        Asks the store nothing. A report that :meth:`update_hosts` would refuse is one of them.
        """
        return list(filter(self._is_news, reports))

    def _is_news(self, report: HostReport) -> bool:
        known = self._known_hosts.find(report)
        if known is None or (isinstance(report.cluster, str) and report.cluster != known.scope):
            return True
        try:
            record = self._merged(known.scope, known.record, report)
        except RequestError:
            return True
        if record is None:
            return False
        before = msgspec.structs.replace(known.record, reported_at_s=record.reported_at_s)
        return record != before or self._lists_news(known, report)

    def _lists_news(self, known: KnownHost, report: HostReport) -> bool:
        """Whether the instances that a report lists change anything of the known ones.

        A reservation of one that is still under way lasts longer by the report.
        """
        if not isinstance(report.instances, list):
            return False
        before = self._listed(known.scope, report.host)
        listed = {str(instance["uuid"]): instance for instance in report.instances}
        return remembering(listed, before) != before or self.sightings.last(report.host, listed)

    # Merging

    def _scope_of(self, number: int, report: HostReport, known: KnownHost | None) -> str:
        """The cluster that the report names, else where its host is, else the default."""
        if not isinstance(report.cluster, str):
            return known.scope if known else self._fleet.default_cluster
        if self._allowed and report.cluster not in self._allowed:
            raise RequestError(
                f"hosts[{number}].cluster",
                f"there is no cluster {report.cluster!r}; [DEFAULT] clusters allows "
                + ", ".join(sorted(self._allowed)),
            )
        return report.cluster

    def _update(
        self, number: int, report: HostReport, scope: str, known: KnownHost | None
    ) -> _Update:
        before = known.record if known else None
        try:
            after = self._merged(scope, before, report)
        except RequestError as error:
            raise RequestError(f"hosts[{number}].{error.field}", error.problem) from None
        return _Update(number, report, scope, before, after)

    def _merged(
        self, scope: str, known: HostRecord | None, report: HostReport
    ) -> HostRecord | None:
        """The record after the report; None if it is older than what is known of its source."""
        fields = fields_of(report)
        now_s = self._fleet.cluster(scope).table.now_s
        updated_at = fields.get("updated_at")
        if updated_at is not None and updated_at > now_s + MAX_CLOCK_SKEW_S:
            ahead_s = updated_at - now_s
            raise RequestError("updated_at", f"is {ahead_s:.0f} s ahead; check the host's clock")
        missing = [name for name in _NEEDED_FIRST if name not in fields]
        if known is None and missing:
            raise RequestError(
                missing[0], f"is missing; the first report of {report.host!r} needs it"
            )
        if is_outdated(known, fields):
            return None
        ratios = {
            name: ratio
            for name, ratio in self._ratios.items()
            if not fields.get(name, known is not None)
        }
        nodename = fields.get("nodename") or (
            known.nodename if known else fields.get("hypervisor_hostname") or report.host
        )
        measured_s = measured_at_s(known, fields, now_s)
        self._check_age(report.host, measured_s, now_s)
        stamped = {"nodename": nodename, "cluster": scope, "reported_at_s": measured_s, **ratios}
        if power := fields.get("power"):
            asked = self._fleet.cluster(scope).power.under_way
            asked_for = asked.to if asked is not None and asked.host == report.host else None
            fields["power"] = power.after(known.power if known else UP, asked_for)
        if "virt" in fields:
            virt = fields["virt"]
            policy = self._fleet.cluster(scope).policy
            stamped["over_commit_since_s"] = over_commit_since_s(
                virt.load_percent if virt else None,
                known.over_commit_since_s if known else None,
                now_s,
                **bounds_of_load(policy.parameters if policy else {}),
            )
        try:
            return merged(known, fields, **stamped)
        except msgspec.ValidationError as error:
            raise RequestError(report.host, str(error)) from None

    def _check_age(self, host: str, measured_s: float, now_s: float) -> None:
        """Say now and then that reports are old: their hosts count as down."""
        is_old = now_s - measured_s > MAX_CLOCK_SKEW_S
        if is_old and abs(now_s - self._said_old_s) > _SAY_AGAIN_S:
            self._said_old_s = now_s
            LOG.warning(
                "A report of host %s was measured %.0f s ago, and others may be as old: they "
                "waited in the queue, or the host's clock is behind",
                host,
                now_s - measured_s,
            )

    # Storing

    def _store(self, scope: str, updates: Sequence[_Update]) -> int:
        self._known_hosts.register(scope)
        replica = self._fleet.cluster(scope)
        version = 0
        for start in range(0, len(updates), _CHUNK):
            chunk = updates[start : start + _CHUNK]
            version = self._store_chunk(replica, chunk, is_current=start == 0)
        return version

    def _store_chunk(
        self, replica: ClusterReplica, updates: Sequence[_Update], *, is_current: bool
    ) -> int:
        for _ in range(ROUNDS):
            has_moved = self._bring(replica, updates)
            elsewhere: list[_Update] = []
            renamed: list[tuple[str, str]] = []
            contests: set[str] = set()
            plan = partial(
                self._plan, replica, elsewhere=elsewhere, renamed=renamed, contests=contests
            )
            current = [update for update in updates if update.record]
            version = self._writer.write(replica, current, plan, is_current=is_current)
            for contest in sorted(contests):
                LOG.warning("Machines report as one: %s. %s", contest, remedies.CONTESTED)
            if renamed:
                # Reservations that were made on the old uuid while its report was planned.
                version = self._writer.write(replica, renamed, partial(self._follow, replica))
            if has_moved:
                # Again: a store that lost its data since the first time has lost the name, too.
                self._fleet.refresh_globals()
                self._known_hosts.register(replica.scope)
            if not elsewhere:
                return version
            self._known_hosts.refresh()
            updates = [
                self._update(number, report, scope, self._known_hosts.find(report))
                for number, report, scope, *_ in elsewhere
            ]
        raise Conflict(f"Other workers kept moving the hosts of {len(updates)} reports; try again.")

    def _bring(self, replica: ClusterReplica, updates: Sequence[_Update]) -> bool:
        """Make the cluster the only one of these hosts; returns whether any had to move."""
        bringing: dict[str, HostRecord] = {}
        with replica.lock:
            here = {update.number for update in updates if record_of(replica, update.report)}
        for number, report, _, known, record in updates:
            is_elsewhere = self._known_hosts.is_elsewhere(replica, report)
            if record is None or (number in here and not is_elsewhere):
                continue
            # A node with a new uuid moves under its old one; storing the report changes it.
            uuid = known.uuid if known else record.uuid
            bringing.setdefault(uuid, msgspec.structs.replace(record, uuid=uuid))
        if bringing:
            self._moves.bring(replica.scope, bringing)
        return bool(bringing)

    def _plan(
        self,
        replica: ClusterReplica,
        update: _Update,
        now_s: float,
        *,
        elsewhere: list[_Update],
        renamed: list[tuple[str, str]],
        contests: set[str],
    ) -> WritePlan | None:
        report = update.report
        known = record_of(replica, report)
        if known is None:  # It was moved or removed, or the store lost it.
            elsewhere.append(update)
            return None
        # A host that no cluster had was stored with its arrival.
        is_stored = update.known is None and known == update.record
        record: HostRecord | None = update.record
        if known is not update.known and not is_stored:
            record = self._merged(replica.scope, known, report)
        if record is None:
            return None
        if is_contested(record, now_s) and not is_contested(update.known or known, now_s):
            contests.add(contest_of(record))
        same_node = replica.table.find(record.host, record.nodename)
        newer = next((node for node in same_node if _is_newer(node, record)), None)
        if newer is not None:  # Another worker stored the first report of the node created anew.
            formers, puts, guards = {record.uuid}, list[Put](), list[Guard]()
            ended: Sequence[Reservation] = ()
            kept = newer.uuid
        else:
            formers = {known.uuid, *(node.uuid for node in same_node)} - {record.uuid}
            puts = [] if is_stored else [records.put_host(record)]
            guards = []
            ended = self._plan_instances(replica, record, report, now_s, puts, guards)
            kept = record.uuid
        for former in sorted(formers):
            renamed.append((former, kept))
            puts.append(records.gone(records.HOST + former))
            following, more = reservations.renamed(
                replica, former, kept, now_s, self._remember_answers_s
            )
            puts += following
            guards += more
        keys = {records.HOST + uuid for uuid in (known.uuid, kept, *formers)}
        guards += replica.guards(sorted(keys))
        return WritePlan(Transaction(puts, guards), {"absorbed": len(ended)}) if puts else None

    def _plan_instances(
        self,
        replica: ClusterReplica,
        record: HostRecord,
        report: HostReport,
        now_s: float,
        puts: list[Put],
        guards: list[Guard],
    ) -> Sequence[Reservation]:
        """Add what a report changes of instances and reservations; returns what it absorbs."""
        listed = report.instances if isinstance(report.instances, list) else None
        instances = replica.table.reported_instances(record.host)
        reserved = reservations.on_host(replica, record.uuid)
        if listed is not None:
            named = {str(each["uuid"]): each for each in listed}
            measured_at_s = fields_of(report).get("updated_at") or now_s
            instances = remembering(named, instances, min(now_s, measured_at_s), reserved)
        ended: list[Reservation] = []
        if reserved:
            gone = withdrawn(reserved, record)
            puts += reservations.given_back(gone)
            kept = [reservation for reservation in reserved if reservation not in gone]
            use = _use_report(record, report, instances, now_s)
            ended, remaining = settled(kept, use)
            puts += reservations.absorbed(ended, now_s, self._remember_answers_s)
            puts += reservations.changed(reserved, remaining)
            guards += reservations.guards(replica, reserved)
        if ended or listed is not None:
            facts = {each.instance_uuid: _facts(each, instances) for each in ended}
            puts.append(records.put_instances(record.host, {**instances, **facts}))
        if ended and listed is None:  # the put has the list as it was read: lose no announcement
            guards += replica.guards([records.INSTANCES + record.host])
        return ended

    def _follow(
        self, replica: ClusterReplica, uuids: tuple[str, str], now_s: float
    ) -> WritePlan | None:
        before, after = uuids
        if replica.table.row_of(before) is not None:
            return None
        puts, guards = reservations.renamed(replica, before, after, now_s, self._remember_answers_s)
        return WritePlan(Transaction(puts, guards)) if puts else None


def _use_report(
    record: HostRecord, report: HostReport, instances: Facts, now_s: float
) -> UseReport:
    fields = fields_of(report)
    listed = isinstance(report.instances, list)
    use, measured_at_s = None, fields.get("updated_at")
    if USE_FIELDS & fields.keys():
        use = reported_use(record)
    elif "resource_providers" in fields:  # They may complete what the use showed before.
        use, measured_at_s = reported_use(record), record.updated_at or 0.0
    reads = record if record.resource_providers else None
    return UseReport(now_s, measured_at_s, use, instances, listed, reads)


def _facts(reservation: Reservation, known: Facts) -> Mapping[str, Any]:
    """The facts of an instance from when its reservation is absorbed."""
    uuid = reservation.instance_uuid
    facts = known.get(uuid, {"uuid": uuid, SINCE: reservation.created_at_s})
    return {**facts, TAKES: takes(reservation.resources)}


def _is_newer(twin: HostRecord, record: HostRecord) -> bool:
    """Whether another record of a node was measured later than this one."""
    if twin.uuid == record.uuid or twin.updated_at is None or record.updated_at is None:
        return False
    return twin.updated_at > record.updated_at
