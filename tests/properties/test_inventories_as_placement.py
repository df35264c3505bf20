"""Capacity by inventories against a small model of Placement, for any hosts and requests."""

import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.claims import Claim, Reservation
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.prefilters.units import Inventories
from tests.support.hosts import NOW_S, host_record, host_table, request_spec
from tests.support.trials import examples
from tests.support.units import pipeline_of

CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")

inventories = st.fixed_dictionaries(
    {
        "total": st.integers(0, 12),
        "reserved": st.integers(0, 3),
        "allocation_ratio": st.sampled_from([0.5, 1.0, 1.3, 2.0]),
        "min_unit": st.integers(1, 2),
        "max_unit": st.integers(1, 12),
        "step_size": st.integers(1, 3),
    }
)
hosts_inventories = st.dictionaries(st.sampled_from(CLASSES), inventories, min_size=1)
flavors = st.fixed_dictionaries(
    {
        "vcpus": st.integers(0, 5),
        "memory_mb": st.integers(0, 5),
        "root_gb": st.integers(0, 3),
        "ephemeral_gb": st.integers(0, 2),
        "swap": st.sampled_from([0, 1, 1024, 1025]),
    }
)


class Placement:
    """What a provider of these inventories allocates; checks like the service itself does."""

    def __init__(self, inventories: dict[str, dict[str, Any]]) -> None:
        self._inventories = inventories
        self.allocations: dict[str, dict[str, int]] = {}

    def used(self, name: str) -> int:
        return sum(each.get(name, 0) for each in self.allocations.values())

    def accepts(self, wanted: dict[str, int]) -> bool:
        return all(self._has(name, amount) for name, amount in wanted.items() if amount)

    def _has(self, name: str, amount: int) -> bool:
        if name not in self._inventories:
            return False
        each = self._inventories[name]
        units = each["min_unit"] <= amount <= each["max_unit"] and not amount % each["step_size"]
        capacity = (each["total"] - each["reserved"]) * each["allocation_ratio"]
        return units and self.used(name) + amount <= capacity


def wanted_by(flavor: dict[str, int], *, boots_from_volume: bool) -> dict[str, int]:
    root_gb = 0 if boots_from_volume else flavor["root_gb"]
    disk_gb = root_gb + flavor["ephemeral_gb"] + math.ceil(flavor["swap"] / 1024)
    return {"VCPU": flavor["vcpus"], "MEMORY_MB": flavor["memory_mb"], "DISK_GB": disk_gb}


def record(name: str, services: dict[str, Placement], reported: dict, read_at_s: float):
    model = services[name]
    root = {
        "uuid": f"uuid-{name}",
        "inventories": reported,
        "usages": {each: used for each in CLASSES if (used := model.used(each))},
        "consumers": tuple(model.allocations),
        "read_at_s": read_at_s,
    }
    return host_record(host=name, resource_providers=[root])


class Draws:
    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def randrange(self, start: int, /) -> int:
        return self._data.draw(st.integers(0, start - 1))

    def shuffle(self, x, /) -> None:
        pass


def as_stored(claim: Claim, now_s: float) -> Reservation:
    names = ("instance_uuid", "host_uuid", "host", "nodename", "resources")
    fields = {name: getattr(claim, name) for name in names}
    return Reservation(created_at_s=now_s, expires_at_s=2 * now_s, token=1, **fields)


@examples(75)
@given(fleet=st.lists(hosts_inventories, min_size=1, max_size=3), data=st.data())
def test_a_host_passes_if_and_only_if_placement_would_accept_the_claim(fleet, data):
    """Whatever was claimed, reserved only, read again, or deleted before."""
    services = {f"h{n}": Placement(each) for n, each in enumerate(fleet)}
    reported = {f"h{n}": each for n, each in enumerate(fleet)}
    now_s = NOW_S
    hosts: HostTable = host_table(
        record(name, services, reported[name], now_s) for name in services
    )
    unit, pipeline = Inventories(), pipeline_of()
    reserved: dict[str, Reservation] = {}
    for number in range(data.draw(st.integers(1, 12))):
        now_s += 1
        step = data.draw(st.sampled_from(["place", "place", "read", "delete", "release"]))
        if step == "place":
            flavor, is_bfv = data.draw(flavors), data.draw(st.booleans())
            spec = request_spec(flavor=flavor, is_bfv=is_bfv)
            wanted = wanted_by(flavor, boots_from_volume=is_bfv)
            could = [services[host.host].accepts(wanted) for host in hosts.states()]
            assert unit.passes(hosts, spec).tolist() == could
            assert [unit.host_passes(host, spec) for host in hosts.states()] == could
            uuid = f"i{number}"
            request = Request(spec=spec, instance_uuids=(uuid,))
            try:
                [claim] = pipeline.decide(hosts, request, Draws(data)).claims
            except NoValidHost:
                assert not any(could)
                continue
            services[claim.host].allocations[uuid] = wanted
            reserved[claim.id] = as_stored(claim, now_s)
            hosts.consume(reserved[claim.id])
        elif step == "read":
            name = data.draw(st.sampled_from(sorted(services)))
            hosts.put(record(name, services, reported[name], now_s), number + 10)
        elif reserved:
            id_ = data.draw(st.sampled_from(sorted(reserved)))
            ended = reserved.pop(id_)
            name = ended.host
            if step == "release":
                services[name].allocations.pop(ended.instance_uuid)
            hosts.give_back(id_)
            # Either way the usages are read again: they have the instance, or do not.
            hosts.put(record(name, services, reported[name], now_s), number + 10)


@given(
    inventory=inventories,
    amounts=st.lists(st.integers(1, 4), max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_taking_and_giving_back_leaves_the_very_same_columns(inventory, amounts, order):
    services = {"h": Placement({"VCPU": inventory})}
    hosts = host_table([record("h", services, {"VCPU": inventory}, NOW_S)])
    before = {name: values[:1].tolist() for name, values in hosts.columns.items()}
    claims = []
    for number, amount in enumerate(amounts):
        spec = request_spec(vcpus=amount, memory_mb=0)
        limits = msgspec.convert({}, type(pipeline_of().selections.of(hosts, 0, spec, None).limits))
        claim = pipeline_of().selections.claim(hosts.state(0), spec, limits, "")
        claims.append(msgspec.structs.replace(claim, instance_uuid=f"i{number}"))
        hosts.consume(claims[-1])
    assert hosts.unused_vcpu[0] == before["unused_vcpu"][0] - sum(amounts)
    order.shuffle(claims)
    for claim in claims:
        hosts.give_back(claim.id)
    assert {name: values[:1].tolist() for name, values in hosts.columns.items()} == before
