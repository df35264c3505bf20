"""``pytest tests/simulation --seed 42`` runs one seed and prints its history when it fails."""

import pytest

FRESH = 150
"""How many new seeds are run, beside those that are always the same."""


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
