"""Plans of runs: the requests with their times, and the faults.

A plan is made from a seed. Dropping deeds from it leaves a valid plan, which is how a failing one
is shrunk.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

BEGINS_S = 1.0
ENDS_S = 12.0
"""All deeds begin in between; everything that breaks is whole again a few seconds later."""
EVERYTHING = float("inf")

STORE_JUMPS_S = (-2.0, 0.5)
"""By how much the store's clock is set.

After a forward jump of more than five seconds reservations may outlive the marker of a move.
"""

When = Literal[
    "leases", "commits", "writes", "watches", "gets", "answers", "acknowledges", "releases",
    "asks", "rounds", "reads", "begins", "stores",
]  # fmt: skip
"""An event of workers that a deed can wait for, to occur at the worst moment."""

How = Literal["call", "cast", "nova"]
Then = Literal["build", "announce", "confirm", "release", "waver", "forget"]
"""``waver``: build, then confirm and release at once, while the host reports."""


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """Something that begins at a time, or ``when`` after that time something happens."""

    at_s: float
    when: When | None = None

    def __str__(self) -> str:
        facts = [
            f"{name}={value!r}"
            for name, value in msgspec.structs.asdict(self).items()
            if name != "at_s" and value is not None
        ]
        return f"{self.at_s:7.3f}  {type(self).__name__.lower():<8} {'  '.join(facts)}"


class Fault(Deed, frozen=True, kw_only=True):
    """Something breaks."""


class Ask(Deed, frozen=True, kw_only=True):
    """A caller wants hosts for instances, up to ``tries`` times."""

    request: str
    instances: tuple[str, ...]
    vcpus: int = 1
    cluster: str | None = None
    how: How = "call"
    remaining_s: float = 5.0
    tries: int = 2
    is_doubled: bool = False
    """Whether the message is sent twice, as by a client whose confirmation was lost."""
    hangs_up: bool = False
    """Whether the caller goes away after the last try, so that a late answer finds no queue."""
    priority: int = 0
    group: tuple[str, ...] = ()
    """The instances of its server group, no two of which may share a host."""
    is_pinned: bool = False
    """Whether its vCPUs want host CPUs of their own."""
    then: Then = "build"
    then_after_s: float = 0.1
    is_rescheduled: bool = False
    """Whether its instances are built on another host, of which no worker is told."""


class Report(Deed, frozen=True, kw_only=True):
    """A host reports its use; ``lists``: also its instances."""

    host: str
    lists: bool = True
    is_cast: bool = True


class Use(Deed, frozen=True, kw_only=True):
    """The use of a host by others changes, which is unknown until its next report."""

    host: str
    vcpus: int


class Delete(Deed, frozen=True, kw_only=True):
    """The instance that is longest on a host goes, and that is announced."""

    host: str


class Rename(Deed, frozen=True, kw_only=True):
    """A host is made again, with another uuid, and reports."""

    host: str


class Move(Deed, frozen=True, kw_only=True):
    """A host reports to another cluster from now on."""

    host: str
    cluster: str


class Remove(Deed, frozen=True, kw_only=True):
    """A host and its instances go; if it reports later, it is back."""

    host: str


class Crash(Fault, frozen=True, kw_only=True):
    """A worker is killed, and started again after a while."""

    worker: int
    for_s: float


class Drain(Fault, frozen=True, kw_only=True):
    """A worker gets SIGTERM, and is started again after a while."""

    worker: int
    for_s: float


class Pause(Fault, frozen=True, kw_only=True):
    """A worker stands still, and may lose its link meanwhile."""

    worker: int
    for_s: float
    loses_link: bool = False


class Cut(Fault, frozen=True, kw_only=True):
    """A worker cannot reach the store."""

    worker: int
    for_s: float


class Flaky(Fault, frozen=True, kw_only=True):
    """A worker's calls to the store, and the answers, are late or lost now and then."""

    worker: int
    for_s: float
    flakiness: float


class Jump(Fault, frozen=True, kw_only=True):
    """A worker's clock is set."""

    worker: int
    by_s: float


