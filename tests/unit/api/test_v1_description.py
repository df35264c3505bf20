"""The description in OpenAPI, the examples of the documentation, and rights."""

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.model.rehearsals import Asked
from scheduler_worker.operations.callers import Grant
from scheduler_worker.scheduling.catalogue import Catalogue, UnitKind, entry
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.service.policies.audit import Actor
from tests.support.rest import Rest
from tests.support.tuners import BALLOON, tuned

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "rest-v1.md").read_text()
JSON = {"Content-Type": "application/json"}
WITHOUT_RIGHT = {"/v1", "/v1/openapi.json"}


class FromFile(Filter):
    """Needs to be enabled, as what comes from a file does."""

    needs_enabling = True

    def passes(self, hosts, spec):
        raise NotImplementedError


UNIT = entry("FromFile", FromFile)
PACKING = ClusterPolicy(id="packing", name="packing", version=1)


def world():
    rest = Rest("east", "west")
    rest.catalogue = Catalogue([*rest.catalogue, UNIT])
    rest.administration.add(PACKING, Actor("setup"))
    rest.world.place("one", requested_destination={"host": "host-east"})
    rest.records.recorder.write()
    rest.tuning.set("balloon", BALLOON)
    rest.rehearsals.begin(Asked(since_s=0.0, until_s=1.0), None, (), "setup")
    tuned(rest.world, "east", "uuid-host-east")
    return rest


@pytest.fixture
def rest():
    return world()


def operations():
    paths = world().v1.description["paths"]
    return [
        (method.upper(), path, operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]


NAMES = {"/clusters/": "east", "/hosts/": "host-east", "/reservations/": "one@uuid-host-east",
         "/balancing/": "east", "/decisions/": "1700000000000-0@east", "/policies/": PACKING.id,
         "/rehearsals/": "r0",
         "/tuned-hosts/": "host-east",
         "/units/": UNIT.id_as(UnitKind.FILTER)}  # fmt: skip
BODIES = {
    "explain": {"spec_obj": {"flavor": {"vcpus": 1, "memory_mb": 1}}},
    "capacity": {"flavors": [{"vcpus": 1, "memory_mb": 1024}]},
    "set_tuning_policy": {"text": BALLOON},
    "set_balancing_mode": {"mode": "off"},
    "switch_unit": {"is_enabled": True},
    "create_policy": {"name": "other"},
    "put_policy": {"name": "other"},
    "check_policy": {"name": "other"},
    "attach_cluster": {"policy": PACKING.id},
    "begin_rehearsal": {},
}
OPERATIONS = operations()


@pytest.mark.parametrize(
    ("method", "path", "operation"), OPERATIONS, ids=[each[2]["operationId"] for each in OPERATIONS]
)
def test_who_has_no_right_gets_403_an_entry_in_the_audit_and_changes_nothing(
    rest, method, path, operation
):
    name = next((name for part, name in NAMES.items() if part in path), "balloon")
    path = re.sub(r"\{\w+\}", name, path)
    name = operation["operationId"]
    body = msgspec.json.encode(BODIES[name]) if name in BODIES else b""
    rest.administration.register_units()
    rest.add_user("bert")
    rest.add_user("reader", Grant("reader"))
    before = rest.state()
    who = "reader" if method in {"PUT", "DELETE"} else "bert"
    response = rest.request(method, path, body, user=who, headers={**JSON, "If-Match": "*"})
    if path in WITHOUT_RIGHT:
        assert response.status_code == 200
        return
    assert response.status_code == 403, response.get_data(as_text=True)
    assert rest.state() == before
    *_, last = rest.store.audit()
    assert (last.user, last.result, last.origin) == (who, "refused", "127.0.0.1")
    response = rest.request(method, path, body, headers={**JSON, "If-Match": "*"})
    assert response.status_code in {200, 201, 202, 204}


def test_the_description_names_every_operation_once():
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(names) == len(set(names)) == 46
    assert all(operation["summary"] for _, _, operation in OPERATIONS)


def curls():
    """The arguments of each example."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for command in block.replace("\\\n", " ").split("$ ")[1:]:
            yield shlex.split(command)


EXAMPLES = list(curls())


@pytest.mark.parametrize("example", EXAMPLES, ids=[each[-1][:60] for each in EXAMPLES])
def test_the_examples_are_served(rest, example):
    program, *arguments = example
    assert program == "curl"
    method, body, headers, url = None, b"", {}, ""
    rest.add_user("anna", Grant("administrator"))
    while arguments:
        match arguments.pop(0):
            case "-u":
                assert arguments.pop(0) == "anna:secret"
            case "-X":
                method = arguments.pop(0)
            case "-H":
                name, _, value = arguments.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = arguments.pop(0).encode()
            case found:
                url = found.removeprefix("http://127.0.0.1:8780")
    if method == "PUT":
        rest.tuning.set("balloon", None)
    method = method or ("POST" if body else "GET")
    response = rest.request(method, url, body, headers=headers, user="anna")
    assert response.status_code in {200, 201, 202, 204}, response.get_data(as_text=True)


def test_there_are_examples():
    assert len(EXAMPLES) >= 12
