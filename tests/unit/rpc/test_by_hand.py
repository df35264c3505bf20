"""Requests by hand: what they become, and errors that name the field of the document."""

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.rpc import codec

FLAVOR = {"vcpus": 2, "ram": 2048, "disk": 20}


def spec_of(**fields):
    return codec.decode_request_by_hand({"flavor": FLAVOR, **fields}).spec


def test_it_is_a_request_of_the_same_sizes():
    flavor = FLAVOR | {"name": "m1", "ephemeral": 1, "swap": 512}
    asked = codec.decode_request_by_hand(
        {
            "flavor": flavor | {"extra_specs": {"hw:numa_nodes": 2, "trait:X": "required"}},
            "image_properties": {"hw_architecture": "x86_64"},
            "hints": {"same_host": ["a", "b"], "query": "[]"},
            "project": "p",
            "zone": "az1",
            "cluster": "east",
            "instances": 3,
            "boots_from_volume": True,
            "devices": [{"spec": [{"vendor_id": "8086"}], "count": 2}],
            "why_not": ["h1", "h2"],
        }
    )
    spec = asked.spec
    assert (spec.flavor.memory_mb, spec.flavor.disk_mb) == (2048, 21 * 1024 + 512)
    assert spec.flavor.extra_specs == {"hw:numa_nodes": "2", "trait:X": "required"}
    assert len(spec.numa_topology["cells"]) == 2
    assert spec.image_properties == {"hw_architecture": "x86_64"}
    assert spec.scheduler_hints == {"same_host": ["a", "b"], "query": ["[]"], "cluster": ["east"]}
    assert (spec.project_id, spec.availability_zone) == ("p", "az1")
    assert (spec.num_instances, spec.is_bfv, asked.hosts) == (3, True, ("h1", "h2"))
    assert spec.pci_requests["requests"][0]["count"] == 2


def test_what_is_not_said_is_as_in_a_request_of_a_flavor_alone():
    spec = spec_of(why_not="h1")
    expected = codec.decode_request_spec(
        {"flavor": {"vcpus": 2, "memory_mb": 2048, "root_gb": 20}, "is_bfv": False,
         "scheduler_hints": {}}
    )  # fmt: skip
    assert spec == expected


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"flavor": None}, "request.flavor"),
        ({"flavor": {"vcpus": 2}}, "request.flavor.ram"),
        ({"flavor": FLAVOR | {"ram": -1}}, "request.flavor.ram"),
        ({"flavor": FLAVOR | {"memory_mb": 1}}, "request.flavor.memory_mb"),
        ({"flavor": FLAVOR | {"extra_specs": {"hw:numa_nodes": "x"}}},
         "request.flavor.extra_specs.hw:numa_nodes"),
        ({"flavor": FLAVOR | {"vcpus": 0, "extra_specs": {"hw:cpu_policy": "dedicated"}}},
         "request.flavor.vcpus"),
        ({"flavor": FLAVOR | {"extra_specs": {"pci_passthrough:alias": "gpu:1"}}},
         "request.flavor.extra_specs.pci_passthrough:alias"),
        ({"zones": "az1"}, "request.zones"),
        ({"instances": 0}, "request.instances"),
        ({"devices": [{"count": 1}]}, "request.devices[0].spec"),
    ],
)  # fmt: skip
def test_errors_name_the_field_of_the_document(fields, field):
    with pytest.raises(RequestError) as error:
        spec_of(**fields)
    assert error.value.field == field


def test_the_name_of_a_flavor_is_refused_with_what_to_give_instead():
    with pytest.raises(RequestError, match=r"request.flavor: 'm1.large' is a name.* \{vcpus: 2"):
        spec_of(flavor="m1.large")


@pytest.mark.parametrize(
    ("flavors", "setting", "field"),
    [
        ([], None, "flavors"),
        ([FLAVOR, {"vcpus": 1}], None, "flavors[1].ram"),
        ([FLAVOR, FLAVOR], None, "flavors[1]"),
        ([FLAVOR | {"extra_specs": {"hw:cpu_policy": "x"}}], None,
         "flavors[0].extra_specs.hw:cpu_policy"),
        ([FLAVOR], {"flavor": FLAVOR}, "setting.flavor"),
        ([FLAVOR], {"zone": 1}, "setting.zone"),
    ],
)  # fmt: skip
def test_errors_name_the_flavor_of_a_list(flavors, setting, field):
    with pytest.raises(RequestError) as error:
        codec.decode_flavors_by_hand(flavors, setting)
    assert error.value.field == field


def test_flavors_have_their_names_or_their_figures():
    found = codec.decode_flavors_by_hand([FLAVOR, FLAVOR | {"name": "m1"}], {"zone": "az1"})
    assert [name for name, _ in found] == ["2 vCPUs, 2,048 MiB, 20 GiB", "m1"]
    assert {spec.availability_zone for _, spec in found} == {"az1"}
