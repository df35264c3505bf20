"""Two workers and sixteen clients: 64 boots at once into a cloud that has room for 48."""

import time
from collections.abc import Iterator

import pytest
from nova_cloud.cloud import Cloud
from nova_cloud.services import MODULE, Worker

from tests.nova import mortal
from tests.nova.crowd import Crowd
from tests.nova.tenant import Tenant
from tests.support.proxy import Proxy

pytestmark = pytest.mark.parametrize("scheduled", ["ours"], indirect=True)

BOOTS, ROOM = 64, 48
MIDDLE = 8
"""So many servers are active when the fault happens."""
WAVES = 5
"""How often those who were refused ask again, at most."""
AWAY_S = 30.0
"""For so long Placement is cut off: less than Nova's conductor waits for an answer."""


@pytest.fixture
def two_workers(scheduled: Cloud) -> Iterator[Cloud]:
    """The cloud with two workers; afterwards with one, and all is deleted."""
    scheduled.schedule_with("ours", replicas=2)
    yield scheduled
    if not scheduled.placement_service.is_running:  # a test has failed to start it again
        scheduled.placement_service.start()
    for each in scheduled.workers:
        each.stop()
        each.module = MODULE
    scheduled.schedule_with("ours")
    Tenant(scheduled).leave()


@pytest.fixture
def crowd(two_workers: Cloud) -> Crowd:
    crowd = Crowd(two_workers)
    assert crowd.room() == ROOM
    return crowd


def restarted(worker: Worker, module: str = MODULE, **options: dict[str, str]) -> None:
    """Run a worker anew as another module, or with other options."""
    worker.stop()
    worker.module, worker.options = module, options
    worker.start()


def test_exactly_what_there_is_room_for_is_built(crowd):
    assert len(crowd.check(crowd.boot(BOOTS))) == ROOM


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_at_a_claim_costs_no_boot(crowd, monkeypatch, when):
    """``before``: between decision and claim; ``after``: between claim and answer."""
    first, second = crowd.cloud.workers
    monkeypatch.setenv(mortal.VARIABLE, f"{when}:3")
    restarted(first, module=mortal.__name__)
    restarted(second)  # the older worker gets the requests
    servers = crowd.boot(BOOTS)
    assert not first.is_running
    assert len(crowd.check(servers)) == ROOM


def test_a_restart_of_placement_loses_no_room(crowd):
    """Computes need it for a build, too, so some builds fail, and leave room for others.

    No host is offered as an alternate: conductors claim these by themselves, and when two did
    so at a time, right after its restart, Placement gave the last place of a host to both.
    """
    for each in crowd.cloud.workers:
        restarted(each, scheduler={"max_attempts": "1"})

    def restart() -> None:
        crowd.await_active(MIDDLE)
        crowd.cloud.placement_service.kill()
        crowd.cloud.placement_service.start()

    failed = "Exceeded maximum number of retries"
    active = crowd.check(crowd.boot(BOOTS, meanwhile=restart), failed)
    for _ in range(WAVES):
        if len(active) == ROOM:
            break
        active = crowd.check(crowd.boot(ROOM - len(active)), failed)
    assert len(active) == ROOM


def test_workers_that_are_cut_off_from_placement_go_on_afterwards(crowd):
    cloud = crowd.cloud
    with Proxy(cloud.placement_service.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        for each in cloud.workers:
            restarted(each, placement={"endpoint": url, "endpoint_override": url})

        def cut_off() -> None:
            crowd.await_active(MIDDLE)
            with proxy.away():
                time.sleep(AWAY_S)

        assert len(crowd.check(crowd.boot(BOOTS, meanwhile=cut_off))) == ROOM
