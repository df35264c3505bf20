"""The stream of the demo cloud behind the console."""

import itertools

from console.cloud import repeated, stream
from replay.streams import Arrival


def test_hosts_are_in_three_clusters_and_some_have_cells_and_devices():
    found = stream()
    assert len(found.hosts) == 1000
    assert len({each["cluster"] for each in found.hosts}) == 3
    cells = [each for each in found.hosts if "numa_topology" in each]
    devices = [each for each in found.hosts if "pci_device_pools" in each]
    assert (len(cells), len(devices)) == (250, 100)
    for each in cells:
        numbered = [
            cpu
            for cell in each["numa_topology"]["cells"]
            for cpu in (*cell["cpuset"], *cell["pcpuset"])
        ]
        assert sorted(numbered) == list(range(each["vcpus"]))


def test_requests_come_again_and_again_for_other_instances():
    once = [Arrival(1.0, 5.0, "a", {}), Arrival(10.0, None, "b", {})]
    found = list(itertools.islice(repeated(once), 5))
    assert [each.at_s for each in found] == [1.0, 10.0, 11.0, 20.0, 21.0]
    assert [each.lifetime_s for each in found] == [5.0, None, 5.0, None, 5.0]
    assert [each.instance_uuid for each in found[:2]] == ["a", "b"]
    assert len({each.instance_uuid for each in found}) == 5
