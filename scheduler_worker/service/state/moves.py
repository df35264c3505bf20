"""Moves hosts between clusters, with all reservations on them.

Two clusters may lie on two servers, so no single write can take a host out of one and put it into
the other. A move is a sequence of guarded writes, each in one scope; no worker can reserve the
host between the first and the last that concern it:

1. **begin**: record the move, in a scope of its own. A host has at most one unfinished move, so a
   worker that wants to move it elsewhere has to finish this one first.
2. **leave**: put a *departure* in place of the host in its old cluster. From then on no commit
   there can reserve it, since commits are guarded by the host's record.
3. **pack**: move its reservations, remembered answers, instances, and which announcements of these
   were read, into the departure.
4. **arrive**: write host, reservations and all else to the new cluster, in one transaction that
   stores the move's id there. So it happens once, however late it is tried again.
5. **mark** the departure as arrived, read all clusters again, **drop** the departure if it is still
   as it was marked, then **end** the move. See :meth:`Moves._drop` for why it takes two writes.

Each step is planned on what its cluster contains. Then the move is checked to be unfinished, and
the step is written if nothing has changed since. So any worker may take any step at any time. If a
worker dies during a move, another one finishes it:

* with the next report of that host;
* with a request or a release that concerns its reservations;
* after :data:`ABANDONED_AFTER_S`, with the next report of any host.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs

from scheduler_worker import events
from scheduler_worker.errors import Conflict
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.moves import Departure, Move
from scheduler_worker.observer import Observer
from scheduler_worker.ports import ABSENT, Guard, Put, Transaction
from scheduler_worker.service.state import records, reservations
from scheduler_worker.service.state.replica import ClusterReplica, Fleet, RecordKind, Replica
from scheduler_worker.unique import unique_hex

SCOPE = "@moves"

ABANDONED_AFTER_S = 2.0
"""A move takes milliseconds; an older one was abandoned, its worker being dead or stalled."""
REMEMBERED_S = 600.0
"""How long the record of a move lasts that left nothing else, and a finished move is recognised."""
_ROUNDS = 16
_CHUNK = 500
"""Hosts moved by one sequence of writes."""

NewHosts = Mapping[str, HostRecord]
"""Host uuid -> its record, used for hosts that no cluster has yet."""


class _OpenMove(NamedTuple):
    """An unfinished move, and the version of its record."""

    move: Move
    version: int


_OpenMoves = Mapping[str, _OpenMove]
"""By the host's uuid."""
_Planner = Callable[[ClusterReplica, Move, float], Transaction | None]


