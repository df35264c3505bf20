"""Decoding of recorded requests and of bad ones."""

import copy
import json
import logging
from typing import Any

import pytest

from scheduler_worker import codec
from scheduler_worker.codec.primitives import plain
from scheduler_worker.errors import RequestError
from scheduler_worker.model.requests import MAX_INSTANCES, RetriedHost, every_field
from tests.support.samples import SAMPLES, recorded, refused, sample

AMOUNT = f"an integer from 0 to {2**40}"
VM = "11111111-1111-4111-8111-111111111111"
VM2 = "22222222-2222-4222-8222-222222222222"
GROUP = "eeeeeeee-0000-4000-8000-000000000001"
AGG1, AGG2 = (f"ffffffff-0000-4000-8000-00000000000{n}" for n in (1, 2))
FLAVOR = {"memory_mb": 2048, "vcpus": 1}


def as_object(name, version, data):
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": version,
        "nova_object.data": data,
    }


REQUESTS = sorted(SAMPLES.glob("request_spec_*.json"))


def spec_of(path):
    found = json.loads(path.read_text())
    return found["oslo.message"]["args"]["spec_obj"] if "oslo.message" in found else found


def at(value, path):
    """What a path of attributes, keys and numbers leads to; ``#`` is how many there are."""
    for name in path.split("."):
        if name == "#":
            value = len(value)
        elif isinstance(value, list | tuple):
            value = value[int(name)]
        else:
            value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


RECORDED: dict[str, dict[str, Any]] = {
    "forced": {"force_hosts": ("host1",), "force_nodes": ("node1",), "ignore_hosts": ("host9",)},
    "from_db_az": {
        "availability_zone": "az1", "id": 5, "is_bfv": False,
        "network_metadata.physnets": ("physnet1",), "network_metadata.tunneled": False,
        "requested_networks.#": 1,
        "requested_networks.0.network_id": "abababab-0000-4000-8000-000000000003",
        "requested_networks.0.port_id": "abababab-0000-4000-8000-000000000002",
    },
    "group_anti_affinity": {
        "instance_group.uuid": GROUP, "instance_group.id": 3,
        "instance_group.policy": "anti-affinity", "instance_group.hosts": ("host1",),
        "instance_group.members": (VM, VM2), "instance_group.max_server_per_host": 2,
        "scheduler_hints": {"group": [GROUP]},
    },
    "hints": {
        "scheduler_hints.build_near_host_ip": ["192.0.2.1"],
        "scheduler_hints.different_host": [VM2, "33333333-3333-4333-8333-333333333333"],
    },
    "image_props": {
        "image_properties.hw_numa_cpus": [[0, 1], [2, 3]],
        "image_properties.hw_vif_multiqueue_enabled": True,
        "image_properties.traits_required": ["HW_CPU_X86_AVX2"], "image_properties.#": 12,
    },
    "numa": {
        "flavor.extra_specs.hw:numa_nodes": "2",
        "numa_topology.emulator_threads_policy": "isolate", "numa_topology.cells.#": 2,
        "numa_topology.cells.0.id": 0, "numa_topology.cells.0.pcpuset": [0, 1],
        "numa_topology.cells.0.memory": 1024, "numa_topology.cells.1.pcpuset": [2, 3],
        "numa_topology.cells.1.cpu_pinning_raw": None,
    },
    "pci": {
        "pci_requests.requests.#": 2, "pci_requests.requests.0.alias_name": "gpu",
        "pci_requests.requests.0.count": 1, "pci_requests.requests.0.numa_policy": "preferred",
        "pci_requests.requests.1.spec": [
            {"physical_network": "physnet1", "remote_managed": "False"}
        ],
        "requested_resources.0.resources.NET_BW_EGR_KILOBIT_PER_SEC": 1000,
        "requested_resources.0.required_traits": (
            "CUSTOM_PHYSNET_PHYSNET1", "CUSTOM_VNIC_TYPE_NORMAL"
        ),
        "requested_resources.1.resources": {"CUSTOM_PCI_10DE_1DB4": 1},
        "requested_resources.#": 2, "request_level_params.root_required": ("HW_CPU_X86_AVX2",),
        "request_level_params.same_subtree.0.1": "x",
    },
    "rebuild": {
        "is_rebuild_check": True, "skips_filters": False, "force_hosts": ("host1",),
        "force_nodes": ("host1",),
    },
    "requested_destination": {
        "requested_destination.host": "host1", "requested_destination.node": "host1",
        "requested_destination.aggregates": (f"{AGG1},{AGG2}", AGG1),
        "requested_destination.forbidden_aggregates": (AGG2,),
        "requested_destination.cell_uuid": "dddddddd-0000-4000-8000-000000000001",
        "requested_destination.cell.name": "cell1",
        "requested_destination.allow_cross_cell_move": False,
    },
    "retry_limits": {
        "retry.num_attempts": 2,
        "retry.hosts": (RetriedHost("host1", "node1"), RetriedHost("host2", "node2")),
        "limits.vcpu": 32, "limits.memory_mb": 32768, "limits.disk_gb": 500,
        "limits.numa_topology": {"cpu_allocation_ratio": 4.0, "ram_allocation_ratio": 1.0},
    },
    "volume_backed": {
        "is_bfv": True, "image.id": None, "image.size": 1073741824,
        "image_properties.hw_disk_bus": "virtio",
    },
    # No message of these was recorded.
    "group_affinity": {
        "instance_group.policy": "affinity", "instance_group.rules": {},
        "instance_group.max_server_per_host": 1,
    },
    "minimal_unset_fields": {
        "flavor.memory_mb": 2048, "instance_uuid": VM, "image": None, "is_bfv": None,
        "pci_requests": None, "limits": None,
    },
    "plain": {
        "flavor.memory_mb": 2048, "flavor.vcpus": 1, "flavor.root_gb": 20, "flavor.swap": 0,
        "flavor.id": 7, "flavor.name": "m1.small", "flavor.flavorid": "2", "instance_uuid": VM,
        "project_id": "proj1", "user_id": "user1", "image.size": 13287936, "image.properties": {},
        "pci_requests": {"instance_uuid": VM, "requests": []}, "num_instances": 1,
        "scheduler_hints": {}, "requested_resources": (), "id": None, "is_bfv": None,
        "instance_group": None, "numa_topology": None,
    },
}  # fmt: skip
"""Name of a recorded request -> what it says."""