class Unlink(Fault, frozen=True, kw_only=True):
    """A worker loses its connection to the broker."""

    worker: int


class Block(Fault, frozen=True, kw_only=True):
    """The broker takes nothing from the workers."""

    for_s: float


class Nack(Fault, frozen=True, kw_only=True):
    """The broker nacks what workers publish: the node that has the queues is away."""

    for_s: float


class Restart(Fault, frozen=True, kw_only=True):
    """The broker restarts."""

    for_s: float


class Down(Fault, frozen=True, kw_only=True):
    """The store restarts, and may lose its last writes, or everything."""

    for_s: float
    loses_s: float = 0.0


class Failover(Fault, frozen=True, kw_only=True):
    """A replica takes over from the store. It lags, and its clock is not the same."""

    for_s: float
    loses_s: float
    by_s: float


class Clock(Fault, frozen=True, kw_only=True):
    """The store's clock is set."""

    by_s: float


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters that runs of all scenes have. Times in seconds."""

    workers: int = 2
    hold_timeout_s: float = 0.7
    slowness: float = 0.0
    """How often a call to the store, or its answer, takes long though nothing is wrong."""
    preempted: float = 0.0
    """How often a thread loses its turn between two statements."""
    preempted_in: str = ""
    """In which module of the worker, if not in all; there it takes longer."""


class Setting(Base, frozen=True, kw_only=True):
    """Parameters of a run in which workers place instances."""

    slots: int = 2
    clusters: dict[str, int]
    """How many hosts each has."""
    vcpus: int = 3
    """Of each host."""
    counts: bool = True
    """Whether the broker counts deliveries."""
    max_batch: int = 4
    acquire_timeout_s: float = 3.0
    reservation_ttl_s: float = 6.0
    wait_timeout_s: float = 0.0
    max_waiting: int = 2
    remember_answers_s: float = 5.0
    max_changes: int = 50_000
    max_tombstones: int = 20_000
    ordering: Literal["priority", "fifo"] = "priority"
    decides_in_s: float = 0.0
    """How long filters take."""
    has_cells: bool = False
    """Whether hosts report NUMA cells."""
    begun_s: float = 0.0
    """How long hosts list an instance before their use includes it."""

    @property
    def hosts(self) -> dict[str, str]:
        return {
            f"{cluster}{number}": cluster
            for cluster, count in self.clusters.items()
            for number in range(1, count + 1)
        }


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A run: ``seed`` throws how its deeds interleave."""

    seed: str
    setting: Any
    """Parameters of the scene: a :class:`Base`."""
    deeds: tuple[Deed, ...]

    def __str__(self) -> str:
        return "\n".join([str(self.setting), *map(str, self.deeds)])

    @property
    def is_calm(self) -> bool:
        """Whether nothing breaks and nothing is slow."""
        setting = self.setting
        return not (self.breaks() or setting.slowness or setting.preempted_in)

    def breaks(self) -> set[type[Deed]]:
        """The kinds of faults in it."""
        return {type(each) for each in self.deeds if isinstance(each, Fault)}

    def only(self, deeds: Sequence[Deed]) -> "Plan":
        return msgspec.structs.replace(self, deeds=tuple(deeds))


_CLUSTERS = (
    *({"a": 3}, {"a": 4}, {"a": 2, "b": 2}, {"a": 2, "b": 1}),
    *({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}),
)


