"""The small cloud that most tests of operations and of the REST API begin with."""

import pytest

from tests.support.rest import Rest


@pytest.fixture
def rest() -> Rest:
    """Clusters ``east`` and ``west``, with a host each."""
    return Rest("east", "west")
