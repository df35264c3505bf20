"""What becomes of the sandboxes of a file, and what is logged of its failures."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from scheduler_worker.backends.sandbox import pool
from scheduler_worker.backends.sandbox.pool import LOGGED_EVERY_S, Sandboxes
from scheduler_worker.errors import ExternalUnitFailed
from scheduler_worker.model.hosts import AskingTime
from scheduler_worker.scheduling.external.contract import read_filter
from scheduler_worker.scheduling.external.units import PluginCall
from tests.support.clock import ManualClock
from tests.support.sandboxes import settings


class FailingSandbox:
    """A sandbox without processes, each call of which fails."""

    plugins = ({"name": "Unit", "kinds": {"filter": ""}},)
    isolation = ()
    refused: Mapping[str, str] = MappingProxyType({})
    made: "list[FailingSandbox]"

    def __init__(self, file: Path, settings: object) -> None:
        self.is_closed = False
        self.made.append(self)

    def call(self, asked: object, timeout_s: float) -> object:
        raise ExternalUnitFailed("it failed")

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def clock(monkeypatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=clock.monotonic_s))
    monkeypatch.setattr(pool, "Sandbox", FailingSandbox)
    monkeypatch.setattr(FailingSandbox, "made", [], raising=False)
    return clock


@pytest.fixture
def made(clock, tmp_path) -> Sandboxes:
    (tmp_path / "unit.py").write_text("")
    return Sandboxes(settings(tmp_path))


def fail(made: Sandboxes) -> None:
    [[plugin]] = [file.classes for file in made.refresh()]
    question = PluginCall(plugin=plugin, hosts=[], vm="vm", properties={})
    assert made.ask(question, read_filter) is None


def test_a_file_that_is_read_again_ends_the_sandboxes_of_before(made, tmp_path):
    made.refresh()
    (tmp_path / "unit.py").write_text("another size")
    made.refresh()
    assert [each.is_closed for each in FailingSandbox.made] == [True, False]


@pytest.mark.parametrize(("left_s", "gets_s"), [(90.0, 60.0), (45.0, 45.0), (29.0, None)])
def test_a_call_gets_what_others_left_and_none_is_made_with_less_than_half(
    made, clock, monkeypatch, left_s, gets_s
):
    got_s: list[float] = []

    def call(_self: object, _asked: object, timeout_s: float) -> object:
        got_s.append(timeout_s)
        raise ExternalUnitFailed("it failed")

    monkeypatch.setattr(FailingSandbox, "call", call)
    [[plugin]] = [file.classes for file in made.refresh()]
    asking = AskingTime(clock.monotonic_s() + left_s)
    question = PluginCall(plugin=plugin, hosts=[], vm="vm", properties={}, asking=asking)
    assert made.ask(question, read_filter) is None
    assert got_s == ([] if gets_s is None else [gets_s])
    assert asking.has_run_out == (left_s < 60.0)


def test_a_class_that_goes_on_failing_is_logged_now_and_then_with_how_often(made, clock, caplog):
    said: list[Any] = []
    for after_s in (0.0, 1.0, LOGGED_EVERY_S - 1.0, 1.0, LOGGED_EVERY_S):
        clock.advance(after_s)
        caplog.clear()
        fail(made)
        said.append([each.getMessage() for each in caplog.records])
    once = "External filter Unit failed, all hosts pass: it failed"
    more = f"{once} (1 more failures since the last message)"
    assert said == [[once], [], [more], [], [more]]