def make(seed: str) -> Plan:
    rng = random.Random(seed)
    decides_in_s = rng.choice((0.0, 0.0, 0.0, 0.05, 0.2))
    faults = rng.choice((0, 1, 2, 3, 4, 5))
    setting = Setting(
        workers=rng.choice((2, 2, 3)),
        slots=rng.choice((1, 2, 3, 8)),
        clusters=rng.choice(_CLUSTERS),
        vcpus=rng.choice((2, 3, 4)),
        counts=rng.random() < 0.5,
        max_batch=rng.choice((1, 2, 8)),
        wait_timeout_s=0.0 if decides_in_s else rng.choice((0.0, 1.0, 3.0)),
        max_changes=rng.choice((50_000, 50_000, 12)),
        max_tombstones=rng.choice((20_000, 3)),
        ordering=rng.choice(("priority", "fifo")),
        decides_in_s=decides_in_s,
        has_cells=rng.random() < 0.3,
        begun_s=random.Random(f"{seed}: begun").choice((0.0, 0.0, 0.0, 0.5)),
        slowness=rng.choice((0.0, 0.1, 0.1)) if faults else 0.0,
        **preempted(rng, _MODULES),
    )
    asked, reports = _rescheduled(seed, _asked(rng, setting)), _reports(rng, setting)
    broken = _broken(rng, setting, faults)
    if any(isinstance(each, Down) and each.loses_s > 1.0 for each in broken):
        asked = [_named(each, setting) for each in asked]
        # Nor does a move know clusters whose names were lost and not reported again yet.
        reports = [each for each in reports if not isinstance(each, Move)]
    if setting.begun_s and any(isinstance(each, Move) for each in reports):
        # One that names a cluster does not find its reservation where its host has moved to.
        asked = [
            msgspec.structs.replace(each, cluster=None) if isinstance(each, Ask) else each
            for each in asked
        ]
    deeds = [*asked, *reports, *broken]
    return ordered(seed, setting, deeds)


def ordered(seed: str, setting: Base, deeds: Sequence[Deed]) -> Plan:
    """A plan with its deeds in their order."""
    return Plan(seed=seed, setting=setting, deeds=tuple(sorted(deeds, key=lambda each: each.at_s)))


_MODULES = (
    *(
        "service.requests.queue",
        "service.requests.lease",
        "service.state.replica",
        "service.state.waits",
    ),
    *(
        "service.state.intents",
        "service.requests.deciding",
        "service.requests.multi_cluster",
        "service.inventory.reports",
    ),
    *("service.state.writing", "rpc.slots", "rpc.serving.handling", "model.host_table", "waiters"),
)


def preempted(rng: random.Random, modules: Sequence[str]) -> dict[str, Any]:
    """Threads lose their turn nowhere, everywhere, or often in one module."""
    return rng.choice(
        (
            *({}, {}, {"preempted": 0.01}, {"preempted": 0.05}),
            *({"preempted": 0.3, "preempted_in": rng.choice(modules)},) * 2,
        )
    )


def _asked(rng: random.Random, setting: Setting) -> list[Deed]:
    """Requests come in bursts, for there is no contention without."""
    bursts = [time_of(rng) for _ in range(rng.choice((1, 2, 3)))]
    asks: list[Ask] = []
    for number in range(1, rng.randint(7, 13)):
        count = rng.choice((1, 2, 3) if len(setting.clusters) > 2 else (1, 1, 2, 3))
        first = Ask(
            at_s=_near(rng, rng.choice(bursts)),
            request=f"r{number}",
            instances=tuple(f"i{number}{letter}" for letter in "abc"[:count]),
            vcpus=rng.choice((1, 1, 2)),
            cluster=rng.choice((None, None, None, rng.choice([*setting.clusters]))),
            how=rng.choice(("call", "nova", "cast")),
            remaining_s=rng.choice((0.5, 2.0, 5.0)),
            tries=rng.choice((1, 2, 3)),
            is_doubled=rng.random() < 0.2,
            hangs_up=rng.random() < 0.1,
            priority=rng.choice((0, 0, 0, 50, -50)),
            is_pinned=setting.has_cells and rng.random() < 0.5,
            then=rng.choice(("build", "announce", "confirm", "release", "waver", "forget")),
            then_after_s=rng.choice((0.01, 0.3, 2.0)),
        )
        asks.append(first)
        if rng.random() < 0.25:
            again_s = _near(rng, first.at_s)
            asks.append(msgspec.structs.replace(first, at_s=again_s, request=f"r{number}'"))
    return _grouped(rng, asks)


