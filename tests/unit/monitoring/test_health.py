"""Asking a worker that may hang."""

import threading

from scheduler_worker.monitoring import Load, Monitor, stalled
from scheduler_worker.monitoring.health import Readiness


def test_the_answer_is_kept_for_a_while():
    asked = []
    readiness = Readiness(lambda: asked.append(1) or ["the state"], fresh_s=60.0)
    assert readiness.missing() == ["the state"]
    assert readiness.missing() == ["the state"]
    assert len(asked) == 1


def test_an_old_answer_is_asked_for_again():
    answers = [["the state"], []]
    readiness = Readiness(lambda: answers.pop(0), fresh_s=-1.0)
    assert readiness.missing() == ["the state"]
    assert readiness.missing() == []


def test_a_worker_that_hangs_is_not_waited_for_nor_asked_twice():
    let_go = threading.Event()
    asked = []

    def hang():
        asked.append(1)
        let_go.wait()
        return []

    readiness = Readiness(hang, fresh_s=60.0, patience_s=0.01)
    assert readiness.missing() == ["the state does not answer within 0.01 s"]
    assert readiness.missing() == ["the state does not answer within 0.01 s"]
    assert readiness.last() == []
    assert len(asked) == 1
    let_go.set()


def test_a_question_that_fails_is_an_answer_without_secrets():
    def fail():
        raise OSError("redis://u:hush@h/ is away")

    assert Readiness(fail).missing() == ["OSError: redis://***@h/ is away"]


def test_the_last_answer_is_there_without_waiting():
    readiness = Readiness(lambda: ["the bus"], fresh_s=60.0)
    readiness.missing()
    assert readiness.last() == ["the bus"]


def test_a_thread_that_did_not_tick_for_long_hangs():
    assert stalled(29.9, 30.0) is None
    assert stalled(31.0, 30.0) == "no sign of life of the thread that moves messages for 31.0 s"


class Worker:
    """A worker as a monitor sees it."""

    def __init__(self):
        self.hung = None
        self.lacks = []

    def is_alive(self):
        return self.hung

    def missing(self):
        return self.lacks

    def load(self):
        return Load()

    def describe(self):
        return {}


def test_a_monitor_without_a_port_listens_nowhere():
    monitor = Monitor(Worker())
    monitor.start()
    assert monitor.port == 0
    monitor.stop()
