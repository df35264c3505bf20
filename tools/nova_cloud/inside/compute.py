"""nova-compute whose fake driver has a given size and fails when asked to.

Run by the interpreter of the environment that has Nova. From the environment: NOVA_CLOUD_VCPUS,
NOVA_CLOUD_MEMORY_MB, NOVA_CLOUD_DISK_GB, and NOVA_CLOUD_FAULTS, a JSON file of faults by host,
which is read at each spawn: "fail", "abort", or the seconds that it takes.
"""

import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

# First, for it prepares threads before anything else is imported.
from nova.cmd import compute  # isort: skip
from nova import exception
from nova.virt import fake


def fault_of(host: str) -> Any:
    """What the next spawn on the host shall meet; None: nothing."""
    path = Path(os.environ["NOVA_CLOUD_FAULTS"])
    return json.loads(path.read_text()).get(host) if path.exists() else None


def node_uuid(name: str) -> str:
    """Always the same for a node: Nova's fake driver makes a new one at each start."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


class SizedDriver(fake.FakeDriver):  # type: ignore[misc]  # Nova has no types
    """One node, named as its host.

    ``disk_available_least`` stays the 0 of Nova's fake driver: Placement alone knows the disk.
    """

    vcpus = int(os.environ["NOVA_CLOUD_VCPUS"])
    memory_mb = int(os.environ["NOVA_CLOUD_MEMORY_MB"])
    local_gb = int(os.environ["NOVA_CLOUD_DISK_GB"])

    def init_host(self, host: str) -> None:
        super().init_host(host)
        self._set_nodes([host])

    def get_available_resource(self, nodename: str) -> Any:
        found = super().get_available_resource(nodename)
        return {**found, "uuid": node_uuid(nodename)} if found else found

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        return {node_uuid(name): name for name in self.get_available_nodes()}

    def spawn(self, context: Any, instance: Any, *args: Any, **kwargs: Any) -> None:
        fault = fault_of(self._host)
        if fault == "fail":
            raise exception.ComputeResourcesUnavailable(reason="a fault that was asked for")
        if fault == "abort":
            raise exception.BuildAbortException(
                instance_uuid=instance.uuid, reason="a fault that was asked for"
            )
        if fault:
            time.sleep(float(fault))
        super().spawn(context, instance, *args, **kwargs)

    def post_live_migration(
        self, context: Any, instance: Any, block_device_info: Any, migrate_data: Any = None
    ) -> None:
        # The fake driver forgets to: the guest would run at its source as well.
        self.destroy(context, instance, network_info=None, block_device_info=block_device_info)


fake.SizedDriver = SizedDriver
sys.exit(compute.main())