def _rescheduled(seed: str, asks: Sequence[Deed]) -> list[Deed]:
    """Some builds fail on the chosen host, and their conductors take an alternate."""
    rng = random.Random(f"{seed}: rescheduled")
    return [
        msgspec.structs.replace(each, is_rescheduled=True)
        if isinstance(each, Ask) and not each.is_pinned and rng.random() < 0.1
        else each
        for each in asks
    ]


def _grouped(rng: random.Random, asks: Sequence[Ask]) -> list[Deed]:
    """Now and then some requests are of one server group."""
    if rng.random() < 0.7:
        return list(asks)
    some = {ask.instances for ask in asks if rng.random() < 0.5}
    group = tuple(sorted(instance for instances in some for instance in instances))
    return [
        msgspec.structs.replace(ask, group=group) if ask.instances in some else ask for ask in asks
    ]


def _named(ask: Deed, setting: Setting) -> Deed:
    """The request, for a certain cluster.

    While a fleet comes back after a total loss, cluster by cluster, requests that name no cluster
    are not guarded until all workers know of the second (docs/decisions/0019).
    """
    if not isinstance(ask, Ask) or ask.cluster is not None:
        return ask
    clusters = sorted(setting.clusters)
    return msgspec.structs.replace(ask, cluster=clusters[len(ask.instances) % len(clusters)])


def _reports(rng: random.Random, setting: Setting) -> list[Deed]:
    """Hosts of one plan change their clusters or their uuids.

    One that does both within a moment may be in two clusters until it reports again.
    """
    hosts, does_move = list(setting.hosts), rng.random() < 0.5
    deeds: list[Deed] = []
    for _ in range(rng.randint(4, 10)):
        at_s, host = time_of(rng), rng.choice(hosts)
        report = Report(
            at_s=at_s + 0.01,
            when=rng.choice((None, None, "leases", "commits", "writes", "releases")),
            host=host,
            lists=rng.random() < 0.7,
            is_cast=rng.random() < 0.7,
        )
        changes: list[Deed] = [
            Use(at_s=at_s, host=host, vcpus=rng.choice((-1, 1, 1, 2))),
            Use(at_s=at_s, host=host, vcpus=rng.choice((-1, 1, 1, 2))),
            Delete(at_s=at_s, host=host),
            Delete(at_s=at_s, host=host),
            Remove(host=host, **_when(rng, "leases", "commits")),
        ]
        moment = _when(rng, "leases", "commits")
        move = Move(host=host, cluster=rng.choice(sorted(setting.clusters)), **moment)
        changes.append(move if does_move else Rename(host=host, **moment))
        deeds += [report, *rng.choices(changes, k=rng.choice((0, 1)))]
    return deeds


def _broken(rng: random.Random, setting: Setting, count: int) -> list[Deed]:
    """Any faults; or only such of one kind, for which less is forgiven."""
    faults = _FAULTS if rng.random() < 0.7 else (rng.choice(_FAULTS),)
    return [rng.choice(faults)(rng, setting) for _ in range(count)]


def _crash(rng: random.Random, setting: Setting) -> Deed:
    when = _when(rng, "leases", "commits", "writes", "gets", "answers", "acknowledges")
    return Crash(worker=_worker(rng, setting), for_s=_while(rng), **when)


def _drain(rng: random.Random, setting: Setting) -> Deed:
    when = _when(rng, "leases", "watches", "watches", "gets")
    return Drain(worker=_worker(rng, setting), for_s=_while(rng), **when)


def _pause(rng: random.Random, setting: Setting) -> Deed:
    when = _when(rng, "leases", "leases", "commits", "gets")
    loses_link = rng.random() < 0.5
    worker = _worker(rng, setting)
    return Pause(worker=worker, for_s=_while(rng), loses_link=loses_link, **when)


def _cut(rng: random.Random, setting: Setting) -> Deed:
    when = _when(rng, "leases", "commits", "writes")
    return Cut(worker=_worker(rng, setting), for_s=_while(rng), **when)


