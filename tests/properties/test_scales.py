"""Scores that are updated host by host are those of weighing all hosts afresh, to the last bit."""

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.scheduling.ovirt import formulas
from scheduler_worker.scheduling.ovirt.weights import EvenMemoryWeight, PackedMemoryWeight
from scheduler_worker.scheduling.plugin import Weigher
from scheduler_worker.scheduling.scales import Scale
from scheduler_worker.scheduling.selectors import NormalizedSum, RankSum, Selector, WeightedSum
from tests.support.hosts import request_spec
from tests.support.trials import examples
from tests.support.units import made

SPEC = request_spec(memory_mb=700)
MIGRATING = request_spec(memory_mb=700, vm={"run_on": "there"})
SELECTORS = (NormalizedSum, RankSum, WeightedSum)


class Given(Weigher):
    """A raw score is what the test says: a number takes the place of a host."""

    reads_request = False

    def weigh(self, hosts, spec):
        return np.array([float(self.weigh_host(each, spec)) for each in hosts])

    def weigh_host(self, host_state, weight_properties):
        return host_state


class Bounded(Given):
    minval, maxval = 1.0, 4.0


class Reciprocal(Given):
    """Some raw scores are infinite."""

    def weigh_host(self, host_state, weight_properties):
        return 1.0 / host_state if host_state else math.inf


class Spread(Given):
    def rescaled(self, raw, low, high, spec):
        return formulas.rescaled(raw, low, high)


class BoundedSpread(Spread):
    maxval = 700.0


class ShareOfBest(Given):
    """Stretched scores that are no integers."""

    def rescaled(self, raw, low, high, spec):
        return raw / high if high > 0 else np.zeros(len(raw))


class EvenMemory(Given, EvenMemoryWeight):
    pass


class PackedMemory(Given, PackedMemoryWeight):
    pass


KINDS = (Given, Bounded, Reciprocal, Spread, BoundedSpread, ShareOfBest, EvenMemory, PackedMemory)
scores = st.one_of(
    st.integers(-3, 9).map(float),
    st.sampled_from([-0.0, 0.5, 1e6, 7e6, math.nan]),
    st.floats(-1e4, 1e4).map(lambda score: round(score, 3)),
)
kinds = st.sampled_from(["put", "put", "put all", "insert", "delete"])
changes = st.tuples(kinds, st.integers(0, 99), scores)


def expected(selector: Selector, unit: Weigher, factor: float, raw: list[Any], spec) -> list:
    """What each host gets, from all raw scores at once."""
    own = np.array([unit.weigh_host(each, spec) for each in raw])
    if unit.rescales:
        own = unit.rescaled(own, np.fmin.reduce(own), np.fmax.reduce(own), spec)
    least = -math.inf if unit.minval is None else unit.minval
    most = math.inf if unit.maxval is None else unit.maxval
    own = np.clip(np.where(np.isfinite(own), own, 0.0), least, most)
    ends = [
        own.min() if unit.minval is None else unit.minval,
        own.max() if unit.maxval is None else unit.maxval,
    ]
    if unit.lower_is_better:
        own, ends = -own, [-ends[1], -ends[0]]
    if isinstance(selector, NormalizedSum):
        low, high = ends
        own = np.zeros(len(own)) if low == high else (own - low) / (high - low)
    elif isinstance(selector, RankSum):
        own = np.array([(own <= each).sum() - 1.0 for each in own])
    return (factor * own).tolist()


def products(scale: Scale) -> list[float]:
    return scale.every_product().tolist()


def changed(scale: Scale, raw: list[Any], spec, change: tuple[str, int, Any]) -> list[int]:
    """Apply a change; the positions that it touched."""
    kind, at, score = change
    at %= len(raw)
    if kind == "delete" and len(raw) > 2:
        del raw[at]
        scale.delete(at)
        return []
    if kind == "put all":
        places = sorted({at, (at + 2) % len(raw)})
        for number, place in enumerate(places):
            raw[place] = score + number
        some: Any = [raw[place] for place in places]
        scale.put_all(np.array(places), some, spec)
        return places
    if kind == "insert":
        raw.insert(at, score)
        scale.insert(at, score, spec)
    else:
        raw[at] = score
        scale.put(at, score, spec)
    return [at]


ALL = [
    (made(type(f"{kind.__name__} as cost {is_cost}", (kind,), {"lower_is_better": is_cost})), each)
    for kind in KINDS
    for each in map(made, SELECTORS)
    for is_cost in (False, True)
]


# To draw changes costs more than to make them with each weigher and selector.
@examples(40)
@given(
    raw=st.lists(scores, min_size=2, max_size=12),
    rounds=st.lists(st.lists(changes, max_size=4), max_size=6),
    factor=st.sampled_from([1.0, 2.0, -0.1]),
    spec=st.sampled_from([SPEC, MIGRATING]),
    left_out=st.sets(st.integers(0, 35), max_size=34),
)
def test_updated_scores_are_those_of_weighing_afresh(raw, rounds, factor, spec, left_out):
    for unit, selector in ALL:
        check(unit, selector, list(raw), rounds, factor, spec, left_out)


def check(unit: Weigher, chosen: Selector, raw, rounds, factor, spec, left_out) -> None:
    about = type(unit).__name__, type(chosen).__name__
    own = np.array([unit.weigh_host(each, spec) for each in raw])
    scale = chosen.scale(unit, spec, factor, own)
    assert products(scale) == expected(chosen, unit, factor, raw, spec), about
    for each in rounds:
        touched: list[int] = []
        for name, at, score in each:
            before = len(raw)
            places = changed(scale, raw, spec, (name, at, score))
            at %= before
            if len(raw) > before:
                touched = [other + (other >= at) for other in touched]
            elif len(raw) < before:
                touched = [other - (other > at) for other in touched if other != at]
            touched += places
        scale.update_products(np.array(sorted(set(touched)), dtype=np.intp))
        assert products(scale) == expected(chosen, unit, factor, raw, spec), about
    some = sorted(each for each in left_out if each < len(raw))[: len(raw) - 2]
    rest = [score for at, score in enumerate(raw) if at not in some]
    wanted = expected(chosen, unit, factor, rest, spec)
    others = np.array(some, dtype=np.intp)
    assert products(scale.without(others)) == wanted, about
    if scale.unchanged_without(others):
        assert np.delete(products(scale), others).tolist() == wanted, about
