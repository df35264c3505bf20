"""Invariants of the clusters' locks and queues."""

from typing import Any, NamedTuple

from scheduler_worker.ports import LockGrant, Written
from tests.simulation.history import Auditor, Blame, Event
from tests.simulation.plan import Plan

HOP_S = 0.01
"""A waiter that asks again names the rest of its time, less or more what the first call took."""


class _Waiter(NamedTuple):
    rank: tuple[float, int]
    until_s: float


class Locks(Auditor):
    """Holders of and waiters for the locks."""

    def __init__(self, plan: Plan, blame: Blame) -> None:
        super().__init__(blame)
        self._is_calm = plan.is_calm
        self._hold_timeout_s = plan.setting.hold_timeout_s
        self.ran_out: list[str] = []
        """Leases that ended by their timeout, which is right after a fault."""
        self._leases: dict[str, LockGrant] = {}
        self._free: dict[str, LockGrant] = {}
        """The last lease of each lock that went to nobody; its owner may commit once more."""
        self._grants: dict[tuple[str, int], LockGrant] = {}
        self._began_s: dict[tuple[str, int], tuple[float, float]] = {}
        """When a lease began, and by how much the store's clock was wrong then."""
        self._taken_up_s: dict[tuple[str, int], float] = {}
        """When a lease's owner last committed to a lock that had gone to nobody."""
        self._forward_at_s: dict[tuple[str, int], float] = {}
        """By how much the store's clock had ever gone forward when a lease began."""
        self._ahead_s = self._forward_s = 0.0
        self._was_set_back = self._has_lost = False
        self._owners: dict[str, str] = {}
        """The worker of each owner of a lease."""
        self._with_others: set[str] = set()
        """Leases of a worker that had another one at the same time."""
        self._tokens: dict[tuple[str, str], int] = {}
        self._commits: dict[tuple[str, int], Written] = {}
        self._waiting: dict[str, dict[int, _Waiter]] = {}
        """By cluster and the number of the call."""
        self._first: dict[str, dict[int, _Waiter]] = {}
        """The waiters when a lock became free."""
        self._rules = {
            "queues": self._queued,
            "leases": self._granted,
            "is too late": self._refused,
            "releases": self._left,
            "leaves": self._left,
            "takes": self._took,
            "lost data": self._lost,
            "is set": self._was_set,
        }

    def known_since_s(self, grant: LockGrant) -> float:
        """When its holder had to know all: at the grant, or when it took up a free lock.

        Minus infinity if its grant was not seen.
        """
        began_s, _ = self._began_s.get(_lease(grant), (float("-inf"), 0.0))
        return self._taken_up_s.get(_lease(grant), began_s)

    # Leases

    def _granted(self, event: Event) -> None:
        grant: LockGrant = event.facts["grant"]
        before = self._leases.get(grant.scope)
        if before is not None and not any(self._is_over(before)) and not self._is_cut(before):
            self._blame(f"{grant.scope} was granted to {event.who} while it was held")
        elif before is not None:
            self._run_out(before)
        token, last = grant.token, self._tokens.get((grant.scope, grant.token.epoch), 0)
        if token.number <= last:
            self._blame(f"token {token.number} of {grant.scope} came after {last}")
        self._tokens[grant.scope, token.epoch] = token.number
        self._check_turn(grant.scope, event)
        self._owners[grant.owner] = event.who
        others = [each for each in self._leases.values() if self._owners[each.owner] == event.who]
        if others:
            self._with_others.update(each.owner for each in (grant, *others))
        self._leases[grant.scope] = grant
        self._free.pop(grant.scope, None)
        self._grants[_lease(grant)] = grant
        self._began_s[_lease(grant)] = self._now_s, self._ahead_s
        self._forward_at_s[_lease(grant)] = self._forward_s

    def _is_cut(self, grant: LockGrant) -> bool:
        """Whether the clock's jumps forward have ended a lease, whatever it went back between."""
        age_s = self._now_s - self._began_s[_lease(grant)][0]
        forward_s = self._forward_s - self._forward_at_s[_lease(grant)]
        return age_s + forward_s >= self._hold_timeout_s

    def _is_over(self, grant: LockGrant) -> tuple[bool, bool]:
        """Whether a lease is over in real time, and by the store's clock."""
        began_s, ahead_s = self._began_s[_lease(grant)]
        age_s = self._now_s - began_s
        limit_s = self._hold_timeout_s
        return age_s >= limit_s, age_s + self._ahead_s - ahead_s >= limit_s

    def _run_out(self, grant: LockGrant) -> None:
        lease = f"{grant.scope}#{grant.token.number}"
        self.ran_out.append(lease)
        if self._is_calm and grant.owner not in self._with_others:
            self._blame(f"{lease} ran out, and nothing had broken")

    def committed(self, event: Event) -> bool:
        """Whether it is the first time, and not a repetition."""
        self._now_s = event.time_s
        grant: LockGrant = event.facts["grant"]
        written: Written = event.facts["written"]
        if event.facts["is_repeated"] and (grant.owner, grant.commits) not in self._commits:
            return False  # it was made before the store lost data, and is there still
        first = self._commits.setdefault((grant.owner, grant.commits), written)
        if first is not written:
            if first != written:
                self._blame(f"a repeated commit of {event.who} to {grant.scope} was a new one")
            return False
        holder = self._leases.get(grant.scope)
        if holder is None and (holder := self._free.pop(grant.scope, None)) is not None:
            self._taken_up_s[_lease(grant)] = self._now_s
        if holder is None or holder.owner != grant.owner:
            self._blame(f"{event.who} committed to {grant.scope} without a lease")
        elif all(self._is_over(grant)):
            self._blame(f"{event.who} committed to {grant.scope} after the end of its lease")
        if written.kept:
            self._leases[grant.scope] = grant
        else:
            self._end(grant.scope, grant.owner)
        if written.is_free:
            self._free[grant.scope] = grant
        return True

    def _refused(self, event: Event) -> None:
        grant: LockGrant = event.facts["grant"]
        if (grant.owner, grant.commits) in self._commits:
            self._blame(
                f"a commit of {event.who} to {grant.scope} was refused though it had been made"
            )

    def _left(self, event: Event) -> None:
        """The waiter leaves; it may have been granted the lock without getting the reply."""
        scope, owner = event.facts["scope"], event.facts["owner"]
        for waiting in (self._waiting, self._first):
            waiting.get(scope, {}).pop(event.facts["call"], None)
        self._end(scope, owner)

    def _end(self, scope: str, owner: str) -> None:
        holder = self._leases.get(scope)
        if holder is not None and holder.owner == owner:
            del self._leases[scope]
            self._first[scope] = dict(self._waiting.get(scope, {}))

    def _lost(self, event: Event) -> None:
        """The restored state of the store counts; lost commits may be repeated."""
        self._leases, self._free = (
            {scope: self._grants[lease] for scope, lease in some if lease in self._grants}
            for some in (event.facts["holders"].items(), event.facts["last"].items())
        )
        self._commits.clear()
        self._has_lost = True
        self._forget_tokens()
        self._waiting.clear()
        self._first.clear()

    def _was_set(self, event: Event) -> None:
        self._ahead_s += event.facts["by_s"]
        self._forward_s += max(0.0, event.facts["by_s"])
        self._was_set_back |= event.facts["by_s"] < 0
        self._forget_tokens()

    def _forget_tokens(self) -> None:
        """After a loss and a clock that was set back, tokens may repeat."""
        if self._has_lost and self._was_set_back:
            self._tokens.clear()

    # Turns

    def _queued(self, event: Event) -> None:
        facts = event.facts
        waiting = self._waiting.setdefault(facts["scope"], {})
        rank = self._now_s - facts["priority_boost_s"], facts["call"]
        waiting[facts["call"]] = _Waiter(rank, self._now_s + facts["timeout_s"])

    def _check_turn(self, scope: str, event: Event) -> None:
        """A lock goes to the first waiter of when it became free, if that one still waits."""
        waiting = self._waiting.get(scope, {})
        waiting.pop(event.facts["call"], None)
        before = self._first.pop(scope, {})
        mine = before.pop(event.facts["call"], None)
        patient = [each.rank for each in before.values() if each.until_s > self._now_s + HOP_S]
        if self._is_calm and patient and (mine is None or mine.rank > min(patient)):
            self._blame(f"{scope} was granted to {event.who} before its turn")

    def _took(self, event: Event) -> None:
        """A leader takes the first requests of its queue."""
        taken: list[Any] = event.facts["taken"]
        ranks = [rank for _, rank in taken]
        if ranks != sorted(ranks) or ranks[-1:] > [
            min((rank for _, rank in event.facts["left"]), default=float("inf"))
        ]:
            self._blame(f"{event.who} took {[name for name, _ in taken]} before their turn")


def _lease(grant: LockGrant) -> tuple[str, int]:
    """Identifies a lease: the same owner may be granted another one later."""
    return grant.owner, grant.token.number
