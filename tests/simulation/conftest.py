"""``pytest tests/simulation --seed 42`` runs one seed and prints its history when it fails.

The fixtures break a build in one place, and find out whether a checker notices.
"""

import inspect
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, islice
from typing import Any

import msgspec
import pytest

from scheduler_worker.backends.redis import connection
from scheduler_worker.backends.redis.nodes import Script
from tests.simulation.plan import Plan
from tests.simulation.preemption import marked_functions
from tests.simulation.scenes import SCENES

FRESH = 50
"""How many new seeds of each scene are run, beside those that are always the same."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="the one seed to simulate")
    parser.addoption("--fresh", type=int, default=FRESH, help="how many new seeds to simulate")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int | None:
    return request.config.getoption("seed", None)


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> int:
    # The option is unknown when more than this folder is run.
    return request.config.getoption("fresh", FRESH)


WITHIN = 400
"""So many seeds at most until a broken build is found out."""


Finds = Callable[..., str]


def in_module(name: str) -> dict[str, Any]:
    """Where threads are preempted."""
    return {"preempted": 0.3, "preempted_in": name}


def always(_: Plan) -> bool:
    return True


@pytest.fixture
def found_out(monkeypatch: pytest.MonkeyPatch) -> Finds:
    """Finds a violation; the unbroken build has none in the same run."""
    marked_functions()

    def find(
        what: str,
        where: Callable[[Plan], object] = always,
        seed: int = 0,
        scene: str = "placing",
        **setting: Any,
    ) -> str:
        seeds = chain([seed], count())  # the one that found it last comes first
        violations = SCENES[scene].violations
        for tried, plan in islice(plans(SCENES[scene].make, seeds, where, setting), WITHIN):
            for violation in violations(plan):
                if what in violation.what:
                    if tried != seed:
                        test = os.environ["PYTEST_CURRENT_TEST"]
                        print(f"{test}: found by seed {tried}, which is to be written down")
                    monkeypatch.undo()
                    assert violations(plan) == []
                    return f"{tried}: {violation}"
        pytest.fail(f"{WITHIN} seeds had no violation with: {what}")

    return find


def plans(
    make: Callable[[str], Plan],
    seeds: Iterable[int],
    where: Callable[[Plan], object],
    setting: dict[str, Any],
) -> Iterator[tuple[int, Plan]]:
    for seed in seeds:
        plan = make(str(seed))
        if where(plan):
            changed = msgspec.structs.replace(plan.setting, **setting)
            yield seed, msgspec.structs.replace(plan, setting=changed)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, Any], None]:
    return monkeypatch.setattr


@pytest.fixture
def rebuilt(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str, str, str], None]:
    """Replaces a text in the source of a method."""

    def rebuild(owner: type, name: str, old: str, new: str) -> None:
        method = inspect.unwrap(getattr(owner, name))
        source = textwrap.dedent(inspect.getsource(method))
        assert old in source
        found: dict[str, Any] = {}
        exec(source.replace(old, new), method.__globals__, found)
        monkeypatch.setattr(owner, name, found[name])

    return rebuild


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Replaces a text in the named script, or in their common part."""

    def rewrite(name: str, old: str, new: str) -> None:
        read = connection._script
        assert old in read(connection.SCRIPTS[0] if name == "common" else name).text

        def script(each: str) -> Script:
            found = read(each)
            return Script(found.text.replace(old, new)) if name in {each, "common"} else found

        monkeypatch.setattr(connection, "_script", script)

    return rewrite
