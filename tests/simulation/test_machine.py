"""Threads that take turns."""

from __future__ import annotations

import pytest

from tests.simulation.machine import Condition, Event, Lock, Machine, Process


@pytest.fixture
def machine() -> Machine:
    return Machine("seed")


def test_time_jumps_to_what_is_due(machine):
    woken_s = []

    def sleep(seconds):
        machine.sleep(seconds)
        woken_s.append(machine.now_s)

    for seconds in (30.0, 10.0, 20.0):
        machine.spawn(Process("p"), sleep, seconds)
    machine.run(25.0)
    assert (woken_s, machine.now_s) == ([10.0, 20.0], 25.0)


def test_a_lock_has_one_holder_at_a_time(machine):
    lock, inside, process = Lock(machine), [], Process("p", is_preempted=True)

    def work():
        with lock:
            inside.append(1)
            machine.sleep(1.0)
            assert inside.pop() and not inside

    for _ in range(5):
        machine.spawn(process, work)
    machine.run(4.5)
    assert (len(process.threads), machine.broken) == (1, [])
    machine.run(10.0)
    assert not process.threads


def test_a_thread_may_take_a_reentrant_lock_again(machine):
    lock, done = Lock(machine, is_reentrant=True), []

    def work():
        with lock, lock:
            machine.sleep(1.0)
        done.append(machine.now_s)

    for _ in range(2):
        machine.spawn(Process("p"), work)
    machine.run(10.0)
    assert done == pytest.approx([1.0, 2.0])


def test_a_condition_wakes_its_waiters_or_times_out(machine):
    condition, seen = Condition(machine), []

    def wait(timeout_s):
        with condition:
            seen.append(condition.wait(timeout_s))

    machine.spawn(Process("p"), wait, 1.0)
    machine.run(2.0)
    machine.spawn(Process("p"), wait, None)
    machine.run(3.0)
    condition.notify_all()
    machine.run(3.0)
    assert seen == [False, True]


def test_an_event_stays_set(machine):
    event, seen = Event(machine), []
    machine.spawn(Process("p"), lambda: seen.append(event.wait(1.0)))
    machine.run(1.0)
    event.set()
    machine.spawn(Process("p"), lambda: seen.append(event.wait()))
    machine.run(1.0)
    assert seen == [False, True]


def test_a_paused_process_goes_on_later(machine):
    process, woken_s = Process("p"), []

    def work():
        machine.sleep(1.0)
        woken_s.append(machine.now_s)

    machine.spawn(process, work)
    machine.at(0.5, lambda: machine.pause(process, 5.0))
    machine.run(10.0)
    assert woken_s == [5.5]


def test_the_cleanup_of_a_killed_thread_cannot_block(machine):
    process, left = Process("p"), []

    def work():
        try:
            machine.sleep(10.0)
        finally:
            left.append("tidied")
            machine.sleep(1.0)
            left.append("slept")

    machine.spawn(process, work)
    machine.at(1.0, lambda: machine.kill(process))
    machine.run(20.0)
    assert (left, process.threads, machine.broken) == (["tidied"], {}, [])


def test_an_exception_of_a_thread_is_reported(machine):
    error = ValueError("no")

    def work():
        raise error

    machine.spawn(Process("p"), work)
    machine.run(1.0)
    assert machine.broken == [("p", error)]
