"""What shall happen in a run: who asks for what and when, and what breaks meanwhile.

A plan is made of a seed. Dropping deeds from it leaves a plan, and that is how a failing one gets
shorter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

BEGINS_S = 1.0
ENDS_S = 12.0
"""All deeds begin in between; everything that breaks is whole again a few seconds later."""
EVERYTHING = float("inf")

When = Literal["holds", "commits", "writes", "is given", "tells", "is done with"]
"""Something that the history says of workers; a deed can wait for it, at the worst of moments."""

How = Literal["call", "cast", "nova"]
Then = Literal["build", "announce", "confirm", "release", "waver", "forget"]
"""``waver``: build, then confirm and release at once."""


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


class Ask(Deed, frozen=True, kw_only=True):
    """A caller wants hosts for instances, up to ``tries`` times."""

    request: str
    instances: tuple[str, ...]
    vcpus: int = 1
    cluster: str | None = None
    how: How = "call"
    patience_s: float = 5.0
    tries: int = 2
    is_doubled: bool = False
    """The message is sent twice, as by a client whose confirmation was lost."""
    hangs_up: bool = False
    """The caller goes away after the last try, so that a late answer finds nobody."""
    priority: int = 0
    then: Then = "build"
    then_after_s: float = 0.1


class Report(Deed, frozen=True, kw_only=True):
    """A host tells its use; ``lists`` its instances, too."""

    host: str
    lists: bool = True
    is_cast: bool = True


class Use(Deed, frozen=True, kw_only=True):
    """What others use of a host changes, unknown to anybody until it reports."""

    host: str
    vcpus: int


class Delete(Deed, frozen=True, kw_only=True):
    """The instance that is longest on a host goes, and that is announced."""

    host: str


class Crash(Deed, frozen=True, kw_only=True):
    """A worker is killed, and started again after a while."""

    worker: int
    for_s: float


class Drain(Deed, frozen=True, kw_only=True):
    """A worker is told to stop, and started again after a while."""

    worker: int
    for_s: float


class Pause(Deed, frozen=True, kw_only=True):
    """A worker stands still, and may lose its link meanwhile."""

    worker: int
    for_s: float
    loses_link: bool = False


class Cut(Deed, frozen=True, kw_only=True):
    """A worker cannot reach the store."""

    worker: int
    for_s: float


class Flaky(Deed, frozen=True, kw_only=True):
    """A worker's calls to the store, and the answers, are late or lost now and then."""

    worker: int
    for_s: float
    flakiness: float


class Jump(Deed, frozen=True, kw_only=True):
    """A worker's clock is set."""

    worker: int
    by_s: float


class Unlink(Deed, frozen=True, kw_only=True):
    """A worker loses its connection to the broker."""

    worker: int


class Block(Deed, frozen=True, kw_only=True):
    """The broker takes nothing from the workers."""

    for_s: float


class Restart(Deed, frozen=True, kw_only=True):
    """The broker restarts."""

    for_s: float


class Down(Deed, frozen=True, kw_only=True):
    """The store restarts, and may lose what it wrote last, or everything."""

    for_s: float
    loses_s: float = 0.0


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What stays as it is during a run. Times in seconds."""

    workers: int = 2
    slots: int = 2
    clusters: dict[str, int]
    """How many hosts each has."""
    vcpus: int = 3
    """Of each host."""
    counts: bool = True
    """Whether the broker counts deliveries."""
    max_batch: int = 4
    hold_timeout_s: float = 0.7
    acquire_timeout_s: float = 3.0
    promise_ttl_s: float = 6.0
    wait_timeout_s: float = 0.0
    max_waiting: int = 2
    remember_answers_s: float = 5.0

    @property
    def hosts(self) -> dict[str, str]:
        """Host name -> its cluster."""
        return {
            f"{cluster}{number}": cluster
            for cluster, count in self.clusters.items()
            for number in range(1, count + 1)
        }


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A run: ``seed`` throws how its deeds interleave."""

    seed: str
    setting: Setting
    deeds: tuple[Deed, ...]

    def __str__(self) -> str:
        return "\n".join([str(self.setting), *map(str, self.deeds)])

    def only(self, deeds: Sequence[Deed]) -> Plan:
        return msgspec.structs.replace(self, deeds=tuple(deeds))


_CLUSTERS = ({"a": 3}, {"a": 4}, {"a": 2, "b": 2}, {"a": 2, "b": 1}, {"a": 1, "b": 1, "c": 1})


def make(seed: str) -> Plan:
    """The plan of a seed."""
    dice = random.Random(seed)
    setting = Setting(
        workers=dice.choice((2, 2, 3)),
        slots=dice.choice((1, 2, 3)),
        clusters=dice.choice(_CLUSTERS),
        vcpus=dice.choice((2, 3, 4)),
        counts=dice.random() < 0.5,
        max_batch=dice.choice((1, 2, 8)),
        wait_timeout_s=dice.choice((0.0, 1.0, 3.0)),
    )
    asked, told, broken = _asked(dice, setting), _told(dice, setting), _broken(dice, setting)
    if any(isinstance(each, Down) and each.loses_s > 1.0 for each in broken):
        asked = [_named(each, setting) for each in asked]
    deeds = [*asked, *told, *broken]
    return Plan(seed=seed, setting=setting, deeds=tuple(sorted(deeds, key=lambda each: each.at_s)))