MESSAGES = [path for path in sorted(SAMPLES.glob("wire_specs/*.json")) if path.stem in RECORDED]


@pytest.mark.parametrize("path", REQUESTS + MESSAGES, ids=lambda path: path.stem)
def test_a_recorded_request_is_read_and_read_again_from_its_plain_fields(path):
    expected = RECORDED[path.stem.removeprefix("request_spec_")]
    spec = codec.decode_request_spec(spec_of(path))
    assert {path: at(spec, path) for path in expected} == expected
    assert "guest" not in repr(spec)
    assert codec.decode_request_spec(every_field(spec)) == spec
    assert codec.decode_request_spec(spec_of(path), is_strict=True) == spec


@pytest.mark.parametrize("unset", ["is_bfv", "image", "retry", "limits", "pci_requests", "user_id"])
def test_unset_and_null_are_the_same(unset):
    spec = sample("request_spec_from_db_az")
    with_null, without = copy.deepcopy(spec), copy.deepcopy(spec)
    with_null["nova_object.data"][unset] = None
    without["nova_object.data"].pop(unset, None)
    assert codec.decode_request_spec(with_null) == codec.decode_request_spec(without)
    assert getattr(codec.decode_request_spec(without), unset) is None


def test_nulls_where_nova_has_none():
    spec = {
        "flavor": {**FLAVOR, "extra_specs": None, "projects": None, "swap": None},
        "image": {"properties": None, "tags": None},
        "instance_group": {"_rules": None, "members": None, "hosts": None, "policies": None},
        "requested_networks": None,
        "num_instances": None,
        "scheduler_hints": {"group": None},
    }
    found = codec.decode_request_spec(spec)
    assert found.flavor.extra_specs == {}
    assert found.image.properties == {}
    assert found.instance_group.members == ()
    assert (found.num_instances, found.scheduler_hints) == (1, {})


# Older and newer senders


def test_group_before_1_11_has_only_policies():
    group = as_object("InstanceGroup", "1.10", {"policies": ["anti-affinity"], "hosts": ["h"]})
    spec = as_object("RequestSpec", "1.5", {"flavor": FLAVOR, "instance_group": group})
    assert codec.decode_request_spec(spec).instance_group.policy == "anti-affinity"


def test_string_hints_are_wrapped():
    spec = codec.decode_request_spec(
        {"flavor": FLAVOR, "scheduler_hints": {"group": GROUP, "same_host": [VM]}}
    )
    assert spec.scheduler_hints == {"group": [GROUP], "same_host": [VM]}


