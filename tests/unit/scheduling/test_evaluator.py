"""Requests of which all units read the same are in one class."""

from collections import OrderedDict

import pytest

from scheduler_worker.model.providers import AllocationCandidates
from scheduler_worker.scheduling import evaluator
from scheduler_worker.scheduling.evaluator import EquivalenceClasses
from scheduler_worker.scheduling.plugin import Filter
from tests.support.hosts import request_spec


class Reader(Filter):
    """Reads vCPUs of requests with hints; counts how often it is asked."""

    def __init__(self):
        super().__init__()
        self.asked = 0

    def applies(self, spec):
        return spec.scheduler_hints is not None

    def reads(self, spec):
        self.asked += 1
        return spec.flavor.vcpus

    def passes(self, hosts, spec):
        raise NotImplementedError


class Silent(Reader):
    def reads(self, spec):
        return None


HINTS = {"a": ["b"]}


def test_requests_with_equal_reads_are_in_the_same_class():
    reader = Reader()
    of = EquivalenceClasses([reader]).of
    one = of(request_spec(vcpus=1, scheduler_hints=HINTS))
    assert one is of(request_spec(vcpus=1, scheduler_hints={"c": ["d"]}))
    assert one is not of(request_spec(vcpus=2, scheduler_hints=HINTS))
    assert one is not of(request_spec(vcpus=1))
    assert one.applying == {reader}
    assert not one.undeclared


def test_a_request_that_placement_was_asked_about_is_in_another_class_whatever_it_answered():
    class OfAnswers(Reader):
        def applies(self, spec):
            return spec.allocation_candidates is not None

    of = EquivalenceClasses([OfAnswers()]).of
    plain, *answered = (
        of(request_spec(vcpus=1, allocation_candidates=answer))
        for answer in (None, AllocationCandidates(), AllocationCandidates(by_root={"a": ()}))
    )
    assert [one.applying == plain.applying for one in answered] == [False, False]
    assert answered[0] is answered[1]


def test_units_are_asked_once_for_equal_content_of_any_instance():
    reader = Reader()
    of = EquivalenceClasses([reader]).of
    for number in range(3):
        of(request_spec(scheduler_hints=HINTS, instance_uuid=f"i{number}"))
    assert reader.asked == 1


def test_a_unit_that_does_not_declare_what_it_reads_stays_out_of_the_class():
    silent, reader = Silent(), Reader()
    of = EquivalenceClasses([silent, reader]).of
    one = of(request_spec(vcpus=1, scheduler_hints=HINTS))
    assert one.undeclared == {silent}
    assert one is of(request_spec(vcpus=1, scheduler_hints={"c": ["d"]}))
    assert one is not of(request_spec(vcpus=2, scheduler_hints=HINTS))
    assert not of(request_spec()).undeclared


@pytest.mark.parametrize("odd", [object(), "\ud800", 2**70, "x" * 10_000], ids=type)
def test_units_are_asked_again_for_content_that_cannot_be_encoded(odd):
    reader = Reader()
    of = EquivalenceClasses([reader]).of
    one, other = (request_spec(scheduler_hints=HINTS, numa_topology={"odd": odd}) for _ in "12")
    assert of(one) is of(other)
    assert reader.asked == 2


def test_the_memory_of_classes_is_bounded(monkeypatch):
    monkeypatch.setattr(evaluator, "_MOST_KNOWN", 10)
    known = EquivalenceClasses([Reader()])
    for number in range(100):
        known.of(request_spec(vcpus=number, scheduler_hints=HINTS))
    assert len(known._by_content) <= 10
    assert len(known._by_reads) <= 10


class Kept:
    def __init__(self, size):
        self.size = size


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ([10] * 6, 6),
        ([10] * 7, 6),
        ([17] * 4, 3),
        ([17] * 3 + [10], 3),
        ([20] * 3, 3),
        ([40, 10, 20], 3),
        ([40, 30, 20], 2),
        ([30, 90], 1),
        ([90], 1),
        ([], 0),
    ],
)
def test_the_cache_of_a_table_is_bounded(monkeypatch, sizes, left):
    monkeypatch.setattr(evaluator, "_CACHED_BYTES", 60)
    monkeypatch.setattr(evaluator, "_MANY_CACHED", 4)
    monkeypatch.setattr(evaluator, "_MOST_BYTES", 70)
    cache = OrderedDict((number, Kept(size)) for number, size in enumerate(sizes))
    evaluator._make_room(cache)  # type: ignore[arg-type]
    assert list(cache) == list(range(len(sizes)))[len(sizes) - left :]
