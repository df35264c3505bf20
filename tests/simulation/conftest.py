"""``pytest tests/simulation --seed 42`` runs one seed and prints its history when it fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import SEARCH_S

HERE = Path(__file__).parent

FRESH = 100 if os.environ.get("CI") else 0
"""How many new seeds are run beside those that are always the same."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="the one seed to simulate")
    parser.addoption("--fresh", type=int, default=FRESH, help="how many new seeds to simulate")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The limit ends pytest: an exception might be caught by the code that is simulated."""
    for each in items:
        if HERE in each.path.parents:
            each.add_marker(pytest.mark.timeout(SEARCH_S, method="thread"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int | None:
    return request.config.getoption("seed", None)


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> int:
    # The option is unknown when more than this folder is run.
    return request.config.getoption("fresh", FRESH)
