"""``POST /v1/capacity``, and ``POST /v1/explain`` of a request by hand."""

import json

import msgspec
import pytest

from scheduler_worker.rpc.capacity import CapacityEndpoint
from scheduler_worker.rpc.contract import Context
from scheduler_worker.service.placement.capacity import Capacity
from tests.support.rest import Rest
from tests.support.services import host

SMALL = {"name": "small", "vcpus": 1, "ram": 1024}


@pytest.fixture
def rest():
    rest = Rest("east", "west")
    rest.world.report(host("more", cluster="east", vcpus=2, memory_mb=8192))
    return rest


def post(rest, path, body, status=200, **options):
    headers = {"Content-Type": "application/json"}
    response = rest.request("POST", path, json.dumps(body).encode(), headers=headers, **options)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def test_it_is_what_rpc_answers(rest):
    before = rest.state()
    asked = {"flavors": [SMALL], "setting": {"cluster": "east"}}
    found = post(rest, "/v1/capacity", asked)
    capacity = Capacity(rest.world.fleet, lambda: rest.world.pipelines)
    by_rpc = CapacityEndpoint(capacity).capacity(Context(), **asked)
    assert found["flavors"] == msgspec.json.decode(msgspec.json.encode(by_rpc))
    [flavor] = found["flavors"]
    assert (flavor["name"], flavor["instances"]) == ("small", 2 + 4)
    assert rest.state() == before


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/flavors"),
        ({"flavors": []}, "/flavors"),
        ({"flavors": [SMALL, {"vcpus": 1}]}, "/flavors/1/ram"),
        ({"flavors": [SMALL], "setting": {"zones": 1}}, "/setting/zones"),
    ],
)
def test_what_is_wrong_is_named(rest, body, pointer):
    [error] = post(rest, "/v1/capacity", body, 400)["errors"]
    assert error["pointer"] == pointer


def test_a_request_by_hand_is_explained(rest):
    asked = {"flavor": SMALL | {"ram": 6000}, "cluster": "east"}
    found = post(rest, "/v1/explain", {"request": asked})
    assert found["sentence"].startswith("Host host-east: first of 2 hosts")
    asked["flavor"] = SMALL | {"ram": -1}
    [error] = post(rest, "/v1/explain", {"request": asked}, 400)["errors"]
    assert error["pointer"] == "/request/flavor/ram"


def test_a_refusal_in_several_clusters_says_so(rest):
    found = post(rest, "/v1/explain", {"request": {"flavor": SMALL | {"ram": 10**6}}})
    assert found["sentence"].startswith("No host of 3 in 2 clusters; nearest is cluster east: of ")
