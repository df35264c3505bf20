"""Whatever is in a field of a request, however deep: it is decided, or refused by name."""

import contextlib
import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.rpc.dispatcher import Context
from scheduler_worker.rpc.nova import NovaEndpoint
from scheduler_worker.scheduling.filters.affinity import (
    DifferentHostFilter,
    SameHostFilter,
    ServerGroupAffinityFilter,
    SimpleCIDRAffinityFilter,
)
from scheduler_worker.scheduling.filters.compute_capabilities import ComputeCapabilitiesFilter
from scheduler_worker.scheduling.filters.image_properties import ImagePropertiesFilter
from scheduler_worker.scheduling.filters.json_filter import JsonFilter
from scheduler_worker.scheduling.filters.numa_topology import NUMATopologyFilter
from scheduler_worker.waiters import complete
from tests.support.services import FILTERS, World, host

READERS = (
    *(ComputeCapabilitiesFilter, DifferentHostFilter, ImagePropertiesFilter, JsonFilter),
    *(NUMATopologyFilter, SameHostFilter, ServerGroupAffinityFilter, SimpleCIDRAffinityFilter),
)
REQUEST: dict[str, Any] = {
    "flavor": {"vcpus": 1, "memory_mb": 64, "extra_specs": {"hw:numa_nodes": "1", "a": "b"}},
    "image": {"properties": {"hw_cpu_policy": "shared", "hw_numa_cpus": [[0]], "trait:A": "x"}},
    "instance_group": {"policies": ["affinity"], "_rules": {"max_server_per_host": "2"}},
    "scheduler_hints": {"query": ['["=", "$host", 1]'], "same_host": ["i"], "cidr": "/24"},
    "requested_destination": {"cell": {"uuid": "c"}, "host": "h", "aggregates": ["a"]},
    "retry": {"num_attempts": 2, "hosts": [["h", "n"]]},
    "limits": {"numa_topology": {"cpu_allocation_ratio": 1.0}},
    "pci_requests": {"requests": [{"count": 1, "spec": [{"vendor_id": "8086"}]}]},
    "numa_topology": {"cells": [{"id": 0, "cpuset": [0], "pcpuset": [], "memory": 64}]},
    "requested_resources": [{"resources": {"VCPU": 1}, "required_traits": ["T"]}],
    "request_level_params": {"root_required": ["T"], "same_subtree": [["a"]]},
    "network_metadata": {"physnets": ["x"], "tunneled": True},
    "vm": {"run_on": "h", "affinity_groups": [{"name": "g", "vms": ["a"]}]},
}
ANYTHING = (None, True, -1, 1.5, 10**30, "x", [], ["x"], [[]], [None], {}, {"a": [1]}, [{}])


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from paths(item, (*path, key))


@pytest.fixture(scope="module")
def endpoint() -> NovaEndpoint:
    world = World(filters=(*FILTERS, *READERS))
    topology = {"cells": [{"id": 0, "cpuset": [0, 1], "pcpuset": [0, 1], "memory": 1024}]}
    world.report(host("h", numa_topology=topology, cell_uuid="c"), host("i"))
    return NovaEndpoint(world.scheduler, world.inventory)


def put(request: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = holder = copy.deepcopy(request)
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return changed


def test_a_request_with_anything_in_a_field_is_decided_or_refused(endpoint):
    for path, value in itertools.product(paths(REQUEST), ANYTHING):
        alone = {name: REQUEST[name] for name in ("flavor", path[0])}
        for request in (alone, REQUEST):
            asked = {"spec_obj": put(request, path, value), "instance_uuids": ["i"]}
            context = Context(request_id=f"{path} is {value}")
            with contextlib.suppress(NoValidHost, RequestError):
                complete(endpoint.select_destinations(context, **asked, return_objects=True))
