"""Runs Nova's own scheduler, in the interpreter of Nova's virtual environment.

Reads JSON lines: first ``{"hosts", "aggregates", "filters"}``, then requests ``{"spec", "hosts",
"instances", "seconds"}``. Decides each repeatedly for that time, at least once, and writes one
line: the times of building the host states and of filtering and weighing them, in ms, and the hosts
chosen last.

The database, Placement and the bus of the scheduler's service are replaced by memory. Each decision
begins with the compute nodes as the database returns them.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import nova.conf  # noqa: E402
import nova.config  # noqa: E402
from nova import context, objects  # noqa: E402
from nova.scheduler import host_manager, manager, utils  # noqa: E402
from nova.virt import hardware  # noqa: E402
from oslo_utils import timeutils  # noqa: E402

CONF = nova.conf.CONF
PROJECT = {"project_id": "p", "user_id": "u"}


class Peer:
    """A scheduler manager over given hosts."""

    def __init__(self, plain: dict) -> None:
        objects.register_all()
        CONF([], project="nova", default_config_files=[])
        CONF.set_override("enabled_filters", plain["filters"], group="filter_scheduler")
        CONF.set_override("service_down_time", 10**6)
        self.context = context.RequestContext("u", "p", is_admin=True)
        self.computes = [compute_node(each) for each in plain["hosts"]]
        self.services = {compute.host: service(compute.host) for compute in self.computes}
        self.manager = Manager()
        self.hosts = self.manager.host_manager = HostManager()
        self.hosts.update_aggregates([objects.Aggregate(**each) for each in plain["aggregates"]])
        self.hosts._instance_info = {
            compute.host: {"instances": {}, "updated": True} for compute in self.computes
        }

    def serve(self, asked: dict) -> dict:
        """Decide for a while."""
        names = set(asked["hosts"])
        computes = [compute for compute in self.computes if compute.host in names]
        candidates: dict[str, list[dict]] = {
            compute.uuid: [{"allocations": {compute.uuid: {"resources": {}}}, "mappings": {}}]
            for compute in computes
        }
        uuids = [str(uuid.uuid4()) for _ in range(asked["instances"])]
        spec = request_spec(asked["spec"])
        build_ms: list[float] = []
        judge_ms: list[float] = []
        stop = time.perf_counter() + asked["seconds"]
        while not judge_ms or time.perf_counter() < stop:
            one = copy.deepcopy(spec)
            started = time.perf_counter()
            states = list(self.hosts._get_host_states(self.context, {"c": computes}, self.services))
            built = time.perf_counter()
            self.manager.host_states = states
            chosen = self.manager._schedule(self.context, one, uuids, candidates, {}, "1.36")
            judge_ms.append(1000 * (time.perf_counter() - built))
            build_ms.append(1000 * (built - started))
        return {
            "build_ms": build_ms,
            "judge_ms": judge_ms,
            "chosen": [some[0].service_host for some in chosen],
        }


class Manager(manager.SchedulerManager):  # type: ignore[misc]
    """A host manager whose host states are built beforehand."""

    placement_client = None
    host_states: Sequence[Any] = ()

    def __init__(self) -> None:
        pass

    def _get_all_host_states(self, *_: object) -> Iterator[host_manager.HostState]:
        return iter(self.host_states)


class HostManager(host_manager.HostManager):  # type: ignore[misc]
    """Which asks no database."""

    def refresh_cells_caches(self) -> None:
        pass

    _init_aggregates = _init_instance_info = refresh_cells_caches


def compute_node(report: dict) -> objects.ComputeNode:
    facts = {key: report[key] for key in report if key in objects.ComputeNode.fields}
    facts["numa_topology"] = numa_topology(report.get("numa_topology"))
    facts["metrics"] = json.dumps(facts["metrics"])
    facts["supported_hv_specs"] = [
        objects.HVSpec.from_list(fact) for fact in facts["supported_hv_specs"]
    ]
    return objects.ComputeNode(
        **facts,
        hypervisor_hostname=report["host"],
        free_ram_mb=report["memory_mb"] - report["memory_mb_used"],
        free_disk_gb=report["local_gb"] - report["local_gb_used"],
        disk_available_least=None,
        host_ip="192.0.2.1",
        pci_device_pools=objects.PciDevicePoolList(objects=[]),
        updated_at=timeutils.utcnow(with_timezone=True),
    )


def numa_topology(plain: dict | None) -> str | None:
    if plain is None:
        return None
    cells = []
    for cell in plain["cells"]:
        sets: dict[str, Any] = {key: set(cell[key]) for key in ("cpuset", "pcpuset", "pinned_cpus")}
        sets["siblings"] = [set(core) for core in cell["siblings"]]
        pages = [objects.NUMAPagesTopology(**each) for each in cell["mempages"]]
        network = objects.NetworkMetadata(physnets=set(), tunneled=False)
        more = sets | {"mempages": pages, "network_metadata": network}
        cells.append(objects.NUMACell(**cell | more))
    return objects.NUMATopology(cells=cells)._to_json()


def service(host: str) -> objects.Service:
    now = timeutils.utcnow(with_timezone=True)
    facts = {"disabled": False, "forced_down": False, "last_seen_up": now, "created_at": now}
    return objects.Service(host=host, binary="nova-compute", topic="compute", **facts)


def request_spec(plain: dict) -> objects.RequestSpec:
    flavor = objects.Flavor(**{"extra_specs": {}, "ephemeral_gb": 0, "swap": 0} | plain["flavor"])
    image = objects.ImageMeta.from_dict(plain["image"])
    group = plain.get("instance_group")
    return objects.RequestSpec(
        **PROJECT,
        flavor=flavor,
        image=image,
        num_instances=1,
        availability_zone=plain.get("availability_zone"),
        instance_group=group and instance_group(group),
        numa_topology=hardware.numa_get_constraints(flavor, image),
        pci_requests=objects.InstancePCIRequests(requests=[]),
        requested_resources=[],
        request_level_params=objects.RequestLevelParams(),
        requested_destination=None,
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
        scheduler_hints={},
        limits=objects.SchedulerLimits(),
        retry=None,
        security_groups=objects.SecurityGroupList(objects=[]),
    )


def instance_group(plain: dict) -> objects.InstanceGroup:
    return objects.InstanceGroup(
        uuid=str(uuid.uuid4()),
        policies=[plain["policy"]],
        policy=plain["policy"],
        members=plain["members"],
        hosts=[],
        _rules={},
    )


def main() -> None:
    peer = Peer(json.loads(sys.stdin.readline()))
    with mock.patch.object(utils, "claim_resources", return_value=True):
        for line in sys.stdin:
            print(json.dumps(peer.serve(json.loads(line))), flush=True)


main()
