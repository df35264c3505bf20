"""``POST /v1/explain``: the same answer as over RPC, and problems that name the field."""

import json

import msgspec
import pytest

from scheduler_worker.rpc.contract import Context
from scheduler_worker.rpc.explanations import explanation
from tests.support.rest import Rest
from tests.support.services import host

SMALL = {"flavor": {"vcpus": 1, "memory_mb": 1024}}


@pytest.fixture
def rest():
    return Rest("east", "west")


def explain(rest, body, status=200, **options):
    headers = {"Content-Type": "application/json"}
    response = rest.request(
        "POST", "/v1/explain", json.dumps(body).encode(), headers=headers, **options
    )
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def test_it_says_which_filter_removed_which_host_and_the_weights(rest):
    rest.world.report(
        host("small", cluster="east", memory_mb=512), host("busy", cluster="east", vcpus_used=3)
    )
    before = rest.state()
    found = explain(rest, {"spec_obj": {**SMALL, "scheduler_hints": {"cluster": ["east"]}}})
    verdicts = {each["host"]: each for each in found["verdicts"]}
    assert verdicts["small"]["rejected_by"] == "RamFilter"
    assert verdicts["small"]["reason"]
    assert verdicts["host-east"]["weight"] is not None
    assert [each["name"] for each in verdicts["host-east"]["weights"]] == [
        "RAMWeigher", "CPUWeigher",
    ]  # fmt: skip
    assert (found["chosen"], found["cluster"], found["others"]) == ("host-east", "east", [])
    assert found["policy"]["name"] == "nova"
    assert rest.state() == before


def test_it_is_what_rpc_answers(rest):
    asked = {"spec_obj": SMALL, "instance_uuids": ["a"], "hosts": ["host-west", "x"], "limit": 1}
    by_rpc = explanation(rest.world.scheduler, Context(request_id="r"), **asked)
    assert explain(rest, asked) == msgspec.json.decode(msgspec.json.encode(by_rpc))
    assert by_rpc["not_found"].keys() == {"x"}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"spec_obj": {}}, "/spec_obj/flavor"),
        ({"spec_obj": {"flavor": {"vcpus": -1}}}, "/spec_obj/flavor/vcpus"),
        ({"spec_obj": {**SMALL, "scheduler_hints": {"cluster": "north"}}},
         "/spec_obj/scheduler_hints/cluster"),
        ({"spec_obj": SMALL, "limit": 0}, "/limit"),
        ({"spec_obj": SMALL, "instance_uuids": ["a", "a"]}, "/instance_uuids"),
        ({"spec_obj": SMALL, "hosts": [7]}, "/hosts/0"),
        ({"spec_obj": []}, "/spec_obj"),
        ({}, "/spec_obj"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(rest, body, pointer):
    [error] = explain(rest, body, 400)["errors"]
    assert error["pointer"] == pointer


def test_who_may_not_read_gets_403(rest):
    rest.add_user("bert")
    assert "api:read" in explain(rest, {"spec_obj": SMALL}, 403, user="bert")["detail"]
    assert rest.store.audit()[-1].result == "refused"
