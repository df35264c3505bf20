"""A real control plane, served in turn by nova-scheduler and by our worker."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from nova_cloud.cloud import Cloud
from nova_cloud.errors import CloudFailed
from nova_cloud.fleet import Fleet
from nova_cloud.installation import PROJECT, Installation

from tests.nova.tenant import Tenant

HERE = Path(__file__).parent
DIRECTORY = PROJECT / ".run" / "nova-tests"
"""Of the cloud; it stays, with the logs of all processes, until the next run."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the paths, and leave out those that were not asked for."""
    paths = [each for each in items if HERE in each.path.parents]
    for each in paths:
        each.add_marker(pytest.mark.deep)
        each.add_marker(pytest.mark.timeout(1800))  # the first one waits for schemas and services
    if config.getoption("nova_paths") == "few":
        left_out = {each for each in paths if not each.get_closest_marker("few")}
        items[:] = [each for each in items if each not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


@pytest.fixture(scope="session")
def cloud(nova_installation: Installation) -> Iterator[Cloud]:
    """The session's control plane, with three computes and without a scheduler."""
    with contextlib.suppress(CloudFailed):  # nothing is left of an earlier run
        Cloud.opened(DIRECTORY, nova_installation).down(wipe=True)
    cloud = Cloud(DIRECTORY, nova_installation, Fleet())
    cloud.up()
    yield cloud
    cloud.down()


@pytest.fixture(scope="session", params=["nova", "ours"])
def scheduled(request: pytest.FixtureRequest, nova_installation: Installation) -> Cloud:
    """The control plane, served by nova-scheduler or by our worker."""
    cloud: Cloud = request.getfixturevalue("cloud")
    cloud.schedule_with(request.param)
    return cloud


@pytest.fixture
def tenant(scheduled: Cloud) -> Iterator[Tenant]:
    """Someone with servers; at the end all are deleted, and Placement must show nothing."""
    tenant = Tenant(scheduled)
    yield tenant
    scheduled.set_faults({})
    tenant.leave()


class MortalHost:
    """A compute that dies, and comes back."""

    def __init__(self, cloud: Cloud, name: str) -> None:
        self.name = name
        self._cloud = cloud
        self._compute = cloud.computes[name]

    def die(self) -> None:
        self._compute.kill()
        self._cloud.compute.force_down(self.name, True)

    def come_back(self) -> None:
        """Start again; only then Nova lets go of what was evacuated, and of the declared death."""
        if not self._compute.is_running:
            self._compute.start()
            self._cloud.compute.force_down(self.name, False)
            self._cloud.await_computes(self.name)


@pytest.fixture
def dead_rack(scheduled: Cloud) -> Iterator[list[MortalHost]]:
    """All hosts but ``cmp3``, which may die in the test, and run again afterwards."""
    hosts = [MortalHost(scheduled, each) for each in ("cmp1", "cmp2")]
    yield hosts
    for each in hosts:
        each.come_back()
