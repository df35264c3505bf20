"""Copies of requests: what is decided, when it is compared, and what is said."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_worker import events
from scheduler_worker.errors import NoValidHost
from scheduler_worker.service.requests.comparison import DryRunSettings
from scheduler_worker.service.requests.dry_run import DryRun
from tests.support.services import World, host, request

WAIT_S = 120.0


class Bed:
    """A world with hosts of different free memory, a dry run on it, and where Nova puts things."""

    def __init__(self, barrier: Any = None, **settings) -> None:
        self.world = World()
        if barrier is not None:
            self.world.feed(barrier)
        self.results = self.world.observed.of(events.DRY_RUN)
        self.world.report(
            host("big", memory_mb=16384), host("twin", memory_mb=16384), host("small")
        )
        self.dry_run = DryRun(
            self.world.scheduler,
            self.world.fleet,
            self.world.clock,
            settings=DryRunSettings(wait_s=WAIT_S, **settings),
            observer=self.world.observed,
        )

    @property
    def waiting(self) -> int:
        return len(self.dry_run._pending)

    def put(self, name: str, *instances: str) -> None:
        """Nova's database has these on a host."""
        listed = [{"uuid": each} for each in instances]
        self.world.report({"host": name, "uuid": f"uuid-{name}", "instances": listed})

    def look(self, after_s: float = 1.0) -> dict[str, int]:
        self.world.clock.advance(after_s)
        self.dry_run.run_due()
        return dict(self.results)


@pytest.fixture
def bed() -> Bed:
    bed = Bed()
    bed.put("twin", "filler")
    bed.world.report({"host": "twin", "uuid": "uuid-twin", "memory_mb_used": 1024})
    return bed


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "scheduler_worker.service.requests")
    return lambda: [record.getMessage() for record in caplog.records]


def test_the_same_host_is_the_same_and_nothing_is_reserved(bed, said):
    bed.dry_run.take(request("i1"))
    assert bed.world.reserved() == {}
    assert bed.look() == {}
    bed.put("big", "i1")
    assert bed.look() == {"same": 1}
    assert said() == []
    assert bed.waiting == 0


@pytest.mark.parametrize(
    ("memory_mb", "result", "texts"),
    [
        (512, "differs", ["instance i1", "it is on small, and would be on big here",
                          "small weighs 1.5, big 2 (RAMWeigher +0.5)"]),
        (12_000, "differs", ["small is rejected here by RamFilter", "12000"]),
        (100_000, "refused_here", ["it is on small, and is refused here: small is rejected by"]),
    ],
)  # fmt: skip
def test_what_differs_is_told_with_the_weighers_or_the_filters_reason(
    bed, said, memory_mb, result, texts
):
    bed.dry_run.take(request("i1", memory_mb=memory_mb))
    bed.put("small", "i1")
    assert bed.look() == {result: 1}
    [line] = said()
    assert [text for text in texts if text not in line] == []


def test_another_host_of_the_same_weight_is_as_good(said):
    bed = Bed()
    bed.dry_run.take(asked := request("i1"))
    [chosen], _ = bed.world.scheduler.rehearse(asked, limit=10)
    bed.put({"big": "twin", "twin": "big"}[chosen], "i1")
    assert bed.look() == {"as_good": 1}
    assert said() == []


def test_any_of_the_best_is_as_good_where_one_is_taken_at_random():
    bed = Bed(subset_size=3)
    bed.dry_run.take(request("i1"))
    bed.put("small", "i1")
    assert bed.look() == {"as_good": 1}


def test_instances_of_one_request_are_alike(bed):
    bed.dry_run.take(request("i1", "i2", "i3"))
    ours, _ = bed.world.scheduler.rehearse(request("i1", "i2", "i3"), limit=10)
    assert len(ours) == 3
    listed: dict[str, list[str]] = {}
    for uuid, name in zip(("i3", "i1", "i2"), ours, strict=True):
        listed.setdefault(name, []).append(uuid)
    for name, uuids in listed.items():
        bed.put(name, *uuids)
    assert bed.look() == {"same": 3}


def test_an_instance_that_does_not_show_is_waited_for_and_then_given_up(bed, said):
    bed.dry_run.take(request("i1"))
    assert bed.look(WAIT_S - 1) == {}
    assert bed.look(1) == {"not_seen": 1}
    assert bed.waiting == 0
    assert [each for each in said() if "i1" in each] == []


def test_a_move_is_over_when_the_instance_is_on_another_host(bed):
    bed.put("small", "i1")
    bed.dry_run.take(request("i1", ignore_hosts=["small"]))
    assert bed.look() == {}
    bed.put("small")
    bed.put("big", "i1")
    assert bed.look() == {"same": 1}


def test_a_build_that_shows_before_its_copy_is_compared_at_once(bed):
    bed.put("small", "i1")
    bed.dry_run.take(request("i1"))
    assert bed.look() == {"differs": 1}


def test_while_others_are_under_way_a_lighter_host_is_no_difference(bed, said):
    bed.dry_run.take(request("i1"))
    bed.dry_run.take(request("i2"))
    bed.put("big", "i1")
    bed.put("small", "i2")
    assert bed.look() == {"same": 1, "overlapped": 1}
    assert "overlapped" in said()[0]


def test_the_last_of_two_requests_for_an_instance_counts(bed):
    bed.dry_run.take(request("i1", memory_mb=100_000))
    bed.dry_run.take(request("i1"))
    assert bed.waiting == 1
    bed.put("big", "i1")
    assert bed.look() == {"same": 1}


def test_only_so_many_are_waited_for():
    bed = Bed(max_requests=2)
    for number in range(3):
        bed.dry_run.take(request(f"i{number}"))
    assert bed.waiting == 2
    assert bed.results == {"dropped": 1}


def test_a_rebuild_check_is_not_compared(bed):
    bed.dry_run.take(request("i1", scheduler_hints={"_nova_check_type": ["rebuild"]}))
    assert bed.waiting == 0


def test_nothing_is_decided_before_all_hosts_are_known():
    bed = Bed(SimpleNamespace(readiness=SimpleNamespace(unready=lambda: "reading")))
    with pytest.raises(NoValidHost, match="reading"):
        bed.dry_run.take(request("i1"))
    assert bed.waiting == 0


def test_a_summary_is_logged_every_minute_and_at_the_end(bed, said):
    bed.dry_run.take(request("i1"))
    bed.put("big", "i1")
    bed.look(60)
    assert said()[-1] == "Dry run: 1 same; 0 requests are waited for"
    bed.dry_run.stop()
    assert said()[-1] == "Dry run: nothing compared; 0 requests are waited for"


def test_a_host_that_is_not_known_here_is_said_to_be(bed, said):
    bed.dry_run.take(request("i1"))
    bed.world.report(host("new"))
    bed.put("new", "i1")
    bed.look()
    assert "new weighs" in said()[0]
    assert "by now" in said()[0]
