"""Every recorded message of a Nova client, decoded, served and answered."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.rpc.dispatcher import Context, Dispatcher, Message
from scheduler_worker.rpc.nova import NovaEndpoint, baseapi
from scheduler_worker.waiters import complete
from tests.support.samples import SAMPLES, recorded
from tests.support.services import World, host

RECORDED = sorted([*SAMPLES.glob("wire/*.json"), *SAMPLES.glob("wire_specs/*.json")])


def message(path: Path) -> dict:
    return json.loads(path.read_text())["oslo.message"]


def network_card(host_name: str) -> dict:
    return {
        "uuid": f"card-of-{host_name}",
        "traits": ["CUSTOM_PHYSNET_PHYSNET1", "CUSTOM_VNIC_TYPE_NORMAL"],
        "inventories": {
            "NET_BW_EGR_KILOBIT_PER_SEC": {"total": 10_000},
            "NET_BW_IGR_KILOBIT_PER_SEC": {"total": 10_000},
        },
    }


@pytest.fixture
def world() -> World:
    world = World()
    world.report(
        *(
            host(
                name,
                memory_mb=65536,
                vcpus=64,
                local_gb=1000,
                nodename=name,
                traits=["HW_CPU_X86_AVX2"],
                resource_providers=[network_card(name)],
            )
            for name in ("host1", "host2", "host3", "node1")
        )
    )
    return world


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_message_is_served(world, path):
    recorded = message(path)
    endpoints = [NovaEndpoint(world.scheduler, world.inventory).endpoint(), baseapi()]
    [endpoint] = [e for e in endpoints if e.namespace == recorded.get("namespace")]
    assert tuple(map(int, recorded["version"].split("."))) <= tuple(
        map(int, endpoint.version.split("."))
    )
    context = Context(request_id=recorded["_context_request_id"], message_id=recorded["_unique_id"])
    method = endpoint.methods[recorded["method"]]
    try:
        answer = method(context, **recorded["args"])
        if inspect.iscoroutine(answer):
            answer = complete(answer)
    except NoValidHost:
        # Forced or destined to a host that this fleet does not have.
        assert {"forced", "requested_destination", "rebuild"} & {path.stem}
        return
    json.dumps(answer)
    if recorded["method"] == "select_destinations":
        check_selections(recorded["args"], answer, world)


def check_selections(arguments: dict, answer: list, world: World) -> None:
    uuids = arguments.get("instance_uuids")
    reserved = sorted(sum(world.reserved().values(), []))
    if uuids:
        assert len(answer) == len(uuids)
        assert reserved in (sorted(uuids), []), "reserved, or only checked"
    if arguments.get("return_objects"):
        names = [each["nova_object.name"] for some in answer for each in some]
        assert set(names) == {"Selection"}
        forced = arguments["spec_obj"]["nova_object.data"].get("force_hosts")
        if arguments.get("return_alternates") and not forced:
            assert all(len(some) > 1 for some in answer)
    else:
        assert all({"host", "nodename", "limits"} == each.keys() for each in answer)


def test_repeated_calls_without_instance_ids_are_recognised(world):
    spec = recorded("wire/ok_01_select_destinations")["spec_obj"]
    spec["nova_object.data"] |= {"num_instances": 3, "instance_uuid": None}
    nova = NovaEndpoint(world.scheduler, world.inventory)
    for _ in range(2):
        assert (
            len(complete(nova.select_destinations(Context(request_id="req-1"), spec_obj=spec))) == 3
        )
    assert len(world.reservations()) == 3


def test_recorded_casts_take_effect(world):
    methods = NovaEndpoint(world.scheduler, world.inventory).endpoint().methods
    effects = []
    for path in sorted(SAMPLES.glob("wire/ok_1[1-5]_*.json")):
        sent = message(path)
        methods[sent["method"]](Context(message_id=path.stem), **sent["args"])
        [found] = [each for each in world.hosts() if each["host"] == "host1"]
        effects.append((found["aggregates"], found["instances"]))
    one = "11111111-1111-4111-8111-111111111111"
    assert effects == [
        (["agg1", "agg2"], []),
        (["agg1"], []),
        (["agg1"], [one]),
        (["agg1"], []),
        (["agg1"], [one]),
    ]


class Hints:
    """A feeder that notes what it was told."""

    def __init__(self) -> None:
        self.told: list[bool] = []

    def look_now(self, *, outline: bool = False) -> None:
        self.told.append(outline)


@pytest.mark.parametrize(
    ("method", "arguments", "outline"),
    [
        ("update_aggregates", {"aggregates": "anything"}, True),
        ("delete_aggregate", {"aggregate": None}, True),
        ("update_instance_info", {"host_name": "host1", "instance_info": object()}, False),
        ("delete_instance_info", {"host_name": "host1", "instance_uuid": "i"}, False),
        ("sync_instance_info", {"host_name": "host1", "instance_uuids": ["i"]}, False),
    ],
)
def test_with_a_feed_casts_are_hints_and_change_nothing(world, method, arguments, outline):
    hints: Any = Hints()
    before = world.fleet.cluster("default").seen
    endpoint = NovaEndpoint(world.scheduler, world.inventory, hints).endpoint()
    endpoint.methods[method](Context(), **arguments)
    assert hints.told == [outline]
    with world.fleet.cluster("default").lock:
        world.fleet.cluster("default").refresh(world.state)
    assert world.fleet.cluster("default").seen == before


def test_casts_about_aggregates_and_about_a_host_are_served_in_order(world):
    served = Dispatcher([NovaEndpoint(world.scheduler, world.inventory).endpoint()])

    def order_of(method: Any, args: Any) -> str | None:
        return served.order_of(Message(method=method, args=args))

    assert order_of("update_aggregates", {}) == order_of("delete_aggregate", {"aggregate": 1})
    on_a, on_b = {"host_name": "a"}, {"host_name": "b", "instance_uuid": "i"}
    assert order_of("sync_instance_info", on_a) == order_of("update_instance_info", on_a)
    assert order_of("sync_instance_info", on_a) != order_of("delete_instance_info", on_b)
    assert order_of("sync_instance_info", {"host_name": ["a"]}) is not None
    for method, args in (("select_destinations", {}), ("sync_instance_info", 7), (["odd"], {})):
        assert order_of(method, args) is None