class _MovingHosts:
    """What all clusters contain of the hosts that move."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        """Hosts still in a cluster that they have to leave."""
        self.departures: dict[str, list[Departure]] = {}
        self.finished: set[str] = set()
        """Ids of the moves whose hosts have arrived."""

    def add(self, replica: ClusterReplica, moves: _OpenMoves) -> None:
        with replica.lock:
            self.finished.update(replica.finished)
            for uuid, (move, _) in moves.items():
                if replica.scope != move.to and replica.table.row_of(uuid) is not None:
                    self.held.add(uuid)
                if uuid in replica.departures:
                    self.departures.setdefault(uuid, []).append(replica.departures[uuid])

    def arriving(self, uuid: str) -> list[Departure]:
        """The departures of a host whose moves have not arrived."""
        return [
            departure
            for departure in self.departures.get(uuid, ())
            if departure.move.id not in self.finished
        ]


class Moves:
    """Moves hosts between the clusters of a fleet; safe for threads and any number of workers.

    Remembered answers move along and expire ``remember_answers_s`` after their reservations were
    made.
    """

    def __init__(self, fleet: Fleet, observer: Observer, *, remember_answers_s: float) -> None:
        self._fleet = fleet
        self._observer = observer
        self._remember_answers_s = remember_answers_s
        self._moves = RecordKind(records.MOVE, records.read_move)
        """The unfinished ones, by host uuid."""
        self._replica = Replica(SCOPE, self._moves)

    def bring(self, to: str, hosts: NewHosts) -> None:
        """Make ``to`` the only cluster of these hosts, and move what other clusters have of them.

        A host that no cluster has starts with the given record. Another worker may have moved a
        host on by the time this returns.

        Raises:
            Conflict: others moved the same hosts again and again.
            StateUnavailable: the store cannot be reached; the next worker continues.
        """
        for chunk in _chunks(hosts):
            remaining: NewHosts = {uuid: hosts[uuid] for uuid in chunk}
            # A host that another move leads elsewhere is taken there first, and then begins again.
            for _ in range(_ROUNDS):
                ours = self._begin(to, remaining)
                self._finish(remaining, remaining)
                remaining = {uuid: host for uuid, host in remaining.items() if uuid not in ours}
                if not remaining:
                    break
            else:
                raise _conflict(remaining)

    def finish(self, *, hosts: Collection[str] = (), instances: Collection[str] = ()) -> bool:
        """Finish the moves of these host names, those with these instances, and abandoned ones.

        It finds them in what this process knows of the clusters; returns whether there were any.
        Raises as :meth:`bring` does.
        """
        uuids = {
            uuid
            for replica in self._fleet.clusters()
            if replica.departures
            for uuid in _concerned(replica, set(hosts), instances)
        }
        for chunk in _chunks(sorted(uuids)):
            self._restore(chunk)
            self._finish(chunk, {})
        return bool(uuids)

    # The steps

    def _begin(self, to: str, uuids: Collection[str]) -> set[str]:
        """Record the moves; returns the hosts whose open move leads there. Others are to finish."""
        moves = [Move(id=unique_hex(), host_uuid=uuid, to=to) for uuid in uuids]
        return {uuid for uuid, (move, _) in self._record(moves, uuids).items() if move.to == to}

    def _restore(self, uuids: Collection[str]) -> None:
        """Record those moves again of which the store has lost all but the departure."""
        lost = set(uuids) - self._open_moves(uuids).keys()
        orphans = {}
        for replica in self._fleet.clusters() if lost else ():
            with replica.reading(self._fleet.store):
                known = replica.departures.items()
                orphans.update({uuid: departure.move for uuid, departure in known if uuid in lost})
        if orphans:
            self._record(orphans.values(), orphans)

    def _record(self, moves: Iterable[Move], uuids: Collection[str]) -> _OpenMoves:
        with self._replica.reading(self._fleet.store) as now_s:
            new = [
                self._replica.replacing(records.put_move(move, now_s + REMEMBERED_S))
                for move in moves
                if move.host_uuid not in self._moves
            ]
            if new:
                written = self._fleet.store.write(SCOPE, new)
                self._replica.apply_written(new, written, now_s)
                # Another worker recorded a move of the same host in between; its record counts.
                if not all(written.applied):
                    self._replica.refresh(self._fleet.store)
            return self._known(uuids)

    def _finish(self, uuids: Collection[str], new_hosts: NewHosts) -> None:
        for _ in range(_ROUNDS):
            moves = self._open_moves(uuids)
            if not moves:
                return
            self._advance(moves, new_hosts)
        raise _conflict(uuids)

    def _advance(self, moves: _OpenMoves, new_hosts: NewHosts) -> None:
        """Take every step that can be taken now."""
        self._fleet.refresh_globals()
        self._fleet.refresh()
        targets = {move.to for move, _ in moves.values()}
        # The targets first: a host that has arrived must not leave again.
        scopes = sorted(
            targets | self._places_of(moves, new_hosts),
            key=lambda each: (each not in targets, each),
        )
        clusters = [self._fleet.cluster(scope) for scope in scopes]
        view = _MovingHosts()
        for replica in clusters:
            self._leave(replica, moves, new_hosts)
            view.add(replica, moves)
        for replica in clusters[: len(targets)]:
            self._write(replica, moves, partial(self._plan_arrival, view=view, new_hosts=new_hosts))
            view.finished.update(replica.finished)
        departing = [each for each in clusters if not moves.keys().isdisjoint(each.departures)]
        if departing:
            self._drop(departing, clusters, moves, view)
        self._end([
            standing
            for uuid, standing in moves.items()
            if standing.move.id in view.finished
            and not any(uuid in replica.departures for replica in clusters)
        ])  # fmt: skip

    def _places_of(self, uuids: Collection[str], new_hosts: NewHosts) -> set[str]:
        """The clusters with anything of these hosts, and those to which they left before."""
        names = {new_hosts[uuid].host for uuid in uuids if uuid in new_hosts}
        scopes = self._fleet.places.of(names.union(uuids))
        left = [self._fleet.cluster(scope).departures for scope in scopes]
        departures = (some.get(uuid) for some in left for uuid in uuids)
        return scopes.union(departure.move.to for departure in departures if departure is not None)

    def _leave(self, replica: ClusterReplica, moves: _OpenMoves, new_hosts: NewHosts) -> None:
        self._write(replica, moves, partial(self._plan_leave, new_hosts=new_hosts))
        if any(not departure.is_packed for departure in replica.departures.values()):
            packed = self._write(replica, moves, _plan_pack)
            departures = [replica.departures[uuid] for uuid in packed if uuid in replica.departures]
            if count := sum(len(each.reservations) for each in departures):
                self._observer.count(events.RESERVATIONS_ENDED, "moved", by=count)

    def _drop(
        self,
        left: Sequence[ClusterReplica],
        clusters: Iterable[ClusterReplica],
        moves: _OpenMoves,
        view: _MovingHosts,
    ) -> None:
        """Drop the departures of hosts that have arrived.

        A server that fails over forgets its last writes, an arrival that was seen among them; then
        the departure is all that is left of the host and its reservations. So a departure is marked
        after the arrival was seen, the arrival is read once more, and only what is still as it was
        marked is dropped: a server that forgets an arrival forgets the younger mark as well.
        """
        for replica in left:
            self._write(replica, moves, partial(_plan_mark, view=view))
        # The versions as marked: a mark that is written again is another one.
        marked = {replica.scope: _marked(replica, moves) for replica in left}
        # What was seen before the mark proves nothing any more.
        view.finished = set()
        for replica in clusters:
            with replica.reading(self._fleet.store):
                view.finished.update(replica.finished)
        for replica in left:
            plan = partial(_plan_drop, view=view, marked=marked[replica.scope])
            self._write(replica, moves, plan)

    def _end(self, ended: Sequence[_OpenMove]) -> None:
        if ended:
            self._fleet.store.write(
                SCOPE,
                [
                    Transaction([records.gone(key)], [Guard(key, version)])
                    for (move, version) in ended
                    for key in [records.MOVE + move.host_uuid]
                ],
            )

    def _open_moves(self, uuids: Iterable[str]) -> _OpenMoves:
        with self._replica.reading(self._fleet.store):
            return self._known(uuids)

    def _known(self, uuids: Iterable[str]) -> _OpenMoves:
        return {
            uuid: _OpenMove(self._moves[uuid], self._replica.version(records.MOVE + uuid))
            for uuid in uuids
            if uuid in self._moves
        }

    def _write(self, replica: ClusterReplica, moves: _OpenMoves, plan: _Planner) -> list[str]:
        """Write a step of those moves that are unfinished; returns the hosts it was written for."""
        store = self._fleet.store
        with replica.reading(store) as now_s:
            plans = {
                uuid: planned
                for uuid, (move, _) in moves.items()
                if (planned := plan(replica, move, now_s))
            }
            # In this order: a move that is unfinished now was unfinished when the cluster was read.
            current = self._open_moves(plans) if plans else {}
            plans = {uuid: each for uuid, each in plans.items() if current.get(uuid) == moves[uuid]}
            if not plans:
                return []
            transactions = list(plans.values())
            written = store.write(replica.scope, transactions)
            replica.apply_written(transactions, written, now_s)
        return [uuid for uuid, applied in zip(plans, written.applied, strict=True) if applied]

    # Plans of the steps; the caller holds the replica's lock

    def _plan_leave(
        self, replica: ClusterReplica, move: Move, now_s: float, *, new_hosts: NewHosts
    ) -> Transaction | None:
        """Plan a departure in place of the host, or of instances that wait for its first report."""
        uuid = move.host_uuid
        has_arrived = move.id in self._fleet.cluster(move.to).finished
        if replica.scope == move.to or has_arrived or uuid in replica.departures:
            return None
        departure = Departure(move=move, since_s=now_s)
        row = replica.table.row_of(uuid)
        # Guarded by the host's record: a commit that chose it meanwhile, or this step, is refused.
        if row is not None:
            key = records.HOST + uuid
            puts = [
                records.gone(key),
                records.put_departure(structs.replace(departure, host=replica.table.records[row])),
            ]
            return Transaction(puts, replica.guards([key, records.DEPARTURE + move.host_uuid]))
        host = new_hosts[uuid].host if uuid in new_hosts else None
        if (
            host is None
            or replica.table.find(host)
            or not any(map(replica.version, records.of_name(host)))
        ):
            return None
        return _packed(replica, departure, host)

    def _plan_arrival(
        self,
        replica: ClusterReplica,
        move: Move,
        now_s: float,
        *,
        view: _MovingHosts,
        new_hosts: NewHosts,
    ) -> Transaction | None:
        """Plan the arrival of the host with its departures; records here are newer, and stay."""
        uuid = move.host_uuid
        # A host may have left several clusters, where moves followed one another.
        brought = view.arriving(uuid)
        if (
            replica.scope != move.to
            or move.id in replica.finished
            or uuid in view.held
            or not all(departure.is_packed for departure in brought)
        ):
            return None
        row = replica.table.row_of(uuid)
        record = None
        if row is None:
            record = next((each.host for each in brought if each.host), new_hosts.get(uuid))
            if record is None:
                return None
        # In the same transaction as the host: so it arrives once, whoever tries again.
        until_s = now_s + REMEMBERED_S
        puts = [records.put_key(records.FINISHED + move.id, until_s)]
        # A node created anew is there already: it counts what comes along under the former uuid.
        anew = replica.table.find(record.host, record.nodename) if record is not None else []
        if record is not None and not anew:
            puts.append(records.put_host(structs.replace(record, cluster=move.to)))
            # Whoever brings the node under another uuid meanwhile writes the same key.
            puts.append(records.put_key(f"{records.NODE}{record.host}/{record.nodename}", until_s))
        puts += self._reserved(replica, brought, now_s)
        host = record.host if record is not None else replica.table.records[row or 0].host
        known = {key: dict(facts) for key, facts in replica.table.reported_instances(host).items()}
        instances = {key: facts for each in brought for key, facts in each.instances.items()}
        if not instances.keys() <= known.keys():
            puts.append(records.put_instances(host, {**instances, **known}))
        read = {key: at_s for each in brought for key, at_s in each.announcements.items()}
        if read:
            read |= replica.announcements.get(host, {})
            puts.append(records.put_read(host, read, until_s))
        if uuid in replica.departures:
            puts.append(records.gone(records.DEPARTURE + uuid))
        # Guards on what is read, too: a report that comes in between is planned with again.
        keys = {put.key for put in puts} | {records.HOST + uuid, records.INSTANCES + host}
        keys |= {records.HOST + departure.uuid for departure in anew}
        return Transaction(puts, replica.guards(sorted(keys)))

    def _reserved(
        self, replica: ClusterReplica, brought: Iterable[Departure], now_s: float
    ) -> list[Put]:
        puts = {}
        for departure in brought:
            for reservation in departure.reservations:
                puts[reservation.id] = records.put_reservation(reservation)
            for answer in departure.answers:
                until_s = answer.created_at_s + self._remember_answers_s
                if until_s > now_s:
                    puts[answer.instance_uuid] = records.put_answer(answer, until_s)
        # A record that is here already is newer than what the departure has.
        return [put for put in puts.values() if replica.version(put.key) == ABSENT]


def _plan_pack(replica: ClusterReplica, move: Move, _: float) -> Transaction | None:
    departure = replica.departures.get(move.host_uuid)
    if departure is None or departure.is_packed or departure.host is None:
        return None
    return _packed(replica, departure, departure.host.host)


def _packed(replica: ClusterReplica, departure: Departure, host: str) -> Transaction:
    """Plan to move reservations, answers and instances of the host into its departure."""
    uuid = departure.move.host_uuid
    reserved = reservations.on_host(replica, uuid)
    answers = [answer for answer in replica.answers.values() if answer.host_uuid == uuid]
    instances = replica.table.reported_instances(host)
    packed = structs.replace(
        departure,
        is_packed=True,
        reservations=tuple(reserved),
        answers=tuple(answers),
        instances={key: dict(facts) for key, facts in instances.items()},
        announcements=replica.announcements.get(host, {}),
    )
    keys = [records.RESERVATION + reservation.id for reservation in reserved]
    keys += [records.ANSWER + answer.instance_uuid for answer in answers]
    # A reservation that is absorbed or released meanwhile must not travel on.
    leaving, of_name = records.DEPARTURE + departure.move.host_uuid, records.of_name(host)
    guards = replica.guards((*keys, *of_name, leaving))
    # An empty list goes, too; another node of that name needs what there is.
    if not replica.table.find(host):
        keys += filter(replica.version, of_name)
    return Transaction([records.put_departure(packed), *map(records.gone, keys)], guards)


def _plan_mark(
    replica: ClusterReplica, move: Move, _: float, *, view: _MovingHosts
) -> Transaction | None:
    departure = replica.departures.get(move.host_uuid)
    if departure is None or departure.has_arrived or not _has_arrived(departure, move, view):
        return None
    marked = structs.replace(departure, has_arrived=True)
    return replica.replacing(records.put_departure(marked))


def _marked(replica: ClusterReplica, uuids: Iterable[str]) -> dict[str, int]:
    """The versions of the departures that are marked as arrived, by their hosts' uuids."""
    with replica.lock:
        return {
            uuid: replica.version(records.DEPARTURE + uuid)
            for uuid in uuids
            if uuid in replica.departures and replica.departures[uuid].has_arrived
        }


