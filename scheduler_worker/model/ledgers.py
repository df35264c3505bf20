"""The migrations and the power action that a cluster's balance has asked for. Values only.

Times are seconds of the store's clock. A migration is *asked for*, then it *begins*, then it is
*done*; or it *fails* on the way, by a refusal, an error, or since nothing was heard of it in time.
The VM of a failed one waits before the next, twice as long after each failure.

So it is with power actions, of which at most one is under way in a cluster. One is done when the
host's reports show it: an answer alone tells nobody which hosts may take VMs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, get_args

import msgspec
from msgspec import Meta, structs

from scheduler_worker.model.cluster_load import (
    BalanceMemory,
    BegunMigration,
    Migration,
    PowerAction,
)
from scheduler_worker.model.host_records import PowerState, phrase
from scheduler_worker.options import Opt

Seconds = Annotated[float, Meta(gt=0)]
_MOST_DOUBLINGS = 30
"""Keeps the doubled wait a finite number; any bound is reached long before."""


State = Literal["started", "done", "refused", "failed"]
STATES: tuple[str, ...] = get_args(State)


class MigrationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many migrations a cluster has at a time, and how long each may take."""

    most: Annotated[int, Meta(ge=1), Opt(name="max_migrations", max=1000)] = 2
    """Migrations that a cluster has under way at a time."""
    begin_within_s: Annotated[Seconds, Opt(name="begin_timeout", min=0.1, max=86_400)] = 120.0
    """Seconds in which a migration, or a power action, that was asked for has to begin, or it
    counts as failed."""
    end_within_s: Annotated[Seconds, Opt(name="migration_timeout", min=1, max=604_800)] = 3600.0
    """Seconds in which a migration, or a power action, that has begun has to end, or it counts as
    failed."""
    first_wait_s: Annotated[Seconds, Opt(name="retry_wait", min=0.1, max=86_400)] = 60.0
    """Seconds for which a VM stays after its migration failed, or a host after its power action;
    twice as long after each further failure."""
    longest_wait_s: Annotated[Seconds, Opt(name="max_retry_wait", min=0.1, max=604_800)] = 3600.0
    """The longest of these waits, in seconds."""

    def wait_s(self, failures: int) -> float:
        """For how long a VM stays after so many failures."""
        doubled = self.first_wait_s * 2 ** min(max(failures - 1, 0), _MOST_DOUBLINGS)
        return min(float(doubled), self.longest_wait_s)


class AskedAction(msgspec.Struct, frozen=True, kw_only=True):
    """What a balance has asked for, until it ends."""

    id: str
    """Never used again: an answer to an earlier action is recognised by it."""
    reason: str
    policy: str
    """Name and version of the policy, as ``name@version``."""
    asked_at_s: float
    overdue_at_s: float
    """When it counts as failed unless it goes on before."""
    begun_at_s: float | None = None

    def begun(self, now_s: float, limits: MigrationLimits) -> Self:
        """As it is once it has begun."""
        return structs.replace(self, begun_at_s=now_s, overdue_at_s=now_s + limits.end_within_s)


class AskedMigration(AskedAction, frozen=True, kw_only=True):
    """A migration that was asked for and has not ended."""

    vm: str
    source: str
    candidates: tuple[str, ...]
    """The hosts to choose from. The source is one: the VM may stay after all."""
    destination: str | None = None
    """The destination, once it has begun."""


class AskedPower(AskedAction, frozen=True, kw_only=True):
    """A power action that was asked for and has not ended."""

    host: str
    to: PowerState
    is_said_done: bool = False
    """Whether it was answered that it is done; then it waits for a report that shows it."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an action is, as whoever carries it out says."""

    state: State
    destination: str | None = None
    """The host to which the VM goes, or on which it is; None: unknown."""
    why: str = ""
    """Of one that was refused or failed."""


class Setback(msgspec.Struct, frozen=True):
    """The failures of a VM's migrations, or of a host's power actions, since the last success."""

    failures: int
    waits_until_s: float
    why: str


Asked = TypeVar("Asked", bound=AskedAction)