def test_newer_minor_versions_are_read_and_logged_once(caplog):
    data = {"flavor": FLAVOR, "flavour_of_next_year": 1, "another": 2}
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert codec.decode_request_spec(as_object("RequestSpec", "1.990", data)).flavor.vcpus
    (line,) = caplog.messages
    assert line.startswith("RequestSpec 1.990 (known here: 1.15)")
    assert "'flavour_of_next_year'" in line
    assert "'another'" in line


def test_known_timestamps_are_not_logged(caplog):
    codec.decode_request_spec({"flavor": {**FLAVOR, "created_at": None, "deleted": False}})
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        *(
            (
                as_object("RequestSpec", version, {"flavor": FLAVOR}),
                f": RequestSpec '{version}' cannot be read here; version 1.15 can",
            )
            for version in ("2.0", "0.9", "x", "")
        ),
        (
            {"flavor": as_object("Flavor", "3.1", FLAVOR)},
            ".flavor: Flavor '3.1' cannot be read here; version 1.2 can",
        ),
        (
            {"flavor": as_object("ImageMeta", "1.8", {})},
            ".flavor: expected a Nova Flavor, got 'ImageMeta'",
        ),
        *(
            ({"flavor": broken}, ".flavor: is a broken Nova object")
            for broken in (
                {"nova_object.name": "Flavor"},
                {"nova_object.data": {}},
                as_object(1, "1.0", {}),
                as_object("Flavor", 1.2, {}),
                as_object("Flavor", "1.2", []),
            )
        ),
    ],
)
def test_objects_that_cannot_be_read(spec, problem):
    assert refused(codec.decode_request_spec, spec).startswith(f"spec_obj{problem}")


# Bad requests


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (None, "spec_obj: expected an object, got null"),
        ([], "spec_obj: expected an object, got a list"),
        ("x", "spec_obj: expected an object, got 'x'"),
        ({}, "spec_obj.flavor: is missing; every request needs one"),
        ({"flavor": None}, "spec_obj.flavor: is missing; every request needs one"),
        ({"flavor": 3}, "spec_obj.flavor: expected an object, got 3"),
        ({"flavor": {"vcpus": 1}}, "spec_obj.flavor.memory_mb: is missing"),
    ],
)
def test_values_that_are_no_request(spec, problem):
    assert refused(codec.decode_request_spec, spec) == problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"memory_mb": "x"}, f"memory_mb: expected {AMOUNT}, got 'x'"),
        ({"memory_mb": -5}, f"memory_mb: expected {AMOUNT}, got -5"),
        ({"memory_mb": 1.5}, f"memory_mb: expected {AMOUNT}, got 1.5"),
        ({"vcpus": True}, f"vcpus: expected {AMOUNT}, got true"),
        (
            {"root_gb": 2**60},
            f"root_gb: expected {AMOUNT}, got {2**60}",
        ),
        (
            {"extra_specs": {"a": "b", "c": 3}},
            "extra_specs.c: expected text of length <= 255, got 3",
        ),
        ({"extra_specs": ["a"]}, "extra_specs: expected an object, got a list"),
        ({"projects": ["a", 3]}, "projects[1]: expected text of length <= 255, got 3"),
        ({"name": {}}, "name: expected text of length <= 255 or null, got an object"),
        ({"disabled": "no"}, "disabled: expected a boolean, got 'no'"),
    ],
)
def test_bad_flavors(change, problem):
    spec = {"flavor": {**FLAVOR, **change}}
    assert refused(codec.decode_request_spec, spec) == f"spec_obj.flavor.{problem}"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"num_instances": 0},
            f"num_instances: expected an integer from 1 to {MAX_INSTANCES}, got 0",
        ),
        (
            {"num_instances": MAX_INSTANCES + 1},
            f"num_instances: expected an integer from 1 to {MAX_INSTANCES}, got 1",
        ),
        ({"force_hosts": "host1"}, "force_hosts: expected a list or null, got 'host1'"),
        (
            {"scheduler_hints": {"good": ["a"], "bad": ["a", 1]}},
            "scheduler_hints.bad[1]: expected text of length <= 4096, got 1",
        ),
        (
            {"requested_resources": [{}, {"resources": {"A": 1, "B": "x"}}]},
            "requested_resources[1].resources.B: expected an integer, got 'x'",
        ),
        (
            {"instance_group": {"_rules": {"max_server_per_host": "0"}}},
            "instance_group._rules.max_server_per_host: expected an integer >= 1, got '0'",
        ),
        (
            {"retry": {"hosts": [["only-a-host"]]}},
            "retry.hosts: expected pairs of host and node, got a list",
        ),
        ({"numa_topology": "x"}, "numa_topology: expected an object or null, got 'x'"),
        ({"requested_destination": {"cell": 1}}, "requested_destination.cell: expected"),
        (
            {"requested_destination": {"cell": {"uuid": ["x"]}}},
            "requested_destination.cell.uuid: expected text of length <= 255 or null, got a list",
        ),
        (
            {"image": {"properties": {"hw_cpu_policy": []}}},
            "image.properties.hw_cpu_policy: expected text, a number or a boolean, got a list",
        ),
    ],
)
def test_bad_requests(change, problem):
    message = refused(codec.decode_request_spec, {"flavor": FLAVOR, **change})
    assert message.startswith(f"spec_obj.{problem}")


