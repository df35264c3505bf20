"""Selectors turn the scores of a policy's weights into an order of hosts, best first.

A selector is a unit: a policy names one. Each adds up, for each host, the factor of each weight
times its score; they differ in what a score is.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from scheduler_worker.model.hosts import Rows, Values
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.plugin import NoParameters, Unit, Weigher
from scheduler_worker.scheduling.ranking import RandomSource, Ranking
from scheduler_worker.scheduling.ranks import ranks
from scheduler_worker.scheduling.scales import NormalizedScale, RankScale, RawScale, Scale


class ChoiceParameters(msgspec.Struct, frozen=True):
    """At random among how many of the best hosts one is chosen, and whether among equals."""

    host_subset_size: Annotated[int, Meta(ge=1), Opt(mutable=True)] = 1
    """The host is drawn at random among this many of the best."""
    shuffle_best_same_weighed_hosts: Annotated[bool, Opt(mutable=True)] = False
    """Whether hosts that share the best weight are put into a random order."""


class Selector(Unit):
    """Turns raw scores into scores that can be added, and the totals into a :class:`Ranking`."""

    parameters_type: ClassVar[type[msgspec.Struct]] = ChoiceParameters
    scale: ClassVar[type[Scale]]
    """How scores are updated from one request to the next."""

    def scores(self, unit: Weigher, raw: Values) -> Values:
        """The score that the factor multiplies, for each raw score."""
        raise NotImplementedError

    def rank(self, rows: Rows, totals: Values, rng: RandomSource) -> Ranking:
        """The hosts in order of their totals, the largest first."""
        return Ranking(
            rows,
            totals,
            subset=self.choice.host_subset_size,
            shuffle=self.choice.shuffle_best_same_weighed_hosts,
            rng=rng,
        )

    @property
    def choice(self) -> ChoiceParameters:
        """How many of the best hosts are chosen from."""
        found: ChoiceParameters = self.parameters
        return found


class NormalizedSum(Selector):
    """Nova's: scores are normalised to 0..1 between the lowest and the highest of the hosts left.

    A weight for which all hosts are equal adds nothing.
    """

    scale = NormalizedScale

    def scores(self, unit: Weigher, raw: Values) -> Values:
        return unit.normalized(raw)


class WeightedSum(Selector):
    """Scores count unchanged."""

    scale = RawScale

    def scores(self, unit: Weigher, raw: Values) -> Values:
        return raw


class RankSum(Selector):
    """A host scores its rank, 0 for the worst; equals share the better."""

    scale = RankScale

    def scores(self, unit: Weigher, raw: Values) -> Values:
        return ranks(raw)


class _OfOvirt(Selector):
    """A selector of oVirt: it has no parameters, and takes the best host, in order of the table."""

    parameters_type = NoParameters

    @property
    def choice(self) -> ChoiceParameters:
        return _THE_BEST


_THE_BEST = ChoiceParameters()


class BasicWeighting(_OfOvirt, WeightedSum):
    """oVirt's basic selector: scores count unchanged."""

    unit_id = "0c89f215-9c4f-4bbb-8419-31a2d43ae7ea"


class RankSelector(_OfOvirt, RankSum):
    """oVirt's rank selector: a host scores its rank, 0 for the worst; equals share the better."""

    unit_id = "b280e7de-5df8-401e-b004-a1414d79a687"
