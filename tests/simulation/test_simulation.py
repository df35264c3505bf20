"""Thousands of runs with faults of all kinds, in which the guarantees hold."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SEARCH_S
from tests.simulation import plan as plans
from tests.simulation import runs
from tests.simulation.simulation import play
from tests.support.patience import PROCESS_S

SEEDS = 1_000
"""Some two minutes on two idle cores; ``make soak`` runs more."""
PROCESSES = 2
ROOT = Path(__file__).parents[2]


@pytest.mark.deep
@pytest.mark.timeout(SEARCH_S, method="signal")  # other processes simulate
def test_the_guarantees_hold_under_all_faults(seed, capsys):
    first, count = (0, SEEDS) if seed is None else (seed, 1)
    run(first, count, capsys)


@pytest.mark.timeout(SEARCH_S, method="signal")  # other processes simulate
def test_the_guarantees_hold_under_new_seeds(fresh, seed, capsys):
    if seed is not None:
        pytest.skip("one seed is asked for")
    run(secrets.randbelow(10**9) + SEEDS, fresh, capsys)


def run(first: int, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    pace, failed = runs.Pace(), []
    for done, bad in runs.failing_among(first, count, processes=PROCESSES if count > 1 else 1):
        pace.done += done
        failed += bad
    with capsys.disabled():
        print(f"  from seed {first} {pace}", end=" ")
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
        command,
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=True,
    ).stdout


def test_another_seed_is_another_run():
    assert plans.make("1").deeds != plans.make("2").deeds


def test_dropping_deeds_leaves_a_plan():
    plan = plans.make("3")
    assert runs.violations(plan.only(plan.deeds[::2])) == []
