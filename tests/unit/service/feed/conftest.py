"""A source with three hosts, and a feeder that has read it."""

import pytest

from scheduler_worker.service.feed.feeder import Feeder
from tests.support.feeds import OTHER_CELL, MemorySource, feeder


@pytest.fixture
def source(world) -> MemorySource:
    source = MemorySource(world.clock)
    for host in ("a", "b"):
        source.put(host)
    source.put("c", part=OTHER_CELL)
    return source


@pytest.fixture
def fed(world, source) -> Feeder:
    """A feeder that has read everything once."""
    made = feeder(world, source)
    made.run_due()
    return made