class Ledger(msgspec.Struct, Generic[Asked], frozen=True, kw_only=True, omit_defaults=True):
    """The actions of one kind in a cluster. Each method returns the ledger as it is afterwards."""

    setbacks: Mapping[str, Setback] = {}
    """By VM, or by host."""

    @property
    def actions(self) -> Collection[Asked]:
        """The actions under way."""
        raise NotImplementedError

    def find(self, action_id: str) -> Asked | None:
        """The action under way with this id."""
        return next((action for action in self.actions if action.id == action_id), None)

    def why_wait(self, subject: str, now_s: float) -> str | None:
        """Why nothing new is to be tried with a VM or host yet; None: it may be."""
        setback = self.setbacks.get(subject)
        if setback is None or setback.waits_until_s <= now_s:
            return None
        wait_s = setback.waits_until_s - now_s
        return f"failed {setback.failures} times, waits for {wait_s:.0f} s: {setback.why}"

    def _set_back(
        self, subject: str, why: str, now_s: float, limits: MigrationLimits
    ) -> dict[str, Setback]:
        before = self.setbacks.get(subject)
        failures = 1 + (before.failures if before else 0)
        setback = Setback(failures, now_s + limits.wait_s(failures), why)
        return {**self.setbacks, subject: setback}

    def _recent(self, now_s: float, limits: MigrationLimits) -> dict[str, Setback]:
        """The setbacks without failures that nothing came after."""
        since_s = now_s - limits.longest_wait_s
        return {key: each for key, each in self.setbacks.items() if each.waits_until_s > since_s}


class MigrationLedger(Ledger[AskedMigration], frozen=True, kw_only=True, omit_defaults=True):
    """The migrations of one cluster."""

    under_way: Mapping[str, AskedMigration] = {}
    """By VM."""
    moves: Mapping[str, BegunMigration] = {}
    """The last begun migration of each VM, as far back as the balance remembers."""

    @property
    def actions(self) -> Collection[AskedMigration]:
        return self.under_way.values()

    def travellers(self, host: str) -> list[str]:
        """The VMs under way from a host, or to it as far as destinations are known."""
        under_way = self.under_way.values()
        return [asked.vm for asked in under_way if host in {asked.source, asked.destination}]

    def why_not(self, proposed: Migration, now_s: float, limits: MigrationLimits) -> str | None:
        """Why a proposed migration may not be asked for now; None: it may."""
        if proposed.vm in self.under_way:
            return "the VM is being moved"
        if not proposed.destinations:
            return "there is no host to move it to"
        if len(self.under_way) >= limits.most:
            return f"{len(self.under_way)} migrations are under way, the most at a time"
        return self.why_wait(proposed.vm, now_s)

    def ask(
        self, proposed: Migration, *, id: str, policy: str, now_s: float, limits: MigrationLimits
    ) -> MigrationLedger:
        """With a migration that is being asked for, which :meth:`why_not` must permit."""
        asked = AskedMigration(
            id=id,
            vm=proposed.vm,
            source=proposed.source,
            candidates=proposed.candidates,
            reason=proposed.reason,
            policy=policy,
            asked_at_s=now_s,
            overdue_at_s=now_s + limits.begin_within_s,
        )
        return self._with(asked)

    def advance(
        self, migration_id: str, progress: Progress, now_s: float, limits: MigrationLimits
    ) -> MigrationLedger:
        """With what is known of a migration. Nothing changes if it is not under way.

        The VM of one that is done rests from now on, and its failures are over.
        """
        asked, state, destination = self.find(migration_id), progress.state, progress.destination
        if asked is None or (state == "started" and asked.begun_at_s is not None):
            return self
        if state == "started":
            begun = structs.replace(asked.begun(now_s, limits), destination=destination)
            return self._with(begun)._moved(begun, destination, now_s)
        under_way = _less(self.under_way, asked.vm)
        if state == "done":
            setbacks = _less(self.setbacks, asked.vm)
            ended = structs.replace(self, under_way=under_way, setbacks=setbacks)
            return ended._moved(asked, destination or asked.destination, now_s)
        setbacks = self._set_back(asked.vm, progress.why, now_s, limits)
        # A VM that did not move does not rest; only what was done before counts.
        moves = self.moves if asked.begun_at_s is None else _less(self.moves, asked.vm)
        return structs.replace(self, under_way=under_way, setbacks=setbacks, moves=moves)

    def overdue(self, now_s: float) -> Iterator[AskedMigration]:
        """The migrations of which nothing was heard in time."""
        return (asked for asked in self.under_way.values() if asked.overdue_at_s <= now_s)

    def trimmed(self, memory: BalanceMemory, now_s: float, limits: MigrationLimits) -> Self:
        """Without moves that the balance has forgotten, and failures that nothing came after."""
        kept = memory.moves.keys() | self.under_way.keys()
        moves = {vm: move for vm, move in self.moves.items() if vm in kept}
        return structs.replace(self, moves=moves, setbacks=self._recent(now_s, limits))

    def _with(self, asked: AskedMigration) -> Self:
        return structs.replace(self, under_way={**self.under_way, asked.vm: asked})

    def _moved(self, asked: AskedMigration, destination: str | None, now_s: float) -> Self:
        move = BegunMigration(asked.source, destination or "", now_s)
        return structs.replace(self, moves={**self.moves, asked.vm: move})


