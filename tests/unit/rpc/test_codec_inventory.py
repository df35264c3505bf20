"""Host reports, aggregates and instances, recorded and broken."""

import copy
import logging

import pytest
from msgspec import UNSET

from scheduler_worker import codec
from scheduler_worker.codec import inventory
from tests.support.samples import refused, sample

AMOUNT = f"an integer from 0 to {2**40}"
VM = "11111111-1111-4111-8111-111111111111"
VM2 = "22222222-2222-4222-8222-222222222222"
MOMENT_S = 1767323045.0  # 2026-01-02T03:04:05Z


def report(**fields):
    (found,) = codec.decode_host_reports([{"host": "h", **fields}])
    return found


# Host reports


def test_nothing_of_a_compute_node_is_unknown(caplog):
    node = sample("compute_node")
    node["nova_object.data"]["service"] = sample("service")
    node["nova_object.data"]["instances"] = sample("instance_list")
    with caplog.at_level(logging.WARNING):
        (found,) = codec.decode_host_reports([node])
    assert caplog.messages == []
    assert found.service == {
        "disabled": False,
        "forced_down": False,
        "last_seen_up": MOMENT_S,
        "created_at": MOMENT_S,
        "updated_at": MOMENT_S,
    }
    assert [each["uuid"] for each in found.instances] == [VM, VM2]
    assert found.instances[0]["memory_mb"] == 2048
    assert found.updated_at is UNSET, "when its row changed is not when it was measured"


def test_plain_report():
    found = report(
        updated_at=12.5,
        supported_hv_specs=[["x86_64", "kvm", "hvm"]],
        metrics=[{"name": "cpu.percent", "value": 3}],
        instances=[{"uuid": VM, "flavor": {"id": 3, "vcpus": 2}}, VM2],
        service={"up": True, "last_seen_up": "2026-01-02T04:04:05+01:00"},
        traits=["A"],
        load={"cpu_percent": 12.0},
    )
    assert found.updated_at == 12.5
    assert found.supported_hv_specs == (("x86_64", "kvm", "hvm"),)
    assert found.instances == [{"uuid": VM, "instance_type_id": 3, "vcpus": 2}, {"uuid": VM2}]
    assert found.service == {"up": True, "last_seen_up": MOMENT_S}
    assert found.traits == ("A",)


def test_times_without_a_zone_are_utc():
    assert report(updated_at="2026-01-02T03:04:05.000000").updated_at == MOMENT_S


@pytest.mark.parametrize("text", ["", "null"])
def test_empty_metrics(text):
    assert report(metrics=text).metrics is None


def test_a_list_object_of_hosts():
    nodes = {
        "nova_object.name": "ComputeNodeList",
        "nova_object.version": "1.17",
        "nova_object.data": {"objects": [sample("compute_node"), {"host": "b"}]},
    }
    assert [each.host for each in codec.decode_host_reports(nodes)] == ["host1", "b"]