def test_long_values_are_cut():
    message = refused(codec.decode_request_spec, {"flavor": {**FLAVOR, "vcpus": "9" * 10_000}})
    assert len(message) < 200
    assert message.endswith("...")


def test_secrets_are_not_quoted():
    spec = {"flavor": {**FLAVOR, "extra_specs": {"admin_password": 12345}}}
    assert refused(codec.decode_request_spec, spec).endswith(
        "expected text of length <= 255, got ***"
    )
    spec = {"flavor": {**FLAVOR, "vcpus": "rabbit://user:hunter2@host/"}}
    assert "hunter2" not in refused(codec.decode_request_spec, spec)
    spec = {"flavor": {**FLAVOR, "vcpus": "rabbit://user:" + "hunter2" * 100 + "@host/"}}
    assert "hunter2" not in refused(codec.decode_request_spec, spec)


def test_depth_is_bounded():
    deep = []
    for _ in range(100):
        deep = [deep]
    message = refused(codec.decode_request_spec, {"flavor": FLAVOR, "pci_requests": {"x": deep}})
    assert "is nested more than 32 deep" in message
    assert len(message) < 200
    for _ in range(69):
        [deep] = deep
    assert plain(deep, "x") == deep
    with pytest.raises(RequestError, match="nested more than 32"):
        plain([deep], "x")


def names(count):
    return {f"k{number}": "v" for number in range(count)}


def flavor(**extra):
    return {"flavor": {**FLAVOR, **extra}}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (flavor(extra_specs=names(60_000)), "flavor.extra_specs: at most 256 names, got 60000"),
        (flavor(extra_specs={"a": "", "b": "x" * 256}), "flavor.extra_specs.b: expected text of "
         "length <= 255, got a length of 256"),
        (flavor(extra_specs={"a" * 256: "x"}), "flavor.extra_specs: its names must be text of "
         "length <= 255"),
        (flavor(name="x" * 256), "flavor.name: expected text of length <= 255 or null, got"),
        ({"image": {"properties": names(257)}}, "image.properties: at most 256 names, got 257"),
        ({"image": {"properties": {"a": "x" * 4097}}}, "image.properties.a: expected"),
        ({"image": {"properties": {"traits_required": ["T"] * 129}}},
         "image.properties.traits_required: expected"),
        ({"scheduler_hints": names(257)}, "scheduler_hints: at most 256 names, got 257"),
        ({"scheduler_hints": {"query": "x" * 4097}}, "scheduler_hints.query[0]: expected text of "
         "length <= 4096"),
        ({"ignore_hosts": ["h"] * 10_001}, "ignore_hosts: at most 10000 elements, got 10001"),
        ({"instance_group": {"members": ["m"] * 10_001}}, "instance_group.members: at most 10000"),
        ({"instance_uuid": "x" * 256}, "instance_uuid: expected text of length <= 255"),
        ({"requested_resources": [{}] * 65}, "requested_resources: expected a list of "
         "length <= 64 or null, got a length of 65"),
        ({"requested_resources": [{"required_traits": ["T"] * 129}]},
         "requested_resources[0].required_traits: expected a list of length <= 128"),
        ({"request_level_params": {"same_subtree": [[]] * 65}},
         "request_level_params.same_subtree: expected a list of length <= 64"),
        ({"requested_destination": {"aggregates": ["a"] * 1001}},
         "requested_destination.aggregates: expected a list of length <= 1000"),
        (names(257), "at most 256 names, got 258"),
        ({name: ["h"] * 9_999 for name in ("ignore_hosts", "force_hosts", "force_nodes",
          "only_hosts", "security_groups", "requested_networks")}, "more than 25000 values"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "lenient"])
def test_what_a_request_holds_is_bounded(fields, why, is_strict):
    spec = {"flavor": FLAVOR, **fields}
    with pytest.raises(RequestError) as caught:
        codec.decode_request_spec(spec, is_strict=is_strict)
    assert why in str(caught.value)