def _less(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


_NOT_SHOWN = "it is said to be done, and no report shows it"
SILENCE = "nothing was heard of it in time"


class PowerLedger(Ledger[AskedPower], frozen=True, kw_only=True, omit_defaults=True):
    """The power actions of one cluster."""

    under_way: AskedPower | None = None

    @property
    def actions(self) -> Collection[AskedPower]:
        return () if self.under_way is None else (self.under_way,)

    def why_not(self, proposed: PowerAction, now_s: float) -> str | None:
        """Why a proposed action may not be asked for now; None: it may."""
        asked = self.under_way
        if asked is not None:
            return f"{asked.host} is being brought {phrase(asked.to)}"
        return self.why_wait(proposed.host, now_s)

    def waiting(self, now_s: float) -> set[str]:
        """The hosts that are left alone for now, since their last action failed."""
        return {host for host, setback in self.setbacks.items() if setback.waits_until_s > now_s}

    def ask(
        self, proposed: PowerAction, *, id: str, policy: str, now_s: float, limits: MigrationLimits
    ) -> PowerLedger:
        """With an action that is being asked for, which :meth:`why_not` must permit."""
        return PowerLedger(
            under_way=AskedPower(
                id=id,
                host=proposed.host,
                to=proposed.to,
                reason=proposed.reason,
                policy=policy,
                asked_at_s=now_s,
                overdue_at_s=now_s + limits.begin_within_s,
            ),
            setbacks=self._recent(now_s, limits),
        )

    def advance(
        self, action_id: str, progress: Progress, now_s: float, limits: MigrationLimits
    ) -> PowerLedger:
        """With what is known of an action. Nothing changes if it is not under way."""
        asked = self.find(action_id)
        if asked is None:
            return self
        if progress.state not in {"started", "done"}:
            return self.fail(progress.why, now_s, limits)
        begun = asked if asked.begun_at_s is not None else asked.begun(now_s, limits)
        is_said_done = asked.is_said_done or progress.state == "done"
        return structs.replace(self, under_way=structs.replace(begun, is_said_done=is_said_done))

    def settle(
        self, states: Mapping[str, PowerState], now_s: float, limits: MigrationLimits
    ) -> PowerLedger:
        """After a look at the states that hosts report, by name, and at the time."""
        asked = self.under_way
        if asked is None:
            return self
        if states.get(asked.host) == asked.to:
            return PowerLedger(setbacks=_less(self.setbacks, asked.host))
        if asked.overdue_at_s <= now_s:
            return self.fail(_NOT_SHOWN if asked.is_said_done else SILENCE, now_s, limits)
        return self

    def fail(self, why: str, now_s: float, limits: MigrationLimits) -> PowerLedger:
        """Without the action under way, which failed: its host is left alone for a while."""
        asked = self.under_way
        if asked is None:
            return self
        return PowerLedger(setbacks=self._set_back(asked.host, why, now_s, limits))