def test_unknown_fields_are_logged_once_with_the_nearest_name(caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            codec.decode_host_reports([{"host": "h", "memroy_mbs": 1}] * 2)
    (line,) = caplog.messages
    assert "'memroy_mbs' (the nearest known is 'memory_mb')" in line


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"memory_mb": -5}, f"memory_mb: expected {AMOUNT} or null, got -5"),
        ({"memory_mb": "x"}, f"memory_mb: expected {AMOUNT} or null, got 'x'"),
        ({"vcpus": 2**50}, f"vcpus: expected {AMOUNT} or null, got {2**50}"),
        ({"host": ""}, "host: expected text of length from 1 to 255, got ''"),
        ({"host": None}, "host: is missing; every report names its host"),
        ({"host": 7}, "host: expected text of length from 1 to 255, got 7"),
        (
            {"cpu_allocation_ratio": float("nan")},
            "cpu_allocation_ratio: expected a number from 0.0 to",
        ),
        ({"updated_at": "yesterday"}, "updated_at: expected a time, such as 2026-01-02T03:04:05Z"),
        ({"updated_at": float("inf")}, "updated_at: expected a time"),
        ({"updated_at": True}, "updated_at: expected a time"),
        ({"service": {"up": "x"}}, "service.up: expected a boolean or null, got 'x'"),
        ({"service": {"last_seen_up": "x"}}, "service.last_seen_up: expected a time"),
        ({"service": []}, "service: expected an object, got a list"),
        ({"supported_hv_specs": [["a", "b"]]}, "supported_hv_specs[0]: expected a list of length"),
        ({"supported_hv_specs": "x"}, "supported_hv_specs: expected a list, got 'x'"),
        ({"metrics": "[{"}, "metrics: expected JSON text, got '[{'"),
        ({"metrics": "\ud800"}, "metrics: expected JSON text"),
        ({"metrics": '{"a": 1}'}, "metrics: expected a list or null, got an object"),
        ({"metrics": [{"value": float("nan")}]}, "metrics[0].value: expected a finite number"),
        ({"numa_topology": "[" * 100_000}, "numa_topology: "),
        ({"stats": {"a": []}}, "stats.a: expected "),
        ({"instances": [{"host": "h"}]}, "instances[0].uuid: is missing"),
        ({"instances": [7]}, "instances[0]: expected an instance, got 7"),
        ({"instances": {}}, "instances: expected a list, got an object"),
        ({"cluster": "a b"}, "cluster: expected text matching regex"),
        ({"uuid": None}, "uuid: expected text of length from 1 to 255, got null"),
        ({"virt": {"vms": [{"id": "v", "vcpus": "two"}]}}, "virt.vms[0].vcpus: expected an int"),
        ({"power": {"state": "asleep"}}, "power.state: "),
        ({"power": {"is_managed": "yes"}}, "power.is_managed: "),
        ({"power": "down"}, "power: "),
        ({"load": {"a": "\ud800"}}, " holds a name or a text that JSON cannot hold"),
    ],
)
def test_bad_reports(fields, problem):
    message = refused(codec.decode_host_reports, [{"host": "a"}, {"host": "h", **fields}])
    assert message.startswith(f"hosts[1].{problem}" if problem[0] != " " else "hosts[1]:" + problem)


def test_one_error_describes_all_bad_reports():
    bad = [{"host": "h", "memory_mb": -number} for number in range(8)]
    message = refused(codec.decode_host_reports, bad)
    assert message.startswith(
        f"hosts[1].memory_mb: expected {AMOUNT} or null, got -1; hosts[2].mem"
    )
    assert message.count("expected") == 5
    assert message.endswith("; and 2 more bad reports")


@pytest.mark.parametrize("value", [None, 3, "x", [3], [None], [[]]])
def test_no_reports_at_all(value):
    assert refused(codec.decode_host_reports, value).startswith("hosts")


def test_too_many_hosts():
    message = refused(codec.decode_host_reports, [None] * (inventory.MAX_HOSTS + 1))
    assert message == "hosts: at most 100000 in one message, got 100001"


# Aggregates


def test_one_aggregate_or_a_list_object():
    (one,) = codec.decode_aggregates(sample("aggregate"))
    assert one == codec.decode_aggregate(sample("aggregate"))
    assert [each.id for each in codec.decode_aggregates(sample("aggregate_list"))] == [1, 2]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "aggregates: expected a list of Aggregate objects, got null"),
        ([{}], "aggregates[0].id: is missing"),
        ([{"id": 1}, {"id": "x"}], "aggregates[1].id: expected an integer, got 'x'"),
        ({"id": 1, "hosts": "h"}, "aggregates.hosts: expected a list, got 'h'"),
        ([{"id": 1, "metadata": {"a": 1}}], "aggregates[0].metadata.a: expected text, got 1"),
        ([7], "aggregates[0]: expected an object, got 7"),
    ],
)
def test_bad_aggregates(value, problem):
    assert refused(codec.decode_aggregates, value) == problem


# Instances


def test_instances_take_sizes_from_their_flavor():
    instance = copy.deepcopy(sample("instance_list")["nova_object.data"]["objects"][0])
    for name in ("memory_mb", "instance_type_id"):
        del instance["nova_object.data"][name]
    instance["nova_object.data"]["system_metadata"]["boot_roles"] = "admin"
    (facts,) = codec.decode_instances([instance]).values()
    assert (facts["memory_mb"], facts["instance_type_id"]) == (2048, 7)
    assert "boot_roles" not in facts["system_metadata"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "instance_info: expected a list of Instance objects, got null"),
        ([{}], "instance_info[0].uuid: is missing"),
        ([{"uuid": VM, "vcpus": "x"}], f"instance_info[0].vcpus: expected {AMOUNT}"),
        ([3], "instance_info[0]: expected an instance, got 3"),
        ([{"uuid": ""}], "instance_info[0].uuid: expected text of length from 1 to 255, got ''"),
    ],
)
def test_bad_instances(value, problem):
    assert refused(codec.decode_instances, value).startswith(problem)
