"""Which hosts the filters passed, kept for a class of requests and updated in place."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from scheduler_worker.model.decisions import Diagnosis, FilterStep
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Rows
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter, Unit

EARLIER_INSTANCES = "earlier instances"
"""The first step for a later instance: a host that was rejected for an earlier one stays rejected.
"""


class FilterResults:
    """Which hosts each filter passed, in order; ``masks`` are over all rows of the table.

    ``before`` are the results for an earlier instance, of which ``earlier`` are left. None: all
    hosts. Of these a filter that looks at rows is asked about the ones in ``changed`` only. None:
    all. The diagnosis also names filters that do not apply, as passing all. Filters in ``left_out``
    are not asked: :meth:`narrowed` applies them for one request.
    """

    def __init__(
        self,
        hosts: HostTable,
        spec: RequestSpec,
        filters: Sequence[Filter],
        *,
        before: FilterResults | None = None,
        earlier: Mask | None = None,
        changed: Mask | None = None,
        left_out: Collection[Unit] = (),
        policy: PolicyReference | None = None,
    ) -> None:
        self._policy = policy
        is_momentary = before is not None and before.diagnosis().momentary
        self._momentary = {EARLIER_INSTANCES} if is_momentary else set()
        """The steps that refuse for what may be otherwise a moment later."""
        self._filters: list[Filter] = []
        self._using: list[Filter] = []
        """The filters that look at what is used of a host."""
        self.masks = [np.ones(len(hosts), bool) if earlier is None else earlier]
        self._counts = [int(np.count_nonzero(self.masks[0]))]
        self._steps = [] if earlier is None else [(EARLIER_INSTANCES, 0)]
        """The name of each filter, and the index of the mask that was left after it."""
        self._quiet = {EARLIER_INSTANCES}
        """The steps that a diagnosis names only where they reject."""
        self.limits: dict[Filter, dict[int, dict[str, Any]]] = (
            {} if before is None else before.limits.copy()
        )
        """What each filter in Nova's signature has left on hosts, by row."""
        self._checks: list[tuple[Filter, Callable[[int], bool]]] | None = None
        """Of :attr:`_using`, each with a function of the row; until facts of hosts change."""
        self._once: list[int] = []
        """The indexes of the masks after filters that run once per request and look at use."""
        for unit in filters:
            if not self._counts[-1]:
                break
            if unit.applies(spec) and unit not in left_out:
                self.masks.append(self._left_by(unit, hosts, spec, self.masks[-1], changed))
                self._counts.append(int(np.count_nonzero(self.masks[-1])))
                self._filters.append(unit)
                if unit.reads_use:
                    self._using.append(unit)
                    if unit.run_filter_once_per_request:
                        self._once.append(len(self.masks) - 1)
            self._steps.append((unit.name, len(self.masks) - 1))
            if unit.runs_on_forced_hosts:
                self._quiet.add(unit.name)
            if unit.momentary:
                self._momentary.add(unit.name)
        self._diagnosed: tuple[list[int], Diagnosis] | None = None
        """The counts of the last diagnosis, and the diagnosis."""
        self.valid_until_s = float("inf")
        """Until when the results hold if no host changes; seconds of the store's clock."""
        self.update_expiry(hosts, spec)

    def _left_by(
        self,
        unit: Filter,
        hosts: HostTable,
        spec: RequestSpec,
        mask: Mask,
        changed: Mask | None = None,
    ) -> Mask:
        if not unit.leaves_limits:
            return left_by(unit, hosts, spec, mask, changed)
        # What filters left before is not this one's.
        hosts.take_limits()
        passing = left_by(unit, hosts, spec, mask, changed)
        found = hosts.take_limits()
        if changed is not None:
            before = self.limits.get(unit, {}).items()
            found.update((row, limits) for row, limits in before if not changed[row])
        self.limits[unit] = found
        return passing

    def update_expiry(self, hosts: Hosts, spec: RequestSpec) -> None:
        """Shorten the validity for hosts whose results expire earlier than other hosts'."""
        ends_s = (unit.lasts_until_s(hosts, spec) for unit in self._filters)
        self.valid_until_s = min([self.valid_until_s, *ends_s])

    @property
    def leaves_limits(self) -> bool:
        """Whether some filter leaves limits on hosts, which it does one by one."""
        return any(unit.leaves_limits for unit in self._filters)

    @property
    def size(self) -> int:
        """Bytes of the masks."""
        return sum([mask.nbytes for mask in self.masks])

    @property
    def survivors(self) -> Mask:
        """The hosts that passed all filters."""
        return self.masks[-1]

    @property
    def passed(self) -> int:
        """How many hosts passed all filters."""
        return self._counts[-1]

    def diagnosis(self) -> Diagnosis:
        """How many hosts each filter passed."""
        if self._diagnosed is None or self._diagnosed[0] != self._counts:
            self._diagnosed = self._counts.copy(), self._diagnosis()
        return self._diagnosed[1]

    def _diagnosis(self) -> Diagnosis:
        total = before = len(self.masks[0])
        steps: list[FilterStep] = []
        for name, at in self._steps:
            after = self._counts[at]
            if after < before or name not in self._quiet:
                steps.append(FilterStep(name, before, after))
            if not after:
                break
            before = after
        momentary = any(
            step.hosts_out < step.hosts_in for step in steps if step.name in self._momentary
        )
        return Diagnosis(
            hosts=total, filters=tuple(steps), policy=self._policy, momentary=momentary
        )

    def rejected_by(self, row: int) -> str | None:
        """The first filter that rejected a row."""
        return next((name for name, at in self._steps if not self.masks[at][row]), None)

    def rejected_once(self, row: int) -> bool:
        """Whether a filter rejected a row that runs once per request and looks at use."""
        return any(self.masks[at - 1][row] and not self.masks[at][row] for at in self._once)

    def narrowed(
        self,
        hosts: HostTable,
        spec: RequestSpec,
        quick: Sequence[Filter],
        undeclared: Sequence[Filter],
    ) -> FilterResults:
        """Results for one request, with the filters that were left out; self if none rejects.

        ``quick`` filters are asked about all hosts at once and keep their place in the diagnosis;
        ``undeclared`` filters are asked last, about the hosts that are left.
        """
        results = self
        for unit in quick:
            if unit.applies(spec):
                results = results._without(unit.name, ~unit.passes(hosts, spec))
        for unit in undeclared:
            if results.passed:
                if unit.leaves_limits:
                    results = results._copied(results.masks, results._steps)
                passing = results._left_by(unit, hosts, spec, results.survivors)
                results = results._and(unit.name, passing)
        return results

    def _without(self, name: str, rejected: Mask) -> FilterResults:
        place = next((at for at, (steps, _) in enumerate(self._steps) if steps == name), None)
        if place is None or not (self.masks[at := self._steps[place][1]] & rejected).any():
            return self
        # A host is rejected once: out of this mask, it is in none of the later ones.
        masks = [*self.masks[: at + 1], *(mask & ~rejected for mask in self.masks[at:])]
        steps = self._steps[:place] + [(step, at + 1) for step, at in self._steps[place:]]
        results = self._copied(masks, steps)
        results._once = [step + (step > at) for step in self._once]
        return results

    def _and(self, name: str, passing: Mask) -> FilterResults:
        if int(np.count_nonzero(passing)) == self.passed:
            return self
        steps = [step for step in self._steps if step[0] != name]
        return self._copied([*self.masks, passing], [*steps, (name, len(self.masks))])

    def _copied(self, masks: list[Mask], steps: list[tuple[str, int]]) -> FilterResults:
        # A class shares its results with its requests: what is of one request goes into a copy.
        results = copy.copy(self)
        results.masks, results._steps = masks, steps
        results._counts = [int(np.count_nonzero(mask)) for mask in masks]
        results.limits = self.limits.copy()
        return results

    def update_host(self, host: HostState, spec: RequestSpec, *, facts: bool) -> bool:
        """Ask the filters again about one host; returns whether it passes.

        ``facts``: more than its reservations and instances changed.
        """
        row = host.row
        # The common case by far: a survivor took one more instance and still has room.
        if not facts and self.survivors[row] and self._still_passes(host, spec):
            return True
        before = passes = bool(self.masks[0][row])
        for at, unit in enumerate(self._filters, 1):
            after = bool(self.masks[at][row])
            if passes:
                # A host that this filter was asked about before, and that changed in its use only,
                # gets the same answer from a filter that does not look at use. One that an earlier
                # filter rejected before was not asked about at all.
                is_known = before and not facts and not unit.reads_use
                passes = after if is_known else self._passes(unit, host, spec)
            if passes != after:
                self.masks[at][row] = passes
                self._counts[at] += 1 if passes else -1
            before = after
        return passes

    def update_rows(self, hosts: HostTable, spec: RequestSpec, rows: Rows, facts: Mask) -> Mask:
        """Ask the filters again about some hosts at once; returns which pass.

        The outcome is that of :meth:`update_host` for each. ``facts``: for which of them more than
        reservations and instances changed. No filter leaves limits.
        """
        view = hosts.take(rows)
        # The common case by far: survivors took more instances and still have room.
        are_known = not facts.any() and self.survivors[rows].all()
        if are_known and all(unit.passes(view, spec).all() for unit in self._using):
            return np.ones(len(rows), bool)
        before = passes = self.masks[0][rows]
        for at, unit in enumerate(self._filters, 1):
            after = self.masks[at][rows]
            passing = after & passes
            asked = passes if unit.reads_use else passes & (facts | ~before)
            if unit.looks_at_rows:
                places = np.flatnonzero(asked)
                if len(places):
                    passing[places] = unit.passes(view.take(places), spec)
            elif asked.any():
                passing = np.where(asked, unit.passes(view, spec), passing)
            self._counts[at] += int(np.count_nonzero(passing)) - int(np.count_nonzero(after))
            self.masks[at][rows] = passing
            before, passes = after, passing
        return passes

    def _still_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Whether a survivor still passes the filters that look at use."""
        if self._checks is None:
            self._checks = [(unit, unit.row_check(host.table, spec)) for unit in self._using]
        for unit, check in self._checks:
            passes = self._passes(unit, host, spec) if unit.leaves_limits else check(host.row)
            if not passes:
                return False
        return True

    def facts_changed(self, hosts: Hosts, spec: RequestSpec) -> None:
        """Forget what was read of facts, because these hosts have new facts."""
        self._checks = None
        # Their heartbeats are new: the results may now expire sooner than before.
        self.update_expiry(hosts, spec)

    def _passes(self, unit: Filter, host: HostState, spec: RequestSpec) -> bool:
        if not unit.leaves_limits:
            return unit.host_passes(host, spec)
        host.limits = {}
        passes = unit.host_passes(host, spec)
        self.limits.setdefault(unit, {})[host.row] = host.limits
        return passes


def left_by(
    unit: Filter, hosts: HostTable, spec: RequestSpec, mask: Mask, changed: Mask | None = None
) -> Mask:
    """The hosts of ``mask`` that pass; one that looks at rows is asked only about ``changed``."""
    if not unit.looks_at_rows:
        return mask & unit.passes(hosts, spec)
    asked = mask if changed is None else mask & changed
    rows = np.flatnonzero(asked)
    after = mask & ~asked
    if len(rows):
        after[rows[unit.passes(hosts.take(rows), spec)]] = True
    return after
