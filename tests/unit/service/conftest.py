"""The small world that most tests of use cases begin with."""

import pytest

from tests.support.services import World


@pytest.fixture
def world() -> World:
    return World()
