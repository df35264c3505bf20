"""Aggregates that Nova's API changes: schedulers know of them by casts alone."""

from collections.abc import Iterator

import pytest
from nova_cloud.cloud import Cloud
from nova_cloud.configuration import Groups
from nova_cloud.fleet import RESERVED_MEMORY_MB

from scheduler_worker.client import SchedulerClient
from tests.nova.tenant import Tenant

ZONE = "east"


@pytest.fixture(params=["nova", "ours"])
def casts_alone(request: pytest.FixtureRequest, cloud: Cloud) -> Iterator[Tenant]:
    """A cloud whose scheduler does not read Nova's database for aggregates."""
    if request.param == "nova":
        cloud.schedule_with("nova")
    else:
        cloud.schedule_with("none")
        options: Groups = {
            "DEFAULT": {"host": "worker-1", "service_down_time": 3600},
            "state": {"url": "memory://"},
            "nova_feed": {"enabled": False},
        }
        cloud.schedule_with("ours", options=options)
        report_hosts(cloud)
    tenant = Tenant(cloud)
    yield tenant
    tenant.leave()
    cloud.schedule_with("nova")


def report_hosts(cloud: Cloud) -> None:
    """As an agent on each compute would."""
    sizes = {
        "vcpus": cloud.fleet.vcpus,
        "memory_mb": cloud.fleet.memory_mb - RESERVED_MEMORY_MB,
        "local_gb": cloud.fleet.disk_gb,
        "cpu_allocation_ratio": 16.0,
    }
    uuids = cloud.placement.providers()
    with SchedulerClient.connect(cloud.broker.url) as client:
        client.update_hosts(
            [{"host": name, "uuid": uuids[name], **sizes} for name in cloud.fleet.names]
        )


def test_hosts_join_and_leave_a_zone_after_it_was_renamed(casts_alone):
    """Nova stamps the object that it casts then with a time that no later cast has."""
    tenant, nova = casts_alone, casts_alone.nova
    aggregate = nova.make_aggregate("rack")
    try:
        nova.add_host(aggregate, "cmp1")
        tenant.boot()  # takes a while: Nova's times are whole seconds
        tenant.leave()
        nova.set_zone(aggregate, ZONE)
        nova.add_host(aggregate, "cmp2")
        servers = tenant.boot("whole", count=2, zone=ZONE)
        assert {each.host for each in servers} == {"cmp1", "cmp2"}
        nova.delete([each.id for each in servers])
        nova.remove_host(aggregate, "cmp1")
        [server] = tenant.boot("whole", zone=ZONE)
        assert server.host == "cmp2"
        tenant.refused("whole", zone=ZONE)
    finally:
        tenant.leave()
        for host in ("cmp1", "cmp2"):
            nova.remove_host(aggregate, host)
        nova.delete_aggregate(aggregate)
