"""Requests as plain data: stored without defaults, read whole, and properties by their names."""

import msgspec

from scheduler_worker.model.requests import (
    Destination,
    Flavor,
    ImageMeta,
    InstanceGroup,
    RequestGroup,
    RequestSpec,
    every_field,
)

SPEC = RequestSpec(
    flavor=Flavor(memory_mb=512, vcpus=1, extra_specs={"hw:numa_nodes": "2"}),
    image=ImageMeta(tags=("a",)),
    instance_group=InstanceGroup(rules={"max_server_per_host": "3"}),
    requested_destination=Destination(aggregates=("x",)),
    requested_resources=(RequestGroup(resources={"VCPU": 1}),),
)


def test_what_is_stored_has_no_defaults_and_is_read_back_whole():
    stored = msgspec.json.encode(SPEC)
    assert msgspec.json.decode(stored) == {
        "flavor": {"memory_mb": 512, "vcpus": 1, "extra_specs": {"hw:numa_nodes": "2"}},
        "image": {"tags": ["a"]},
        "instance_group": {"_rules": {"max_server_per_host": "3"}},
        "requested_destination": {"aggregates": ["x"]},
        "requested_resources": [{"resources": {"VCPU": 1}}],
    }
    assert msgspec.json.decode(stored, type=RequestSpec) == SPEC


def test_every_field_is_there_but_those_that_nobody_set():
    plain = every_field(SPEC)
    assert set(plain) == {each.encode_name for each in msgspec.structs.fields(SPEC)} - {"vm"}
    assert plain["num_instances"] == 1
    assert plain["flavor"]["swap"] == 0
    assert plain["image"]["properties"] == {}
    assert plain["instance_group"]["_rules"] == {"max_server_per_host": "3"}
    assert plain["requested_resources"][0]["use_same_provider"] is True
    assert msgspec.convert(plain, RequestSpec) == SPEC
