"""The power action that a cluster's balance has asked for, and those that failed. Values only.

At most one is under way in a cluster. It is done when the host's reports show it: an answer alone
tells nobody which hosts may take VMs. Times are seconds of the store's clock.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import structs

from scheduler_worker.model.cluster_load import PowerAction
from scheduler_worker.model.host_power import PowerState, phrase
from scheduler_worker.model.migration_ledger import AskedAction, MigrationLimits, Progress, Setback

_NOT_SHOWN = "it is said to be done, and no report shows it"
_SILENCE = "nothing was heard of it in time"


class AskedPower(AskedAction, frozen=True, kw_only=True):
    """A power action that was asked for and has not ended."""

    host: str
    to: PowerState
    is_said_done: bool = False
    """Whether it was answered that it is done; then it waits for a report that shows it."""

    @property
    def closes(self) -> bool:
        """Whether the host takes no VM any more."""
        return self.to != "up"


class PowerLedger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The power actions of one cluster. Each method returns the ledger as it is afterwards."""

    under_way: AskedPower | None = None
    setbacks: Mapping[str, Setback] = {}
    """By host: its failed actions since the last one that was done."""

    def find(self, action_id: str) -> AskedPower | None:
        """The action under way, if it has this id."""
        asked = self.under_way
        return asked if asked is not None and asked.id == action_id else None

    def why_not(self, proposed: PowerAction, now_s: float) -> str | None:
        """Why a proposed action may not be asked for now; None: it may."""
        asked = self.under_way
        if asked is not None:
            return f"{asked.host} is being brought {phrase(asked.to)}"
        setback = self.setbacks.get(proposed.host)
        return setback.why_wait(now_s) if setback is not None else None

    def waiting(self, now_s: float) -> set[str]:
        """The hosts that are left alone for now, since their last action failed."""
        return {host for host, each in self.setbacks.items() if each.waits_until_s > now_s}

    def ask(
        self,
        proposed: PowerAction,
        *,
        action_id: str,
        policy: str,
        now_s: float,
        limits: MigrationLimits,
    ) -> PowerLedger:
        """With an action that is being asked for, which :meth:`why_not` must permit."""
        forget_before_s = now_s - limits.longest_wait_s
        return PowerLedger(
            under_way=AskedPower(
                id=action_id,
                host=proposed.host,
                to=proposed.to,
                reason=proposed.reason,
                policy=policy,
                asked_at_s=now_s,
                overdue_at_s=now_s + limits.begin_within_s,
            ),
            setbacks={
                host: each
                for host, each in self.setbacks.items()
                if each.waits_until_s > forget_before_s
            },
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
        is_said_done = asked.is_said_done or progress.state == "done"
        if asked.begun_at_s is not None:
            return structs.replace(
                self, under_way=structs.replace(asked, is_said_done=is_said_done)
            )
        begun = structs.replace(
            asked,
            begun_at_s=now_s,
            overdue_at_s=now_s + limits.end_within_s,
            is_said_done=is_said_done,
        )
        return structs.replace(self, under_way=begun)

    def settle(
        self, states: Mapping[str, PowerState], now_s: float, limits: MigrationLimits
    ) -> PowerLedger:
        """After a look at the states that hosts report, by name, and at the time."""
        asked = self.under_way
        if asked is None:
            return self
        if states.get(asked.host) == asked.to:
            setbacks = {host: each for host, each in self.setbacks.items() if host != asked.host}
            return PowerLedger(setbacks=setbacks)
        if asked.overdue_at_s <= now_s:
            return self.fail(_NOT_SHOWN if asked.is_said_done else _SILENCE, now_s, limits)
        return self

    def fail(self, why: str, now_s: float, limits: MigrationLimits) -> PowerLedger:
        """Without the action under way, which failed: its host is left alone for a while."""
        asked = self.under_way
        if asked is None:
            return self
        failed = Setback.after(self.setbacks.get(asked.host), why, now_s, limits)
        return PowerLedger(setbacks={**self.setbacks, asked.host: failed})
