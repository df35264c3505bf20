"""The workers' state is away, longer than a worker tries: boots wait, and none is lost."""

from collections.abc import Callable

import pytest
from nova_cloud.cloud import Cloud
from nova_cloud.services import consumers
from nova_cloud.waiting import until

from tests.nova.crowd import Crowd
from tests.nova.tenant import Tenant

BOOTS, MIDDLE = 24, 4


@pytest.fixture
def crowd(scheduled: Cloud) -> Crowd:
    return Crowd(scheduled)


def restart_redis(cloud: Cloud, end: Callable[[], None], meanwhile: Callable[[], object]) -> None:
    """End Redis, and start it once the workers have given their requests back.

    nova-scheduler has no such state. It shows what the boots would meet without the restart.
    """
    serves = cloud.redis.is_running and not cloud.nova_scheduler.is_running
    if serves:
        end()
    meanwhile()
    if serves:
        until(lambda: not consumers(cloud.broker, "scheduler"), "no worker takes requests")
        cloud.redis.start()


@pytest.mark.few
def test_boots_that_are_asked_for_meanwhile_are_built(tenant: Tenant) -> None:
    cloud, asked = tenant.cloud, list[str]()
    restart_redis(
        cloud,
        cloud.redis.stop,
        lambda: asked.extend(each for _ in range(6) for each in tenant.ask("small")),
    )
    hosts = [tenant.nova.settled(each, "ACTIVE").host for each in asked]
    assert len(hosts) == 6
    assert tenant.books()


def test_no_boot_is_lost_that_is_under_way(crowd: Crowd, tenant: Tenant) -> None:
    def restart() -> None:
        crowd.await_active(MIDDLE)
        restart_redis(crowd.cloud, crowd.cloud.redis.kill, lambda: None)

    assert len(crowd.check(crowd.boot(BOOTS, meanwhile=restart))) == BOOTS