def test_a_legacy_request_is_bounded_too():
    filters = {"ignore_hosts": ["h"] * 10_001}
    message = refused(codec.decode_legacy_request, {"instance_type": FLAVOR}, filters)
    assert message == "filter_properties.ignore_hosts: at most 10000 elements, got 10001"


def test_texts_that_cannot_be_stored():
    spec = {"flavor": FLAVOR, "instance_uuid": "\ud800"}
    assert "JSON cannot hold" in refused(codec.decode_request_spec, spec)


def test_names_that_are_no_text():
    message = refused(codec.decode_request_spec, {"flavor": {**FLAVOR, "extra_specs": {1: "a"}}})
    assert message == "spec_obj.flavor.extra_specs: its names must be text"


# Requests of RPC versions before 4.3


def test_legacy_message():
    args = recorded("wire/ok_07_select_destinations")
    spec = codec.decode_legacy_request(args["request_spec"], args["filter_properties"])
    assert (spec.flavor.memory_mb, spec.flavor.name) == (2048, "m1.small")
    assert (spec.instance_uuid, spec.project_id, spec.num_instances) == (VM, "proj1", 1)
    assert (spec.image.id, spec.image.properties) == ("aaaaaaaa-0000-4000-8000-000000000001", {})
    assert spec.pci_requests == {"instance_uuid": VM, "requests": []}
    assert (spec.is_bfv, spec.retry, spec.instance_group) == (None, None, None)


def test_legacy_message_with_a_group():
    args = recorded("wire_specs/legacy_4_0_group")
    spec = codec.decode_legacy_request(args["request_spec"], args["filter_properties"])
    group = spec.instance_group
    assert (group.uuid, group.policy, group.hosts) == (GROUP, "anti-affinity", ("host1",))
    assert set(group.members) == {VM, VM2}
    assert spec.scheduler_hints == {"group": [GROUP]}


def test_legacy_properties():
    spec = codec.decode_legacy_request(
        sample("legacy_4_0_request_spec"), sample("legacy_4_0_filter_properties")
    )
    assert spec.force_hosts == ("host1",)
    assert spec.retry.hosts == (RetriedHost("host1", "node1"),)
    assert spec.retry.num_attempts == 1
    assert spec.limits.vcpu is None


def test_image_properties_get_their_present_names():
    image = {"properties": {"architecture": "aarch64"}}
    specs = (
        codec.decode_request_spec({"flavor": FLAVOR, "image": image}),
        codec.decode_legacy_request({"instance_type": FLAVOR, "image": image}, None),
    )
    assert [each.image_properties for each in specs] == [{"hw_architecture": "aarch64"}] * 2


@pytest.mark.parametrize(
    ("request_spec", "properties", "problem"),
    [
        ({}, {}, "request_spec.instance_type: is missing; every request needs one"),
        (None, {}, "request_spec: expected an object, got null"),
        ({"instance_type": FLAVOR}, [1], "filter_properties: expected an object, got a list"),
        (
            {"instance_type": {"vcpus": "x", "memory_mb": 1}},
            {},
            f"request_spec.instance_type.vcpus: expected {AMOUNT}, got 'x'",
        ),
        (
            {"instance_type": FLAVOR, "instance_properties": {"uuid": 3}},
            {},
            "request_spec.instance_properties.uuid: expected text of length <= 255 or null, got 3",
        ),
        (
            {"instance_type": FLAVOR},
            {"limits": {"vcpu": "x"}},
            "filter_properties.limits.vcpu: expected an integer or null, got 'x'",
        ),
        (
            {"instance_type": as_object("Flavor", "2.0", FLAVOR)},
            {},
            "request_spec.instance_type: Flavor '2.0' cannot be read here; version 1.2 can",
        ),
    ],
)
def test_bad_legacy_requests(request_spec, properties, problem):
    assert refused(codec.decode_legacy_request, request_spec, properties) == problem


def test_resources_of_extra_specs_leave_the_flavor_as_it_is():
    extra = {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "hw:numa_nodes": "2"}
    flavor = {"vcpus": 8, "memory_mb": 4096, "extra_specs": extra}
    spec = codec.decode_request_spec({"flavor": flavor})
    assert (spec.flavor.vcpus, spec.flavor.memory_mb) == (8, 4096)
    assert [cell["memory"] for cell in spec.numa_topology["cells"]] == [2048, 2048]
    without = codec.decode_request_spec({"flavor": flavor, "numa_topology": None})
    assert without.numa_topology is None, "Nova's API computes it, and sends null where it is none"
