"""The workers' state is away, longer than a worker tries: boots wait, and none is lost."""

from collections.abc import Callable

import pytest
from nova_cloud.cloud import Cloud
from nova_cloud.services import consumers
from nova_cloud.waiting import until

from tests.nova.crowd import Crowd
from tests.nova.tenant import Tenant

BOOTS, MIDDLE = 24, 4


def restart_redis(
    cloud: Cloud, end: Callable[[], None], meanwhile: Callable[[], object] = lambda: None
) -> None:
    """End Redis, and start it once the workers have given back the requests that came."""
    end()
    try:
        meanwhile()
        until(lambda: not consumers(cloud.broker, "scheduler"), "no worker takes requests")
    finally:
        cloud.redis.start()


@pytest.mark.few
def test_boots_that_are_asked_for_meanwhile_are_built(tenant: Tenant) -> None:
    """nova-scheduler, which has no such state, is asked for the same."""
    cloud, asked = tenant.cloud, list[str]()

    def ask() -> None:
        asked.extend(each for _ in range(6) for each in tenant.ask("small"))

    if cloud.nova_scheduler.is_running:
        ask()
    else:
        restart_redis(cloud, cloud.redis.stop, ask)
    assert all(tenant.nova.settled(each, "ACTIVE").host for each in asked)
    assert tenant.books()


@pytest.mark.parametrize("scheduled", ["ours"], indirect=True)
def test_no_boot_is_lost_that_is_under_way(scheduled: Cloud, tenant: Tenant) -> None:
    crowd = Crowd(scheduled)

    def are_coming() -> bool:
        return len(scheduled.compute.servers()) >= MIDDLE

    def restart() -> None:
        until(are_coming, f"{MIDDLE} servers are asked for")
        restart_redis(scheduled, scheduled.redis.kill)

    assert len(crowd.check(crowd.boot(BOOTS, meanwhile=restart))) == BOOTS
