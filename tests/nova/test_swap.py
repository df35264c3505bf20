"""One scheduler takes the other's place, and gives it back, while clients boot all the time."""

from collections.abc import Iterator

import pytest
from nova_cloud.cloud import Cloud

from tests.nova.crowd import Traffic, overcommitted
from tests.nova.tenant import Tenant

CLIENTS = 8
MORE = 12
"""So many servers are built by each scheduler before the next one takes over."""


@pytest.fixture
def traffic(scheduled: Cloud) -> Iterator[Traffic]:
    with Traffic(scheduled, CLIENTS) as traffic:
        yield traffic
    scheduled.schedule_with("nova")
    Tenant(scheduled).leave()


@pytest.mark.parametrize("scheduled", ["nova"], indirect=True)
def test_no_boot_fails_while_schedulers_are_swapped(scheduled, traffic):
    for scheduler, replicas in (("nova", 1), ("ours", 2), ("nova", 1)):
        scheduled.schedule_with(scheduler, replicas=replicas)
        traffic.await_built(MORE)
        assert overcommitted(scheduled.books(), scheduled.placement) == []
    assert traffic.finish() == []
