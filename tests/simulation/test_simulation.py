"""Thousands of runs in which everything breaks, and nothing that was promised."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from scheduler_worker.service.batch import Batch
from tests.simulation import plan as plans
from tests.simulation import runs
from tests.simulation.checker import Checker
from tests.simulation.simulation import play

SEEDS = 3_000
"""About a minute on two cores; ``make soak`` runs more."""
PROCESSES = 2
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_is_promised_is_kept_whatever_breaks(seed, capsys):
    pace, failed = runs.Pace(), []
    first, count = (0, SEEDS) if seed is None else (seed, 1)
    for done, bad in runs.failing_among(first, count, processes=PROCESSES if count > 1 else 1):
        pace.done += done
        failed += bad
    with capsys.disabled():
        print(f"  {pace}", end=" ")
    assert not failed, f"seeds {sorted(failed)}\n\n{runs.story(min(failed))}"


def test_a_seed_is_a_run():
    plan = plans.make("7")
    first, second = (list(map(str, play(plan).history.events)) for _ in range(2))
    assert first == second


def test_a_seed_is_the_same_run_in_every_process():
    stories = {_story_in_another_process(hash_seed) for hash_seed in ("1", "2")}
    assert len(stories) == 1


def _story_in_another_process(hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", "7"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    ).stdout


def test_another_seed_is_another_run():
    assert plans.make("1").deeds != plans.make("2").deeds


def test_dropping_deeds_leaves_a_plan():
    plan = plans.make("3")
    assert runs.violations(plan.only(plan.deeds[::2])) == []


def test_where_nothing_breaks_no_hold_runs_out():
    assert [hold for seed in range(40) for hold in holds_that_ran_out(seed)] == []


def test_a_hold_that_is_kept_for_nobody_is_found_out(monkeypatch):
    monkeypatch.setattr(Batch, "is_awaited", lambda _: True)
    assert any(holds_that_ran_out(seed) for seed in range(40))


def holds_that_ran_out(seed: int) -> list[str]:
    plan = plans.make(str(seed))
    calm = plan.only([each for each in plan.deeds if isinstance(each, plans.Ask | plans.Report)])
    setting = msgspec.structs.replace(calm.setting, hold_timeout_s=5.0, acquire_timeout_s=20.0)
    return Checker(play(msgspec.structs.replace(calm, setting=setting))).books.ran_out