def _plan_drop(
    replica: ClusterReplica, move: Move, _: float, *, view: _MovingHosts, marked: Mapping[str, int]
) -> Transaction | None:
    departure = replica.departures.get(move.host_uuid)
    if departure is None or not _has_arrived(departure, move, view):
        return None
    key = records.DEPARTURE + move.host_uuid
    if replica.version(key) != marked.get(move.host_uuid):
        return None
    return replica.replacing(records.gone(key))


def _has_arrived(departure: Departure, move: Move, view: _MovingHosts) -> bool:
    """Whether the host of a departure is in its new cluster, or in that of a later move."""
    return not view.finished.isdisjoint({move.id, departure.move.id})


def _concerned(
    replica: ClusterReplica, hosts: Collection[str], instances: Iterable[str]
) -> set[str]:
    """The uuids of moving hosts that were asked for or whose moves are abandoned."""
    with replica.lock:
        concerned = {uuid for instance in instances for uuid in replica.departing(instance)}
        for uuid, departure in replica.departures.items():
            is_old = departure.since_s + ABANDONED_AFTER_S < replica.table.now_s
            named = departure.host is not None and departure.host.host in hosts
            # Only its first report can finish the move of a host that was nowhere.
            if departure.host is not None and (named or is_old):
                concerned.add(uuid)
        return concerned


def _chunks(uuids: Iterable[str]) -> Iterator[list[str]]:
    some = list(uuids)
    for start in range(0, len(some), _CHUNK):
        yield some[start : start + _CHUNK]


def _conflict(uuids: Iterable[str]) -> Conflict:
    shown = ", ".join(sorted(uuids)[:3])
    return Conflict(f"Other workers keep moving the same hosts ({shown}, ...); try again.")