def _asked(dice: random.Random, setting: Setting) -> list[Deed]:
    """Requests come in bursts, for there is no contention without."""
    bursts = [_time(dice) for _ in range(dice.choice((1, 2, 3)))]
    asks: list[Ask] = []
    for number in range(1, dice.randint(7, 13)):
        count = dice.choice((1, 1, 1, 2, 3))
        first = Ask(
            at_s=_near(dice, dice.choice(bursts)),
            request=f"r{number}",
            instances=tuple(f"i{number}{letter}" for letter in "abc"[:count]),
            vcpus=dice.choice((1, 1, 2)),
            cluster=dice.choice((None, None, *setting.clusters)),
            how=dice.choice(("call", "nova", "cast")),
            patience_s=dice.choice((0.5, 2.0, 5.0)),
            tries=dice.choice((1, 2, 3)),
            is_doubled=dice.random() < 0.2,
            hangs_up=dice.random() < 0.1,
            priority=dice.choice((0, 0, 0, 50, -50)),
            then=dice.choice(("build", "announce", "confirm", "release", "waver", "forget")),
            then_after_s=dice.choice((0.01, 0.3, 2.0)),
        )
        asks.append(first)
        if dice.random() < 0.25:
            again_s = _near(dice, first.at_s)
            asks.append(msgspec.structs.replace(first, at_s=again_s, request=f"r{number}'"))
    return list(asks)


def _named(ask: Deed, setting: Setting) -> Deed:
    """The request, for a certain cluster.

    A fleet that comes back from nothing, one cluster after the other, does not guard those that
    name none until everybody has heard of the second (docs/decisions/0019).
    """
    if not isinstance(ask, Ask) or ask.cluster is not None:
        return ask
    clusters = sorted(setting.clusters)
    return msgspec.structs.replace(ask, cluster=clusters[len(ask.instances) % len(clusters)])


def _told(dice: random.Random, setting: Setting) -> list[Deed]:
    hosts = list(setting.hosts)
    deeds: list[Deed] = []
    for _ in range(dice.randint(4, 10)):
        at_s, host = _time(dice), dice.choice(hosts)
        report = Report(
            at_s=at_s + 0.01,
            when=dice.choice((None, None, "holds")),
            host=host,
            lists=dice.random() < 0.7,
            is_cast=dice.random() < 0.7,
        )
        change: list[Deed] = [
            Use(at_s=at_s, host=host, vcpus=dice.choice((-1, 1, 1, 2))),
            Delete(at_s=at_s, host=host),
        ]
        deeds += [report, *dice.choices(change, k=dice.choice((0, 1)))]
    return deeds


def _broken(dice: random.Random, setting: Setting) -> list[Deed]:
    return [dice.choice(_FAULTS)(dice, setting) for _ in range(dice.randint(0, 5))]


def _crash(dice: random.Random, setting: Setting) -> Deed:
    when = _when(dice, "holds", "commits", "writes", "is given", "tells", "is done with")
    return Crash(worker=_worker(dice, setting), for_s=_while(dice), **when)


def _drain(dice: random.Random, setting: Setting) -> Deed:
    when = _when(dice, "holds", "is given")
    return Drain(worker=_worker(dice, setting), for_s=_while(dice), **when)


def _pause(dice: random.Random, setting: Setting) -> Deed:
    when = _when(dice, "holds", "holds", "commits", "is given")
    loses_link = dice.random() < 0.5
    worker = _worker(dice, setting)
    return Pause(worker=worker, for_s=_while(dice), loses_link=loses_link, **when)


def _cut(dice: random.Random, setting: Setting) -> Deed:
    when = _when(dice, "holds", "commits", "writes")
    return Cut(worker=_worker(dice, setting), for_s=_while(dice), **when)


def _flaky(dice: random.Random, setting: Setting) -> Deed:
    when = _when(dice, "holds", "is given")
    flakiness = dice.choice((0.1, 0.3, 0.6))
    worker = _worker(dice, setting)
    return Flaky(worker=worker, for_s=2 * _while(dice), flakiness=flakiness, **when)


def _jump(dice: random.Random, setting: Setting) -> Deed:
    by_s = dice.choice((-3600.0, -2.0, 5.0, 3600.0))
    return Jump(worker=_worker(dice, setting), by_s=by_s, **_when(dice, "holds"))


def _unlink(dice: random.Random, setting: Setting) -> Deed:
    when = _when(dice, "is given", "commits", "tells", "is done with")
    return Unlink(worker=_worker(dice, setting), **when)


def _block(dice: random.Random, setting: Setting) -> Deed:
    return Block(for_s=_while(dice), **_when(dice, "is given"))


def _restart(dice: random.Random, setting: Setting) -> Deed:
    return Restart(for_s=_while(dice), **_when(dice, "is given", "commits"))


def _down(dice: random.Random, setting: Setting) -> Deed:
    loses_s = dice.choice((0.0, 0.1, 2.0, EVERYTHING))
    return Down(for_s=_while(dice), loses_s=loses_s, **_when(dice, "holds", "commits"))


_FAULTS: tuple[Callable[[random.Random, Setting], Deed], ...] = (
    *(_crash, _crash, _pause, _pause, _pause, _flaky, _flaky, _cut, _down, _down),
    *(_drain, _jump, _unlink, _block, _restart),
)


def _when(dice: random.Random, *moments: When) -> dict[str, Any]:
    """A time, and mostly a moment to wait for."""
    return {"at_s": _time(dice), "when": dice.choice((None, *moments))}


def _worker(dice: random.Random, setting: Setting) -> int:
    return dice.randrange(setting.workers)


def _while(dice: random.Random) -> float:
    return dice.choice((0.1, 0.5, 1.5, 3.0))


def _time(dice: random.Random) -> float:
    return round(dice.uniform(BEGINS_S, ENDS_S), 3)


def _near(dice: random.Random, when_s: float) -> float:
    return round(min(ENDS_S, max(BEGINS_S, when_s + dice.uniform(-0.05, 0.2))), 3)
