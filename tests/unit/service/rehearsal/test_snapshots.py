"""Copies of decisions and hosts survive a file, and say where one is broken."""

import pytest

from scheduler_worker.errors import ConfigError
from scheduler_worker.model.decision_history import (
    DecisionDetails,
    DecisionId,
    DecisionSummary,
    KeptDecision,
    Position,
)
from scheduler_worker.ports import GLOBAL
from scheduler_worker.service.rehearsal import snapshots
from scheduler_worker.service.rehearsal.snapshots import Snapshot
from tests.support.services import World, host, request

SNAPSHOT = Snapshot(17.5, {GLOBAL: {"c:default": "{}"}, "default": {"h:u": '{"uuid": "u"}'}})
OUTLINE = DecisionSummary(
    decided_at_s=1.0, worker="w", result="placed", instances=("i",), hosts=("a",)
)


def kept(number: int, details: DecisionDetails | None) -> KeptDecision:
    return KeptDecision(DecisionId(Position(1000, number), "default"), OUTLINE, details)


def test_pages_of_any_size_make_the_same_snapshot():
    world = World()
    world.report(host("a", instances=[{"uuid": "i1"}]), host("b"), host("c", cluster="east"))
    world.ask("i2")
    said: list[tuple[int, int, int]] = []
    paged = snapshots.assembled(
        lambda *asked: snapshots.page_of(world.fleet, *asked, limit=1),
        lambda *far: said.append(far),
    )
    assert paged == snapshots.snapshot_of(world.fleet)
    assert {name: len(found) for name, found in paged.clusters.items()} == {"default": 4, "east": 1}
    assert [said[0], said[-1]] == [(0, 2, 1), (2, 2, 5)]


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "copies"
    decisions = [kept(1, DecisionDetails(spec=request("i").spec, priority=3)), kept(0, None)]
    snapshots.write(path, SNAPSHOT, decisions)
    assert snapshots.read(path) == (SNAPSHOT, decisions)


def test_a_file_that_was_half_written_is_refused_with_the_place(tmp_path):
    path = tmp_path / "copies"
    snapshots.write(path, SNAPSHOT, [kept(1, None), kept(0, None)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="copies: is no copy, at decision 2"):
        snapshots.read(path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"now_s": 1, "scopes": {}, "more": 1}'])
def test_what_is_no_copy_is_refused(tmp_path, text):
    path = tmp_path / "copies"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is no copy, at its beginning"):
        snapshots.read(path)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        snapshots.write(tmp_path / "none" / "copies", SNAPSHOT, [])
    with pytest.raises(ConfigError, match="cannot be read"):
        snapshots.read(tmp_path / "none")