def _flaky(rng: random.Random, setting: Setting) -> Deed:
    when = _when(rng, "leases", "gets")
    flakiness = rng.choice((0.1, 0.3, 0.6))
    worker = _worker(rng, setting)
    return Flaky(worker=worker, for_s=2 * _while(rng), flakiness=flakiness, **when)


def _jump(rng: random.Random, setting: Setting) -> Deed:
    by_s = rng.choice((-3600.0, -2.0, 5.0, 3600.0))
    return Jump(worker=_worker(rng, setting), by_s=by_s, **_when(rng, "leases"))


def _unlink(rng: random.Random, setting: Setting) -> Deed:
    when = _when(rng, "gets", "commits", "answers", "acknowledges")
    return Unlink(worker=_worker(rng, setting), **when)


def _block(rng: random.Random, setting: Setting) -> Deed:
    return Block(for_s=_while(rng), **_when(rng, "gets", "commits"))


def _nack(rng: random.Random, setting: Setting) -> Deed:
    return Nack(for_s=_while(rng), **_when(rng, "gets", "commits"))


def _restart(rng: random.Random, setting: Setting) -> Deed:
    return Restart(for_s=_while(rng), **_when(rng, "gets", "commits"))


def _down(rng: random.Random, setting: Setting) -> Deed:
    loses_s = rng.choice((0.0, 0.1, 2.0, EVERYTHING))
    return Down(for_s=_while(rng), loses_s=loses_s, **_when(rng, "leases", "commits"))


def _failover(rng: random.Random, setting: Setting) -> Deed:
    return Failover(
        for_s=rng.choice((0.05, 0.5)),
        loses_s=rng.choice((0.05, 0.5, 1.0)),
        by_s=rng.choice((-0.05, 0.0, 0.05)),
        **_when(rng, "leases", "commits", "releases"),
    )


def _clock(rng: random.Random, setting: Setting) -> Deed:
    return Clock(by_s=rng.choice(STORE_JUMPS_S), **_when(rng, "leases", "commits"))


_FAULTS: tuple[Callable[[random.Random, Setting], Deed], ...] = (
    *(_crash, _crash, _pause, _pause, _pause, _flaky, _flaky, _cut, _down, _down),
    *(_drain, _drain, _jump, _unlink, _block, _nack, _restart, _failover, _failover, _clock),
)


def broken(
    rng: random.Random, setting: Base, count: int, moments: Sequence[When]
) -> Sequence[Fault]:
    """So many faults of workers and of the store, which loses nothing."""
    faults: list[Fault] = []
    for _ in range(count):
        worker, for_s, when = _worker(rng, setting), _while(rng), _when(rng, *moments)
        fault = rng.choice((Crash, Pause, Pause, Pause, Cut, Flaky, Flaky, Jump, Down, Clock))
        facts: dict[type[Fault], dict[str, Any]] = {
            Flaky: {"worker": worker, "for_s": 2 * for_s, "flakiness": rng.choice((0.1, 0.3, 0.6))},
            Jump: {"worker": worker, "by_s": rng.choice((-3600.0, -2.0, 5.0, 3600.0))},
            Down: {"for_s": for_s},
            Clock: {"by_s": rng.choice(STORE_JUMPS_S)},
        }
        faults.append(fault(**facts.get(fault, {"worker": worker, "for_s": for_s}), **when))
    return faults


def _when(rng: random.Random, *moments: When) -> dict[str, Any]:
    """A time, and mostly a moment to wait for."""
    return {"at_s": time_of(rng), "when": rng.choice((None, *moments))}


def _worker(rng: random.Random, setting: Base) -> int:
    return rng.randrange(setting.workers)


def _while(rng: random.Random) -> float:
    return rng.choice((0.1, 0.5, 1.5, 3.0))


def time_of(rng: random.Random) -> float:
    return round(rng.uniform(BEGINS_S, ENDS_S), 3)


def _near(rng: random.Random, when_s: float) -> float:
    return round(min(ENDS_S, max(BEGINS_S, when_s + rng.uniform(-0.05, 0.2))), 3)
