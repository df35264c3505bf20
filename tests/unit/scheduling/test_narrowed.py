"""Results of a class that are narrowed to a request: as if all filters had been asked at once."""

import numpy as np
import pytest

from scheduler_worker.scheduling.filter_results import FilterResults
from scheduler_worker.scheduling.plugin import Filter
from tests.support.hosts import host_record, host_table, request_spec

NAMES = "abcdef"
SPEC = request_spec()


class Passing(Filter):
    """Passes the hosts of these names."""

    def __init__(self, names: str) -> None:
        super().__init__()
        self.names = names

    def passes(self, hosts, spec):
        return np.array([name in self.names for name in NAMES])


class First(Passing):
    pass


class Own(Passing):
    """Is asked for each request."""


class Use(Passing):
    reads_use = True
    run_filter_once_per_request = True


class Last(Passing):
    reads_use = True
    run_filter_once_per_request = True
    runs_on_forced_hosts = True


class NeverAsked(Filter):
    def passes(self, hosts, spec):
        raise NotImplementedError


def shown(results) -> tuple:
    rows = range(len(NAMES))
    return (
        results.survivors.tolist(),
        results.passed,
        results.diagnosis(),
        [results.rejected_by(row) for row in rows],
        [results.rejected_once(row) for row in rows],
    )


CHAIN = (First("abcde"), Use("abcdf"), Last("abce"))
OWN = ["", "a", "ab", "abdf", "cdef", "bcdef", "abc", "abcd", "abcde", "abcdef"]


def left(filters) -> str:
    return "".join(name for name in NAMES if all(name in unit.names for unit in filters))


@pytest.fixture
def hosts():
    return host_table(host_record(host=name) for name in NAMES)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("own", OWN)
def test_a_filter_keeps_its_place_though_it_is_asked_later(hosts, place, own):
    unit = Own(own)
    filters = [*CHAIN[:place], unit, *CHAIN[place:]]
    kept = FilterResults(hosts, SPEC, filters, left_out={unit})
    before = shown(kept)
    narrowed = kept.narrowed(hosts, SPEC, [unit], [])
    assert shown(narrowed) == shown(FilterResults(hosts, SPEC, filters))
    assert shown(kept) == before, "other requests of the class have it, too"
    is_any_rejected = any(name not in own for name in left(CHAIN[:place]))
    assert (narrowed is kept) is not is_any_rejected


@pytest.mark.parametrize("own", OWN)
def test_a_filter_that_declares_nothing_comes_last(hosts, own):
    unit = Own(own)
    kept = FilterResults(hosts, SPEC, [*CHAIN, unit], left_out={unit})
    before = shown(kept)
    narrowed = kept.narrowed(hosts, SPEC, [], [unit])
    assert shown(narrowed) == shown(FilterResults(hosts, SPEC, [*CHAIN, unit]))
    assert shown(kept) == before
    assert (narrowed is kept) is all(name in own for name in left(CHAIN))


def test_a_filter_is_not_needed_once_all_hosts_were_rejected(hosts):
    unit = Own("")
    kept = FilterResults(hosts, SPEC, [First("ab"), Use("cd"), unit], left_out={unit})
    assert kept.narrowed(hosts, SPEC, [unit], [NeverAsked()]) is kept
