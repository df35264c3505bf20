"""What most tests of use cases, of operations and of the REST API begin with; a certificate."""

import pytest

from tests.support.certificates import SOME
from tests.support.clock import ManualClock
from tests.support.rest import Rest
from tests.support.services import World


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def rest() -> Rest:
    """Clusters ``east`` and ``west``, with a host each."""
    return Rest("east", "west")


@pytest.fixture
def pem(tmp_path) -> str:
    """The path of an expired certificate."""
    path = tmp_path / "some.pem"
    path.write_text(SOME)
    return str(path)
