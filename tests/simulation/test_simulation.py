"""Thousands of runs with faults of all kinds, in which the guarantees hold."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SEARCH_S
from tests.simulation import plan as plans
from tests.simulation import runs
from tests.simulation.machine import Machine, Process
from tests.simulation.scenes import SCENES
from tests.simulation.shrink import shortest
from tests.support.patience import PROCESS_S

SEEDS = 500
"""Of each scene; some minutes on two idle cores; ``make soak`` runs more."""
of_each_scene = pytest.mark.parametrize("scene", SCENES)


@of_each_scene
@pytest.mark.deep
@pytest.mark.timeout(SEARCH_S, method="signal")  # other processes simulate
def test_the_guarantees_hold_under_all_faults(scene, seed, capsys):
    first, count = (0, SEEDS) if seed is None else (seed, 1)
    run(scene, first, count, capsys)


@of_each_scene
@pytest.mark.timeout(SEARCH_S, method="signal")  # other processes simulate
def test_the_guarantees_hold_under_new_seeds(scene, fresh, seed, capsys):
    if seed is not None:
        pytest.skip("one seed is asked for")
    run(scene, secrets.randbelow(10**9) + SEEDS, fresh, capsys)


def run(scene: str, first: int, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    *_, (pace, failed) = runs.search(scene, first, count, processes=2 if count > 1 else 1)
    with capsys.disabled():
        print(f"  {scene} from seed {first} {pace}", end=" ")
    assert not failed, f"{scene}: seeds {sorted(failed)}\n\n{runs.story(scene, min(failed))}"


@of_each_scene
def test_a_seed_is_a_run(scene):
    scene = SCENES[scene]
    plan = scene.make("7")
    first, second = (list(map(str, scene.play(plan).history.events)) for _ in range(2))
    assert first == second


@of_each_scene
def test_a_seed_is_the_same_run_in_every_process(scene):
    command, root = [sys.executable, "-m", "tests.simulation", "7"], Path(__file__).parents[2]
    command += ["--scene", scene]
    first, second = (
        subprocess.check_output(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, cwd=root, timeout=PROCESS_S
        )
        for seed in ("1", "2")
    )
    assert first == second


def test_an_exception_of_a_thread_is_reported():
    error, machine = ValueError("no"), Machine("seed")

    def work() -> None:
        raise error

    machine.spawn(Process("p"), work)
    machine.run(1.0)
    assert machine.broken == [("p", error)]


def test_a_failing_plan_loses_the_deeds_that_its_failure_does_not_need():
    def kinds(plan: plans.Plan) -> set[type[plans.Deed]]:
        return {type(deed) for deed in plan.deeds}

    needed = {plans.Ask, plans.Crash}
    plan = next(plan for plan in map(plans.make, map(str, range(50))) if needed <= kinds(plan))
    found = shortest(plan, lambda each: needed <= kinds(each))
    assert len(found.deeds) == 2
    [ask] = [deed for deed in found.deeds if isinstance(deed, plans.Ask)]
    assert (ask.tries, len(ask.instances), ask.then) == (1, 1, "forget")
    assert shortest(plan, lambda each: each.deeds == plan.deeds) == plan
