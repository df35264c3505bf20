"""Requests that all units judge alike are of one class."""

import pytest

from scheduler_worker.scheduling import classes
from scheduler_worker.scheduling.classes import Classes
from scheduler_worker.scheduling.plugin import Filter
from tests.support.hosts import request_spec


class Reader(Filter):
    """Looks at vCPUs where there are any hints; counts how often it is asked."""

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


def test_requests_that_are_read_alike_are_of_the_same_class():
    reader = Reader()
    of = Classes([reader]).of
    one = of(request_spec(vcpus=1, scheduler_hints=HINTS))
    assert one is of(request_spec(vcpus=1, scheduler_hints={"c": ["d"]}))
    assert one is not of(request_spec(vcpus=2, scheduler_hints=HINTS))
    assert one is not of(request_spec(vcpus=1))
    assert one.applying == {reader}
    assert one.is_told


def test_the_same_content_is_asked_about_once_whatever_the_instance():
    reader = Reader()
    of = Classes([reader]).of
    for number in range(3):
        of(request_spec(scheduler_hints=HINTS, instance_uuid=f"i{number}"))
    assert reader.asked == 1


def test_who_does_not_tell_what_it_reads_leaves_no_class():
    assert not Classes([Silent()]).of(request_spec(scheduler_hints=HINTS)).is_told
    assert Classes([Silent()]).of(request_spec()).is_told


@pytest.mark.parametrize("odd", [object(), "\ud800", 2**70, "x" * 10_000], ids=type)
def test_what_cannot_be_remembered_is_asked_about_again(odd):
    reader = Reader()
    of = Classes([reader]).of
    one, other = (request_spec(scheduler_hints=HINTS, numa_topology={"odd": odd}) for _ in "12")
    assert of(one) is of(other)
    assert reader.asked == 2


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(classes, "_MOST_KNOWN", 10)
    known = Classes([Reader()])
    for number in range(100):
        known.of(request_spec(vcpus=number, scheduler_hints=HINTS))
    assert len(known._by_content) <= 10
    assert len(known._by_reads) <= 10
