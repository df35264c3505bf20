"""Units of others take their time under our locks: all of a decision's share half of its lease."""

from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_worker.backends.sandbox import pool
from scheduler_worker.backends.sandbox.pool import Sandboxes
from scheduler_worker.backends.sandbox.process import SandboxBroken
from scheduler_worker.errors import NoValidHost
from scheduler_worker.ports import Seen
from scheduler_worker.scheduling.external.units import Plugins, unit_class
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.requests.capacity import Capacity
from tests.support.clock import ManualClock
from tests.support.patience import SOON_S
from tests.support.sandboxes import settings
from tests.support.services import FILTERS, World, host, request
from tests.support.threads import Threads

LEASE_S = 10.0
HOSTS = ("uuid-a", "uuid-b")


class SlowSandbox:
    """Answers about a VM after some seconds of the world's clock; never is too late."""

    plugins = tuple({"name": f"Unit{number}", "kinds": {"filter": ""}} for number in range(6))
    isolation = ()
    refused = ()
    clock: ManualClock
    takes_s: "dict[str, float]"
    """By the instance; others are answered at once."""
    others_take_s = 0.0
    kept = HOSTS
    """The hosts that pass."""
    calls: "list[tuple[str, str]]"

    def __init__(self, file, fields):
        pass

    def call(self, asked, timeout_s):
        took_s = self.takes_s.get(asked["vm"], self.others_take_s)
        self.calls.append((asked["vm"], asked["plugin"]))
        self.clock.advance(min(took_s, timeout_s))
        if took_s > timeout_s:
            raise SandboxBroken("it did not answer in time")
        return list(self.kept)

    def close(self):
        pass


@pytest.fixture
def make(monkeypatch, tmp_path):
    """Makes worlds whose policy has six external filters."""

    def made(timeout_s=2.0, on_failure="pass", **limits):
        (tmp_path / "unit.py").write_text("")
        monkeypatch.setattr(pool, "Sandbox", SlowSandbox)
        monkeypatch.setattr(SlowSandbox, "takes_s", {}, raising=False)
        monkeypatch.setattr(SlowSandbox, "calls", [], raising=False)
        sandboxes = Sandboxes(
            settings(tmp_path, timeout_s=timeout_s, on_failure=on_failure, processes=8)
        )
        [file] = sandboxes.refresh()
        external: list[Any] = [unit_class(plugin) for plugin in file.classes]
        world = World(
            filters=(*FILTERS, *external), hold_timeout_s=LEASE_S, ordering="fifo", **limits
        )
        monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=world.clock.monotonic_s))
        monkeypatch.setattr(SlowSandbox, "clock", world.clock, raising=False)
        world.pipelines = Pipelines(
            world.pipelines.catalogue,
            world.pipelines.nova_policy,
            world.options,
            {Plugins: sandboxes},
        )
        world.report(host("a"), host("b"))
        return world

    return made


def queued_in_one_batch(world, *names):
    """The outcomes of requests that a leader takes together."""
    held = world.state.acquire("default", timeout_s=1, seen=Seen())
    with Threads(len(names)) as threads:
        asked = []
        for number, name in enumerate(names, 1):
            asked.append(threads.submit(world.place, name))
            world.await_queued(number)
        world.state.release(held)
        return [each.result(SOON_S) for each in asked]


def spent_s(world, work):
    begun_s = world.clock.monotonic_s()
    work()
    return world.clock.monotonic_s() - begun_s


def called(vm):
    return [unit for name, unit in SlowSandbox.calls if name == vm]


def test_six_units_that_hang_cost_half_a_lease_and_not_the_decision(make):
    world = make()
    SlowSandbox.takes_s["i1"] = 60.0
    assert spent_s(world, lambda: world.place("i1")) == LEASE_S / 2
    assert called("i1") == ["Unit0", "Unit1", "Unit2"], "the others had no time"
    assert world.observed.outcomes[-1].attempts == 1
    assert sum(world.reserved().values(), []) == ["i1"]


def test_what_stood_in_for_a_unit_without_time_is_not_kept(make, monkeypatch):
    world = make()
    SlowSandbox.takes_s["i1"] = 60.0
    world.place("i1")
    monkeypatch.setattr(SlowSandbox, "kept", ("uuid-b",))
    assert world.place("i2") == ["b"]
    assert len(called("i2")) == 6


def test_a_filter_without_time_refuses_if_it_is_to_refuse_when_it_fails(make):
    world = make(on_failure="refuse")
    SlowSandbox.takes_s["i1"] = 1.9
    with pytest.raises(NoValidHost) as refused:
        world.place("i1")
    assert len(called("i1")) == 3
    [note] = refused.value.diagnosis.notes
    assert note == "Unit2 failed, no host passes: it did not answer in time"


def test_all_instances_of_a_request_share_the_time_of_its_lease(make):
    world, instances = make(), ["i1", "i2", "i3"]
    SlowSandbox.takes_s.update(dict.fromkeys(instances, 0.5))
    assert spent_s(world, lambda: world.place(*instances)) <= LEASE_S / 2
    assert world.observed.outcomes[-1].attempts == 1
    assert (len(called("i1")), called("i3")) == (6, [])


def test_a_request_of_a_batch_is_not_decided_without_units_because_of_the_others(make):
    world = make()
    SlowSandbox.takes_s.update(first=0.1, second=0.8)
    assert all(queued_in_one_batch(world, "first", "second"))
    assert len(called("second")) > 6, "with what the first had left it came to the half"
    assert len(called("second")[-6:]) == len(set(called("second")[-6:])) == 6
    attempts = {each.instance_uuids[0]: each.attempts for each in world.observed.outcomes}
    assert attempts == {"first": 1, "second": 2}


def test_a_kept_lease_leaves_the_units_of_the_next_batch_their_time(make):
    world = make(max_batch=1)
    SlowSandbox.takes_s.update(first=0.8, second=0.8)
    assert all(queued_in_one_batch(world, "first", "second"))
    assert len(called("first")) == len(called("second")) == 6


def test_a_caller_that_waits_for_less_time_is_answered_in_half_of_it(make):
    world = make()
    SlowSandbox.takes_s["i1"] = 60.0
    assert world.ask("i1", remaining_s=5.0).claims


def test_the_units_of_several_clusters_share_the_time_of_the_first_lease(make):
    world = make()
    world.report(host("c", cluster="other"), host("d", cluster="other"))
    instances = ["i1", "i2", "i3"]
    SlowSandbox.takes_s.update(dict.fromkeys(instances, 60.0))
    assert len(world.ask(*instances, vcpus=4).claims) == 3
    assert not any(event[0] in {"hold expired", "fenced"} for event in world.observed.events)


def test_whoever_reads_hosts_leaves_a_leader_time(make):
    world = make()
    SlowSandbox.takes_s["i1"] = 60.0
    reading_s = spent_s(world, lambda: world.scheduler.explain(request("i1")))
    assert 2.0 <= reading_s < LEASE_S / 2 - 1.0
    SlowSandbox.calls.clear()
    world.place("i2")
    assert len(called("i2")) == 6


def test_capacity_is_counted_with_slow_units_for_a_bounded_time(make, monkeypatch):
    world = make()
    world.report(host("a", vcpus=1000, memory_mb=10**7))
    monkeypatch.setattr(SlowSandbox, "others_take_s", 0.25)
    counting = Capacity(
        world.fleet, lambda: world.pipelines, None, world.clock.monotonic_s, world.limits.ask_s
    )
    counted = []
    took_s = spent_s(world, lambda: counted.extend(counting.of([("s", request("i1").spec)])))
    assert took_s < 60
    assert not counted[0].is_exact
