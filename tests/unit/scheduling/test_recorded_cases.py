"""What Nova's own code answered, unit by unit and for whole requests."""

import json
from importlib.metadata import entry_points

import msgspec
import numpy as np
import pytest

from scheduler_worker.errors import ComputeHostMetricNotFound, NoValidHost
from scheduler_worker.scheduling.extra_specs import match
from scheduler_worker.scheduling.normalize import clamp, normalize
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.scheduling.standing import Standing, Survey
from tests.support.nova_cases import cases, options, spec, table

FILTERS = {each.name: each.load() for each in entry_points(group="scheduler_worker.filters")}
WEIGHERS = {each.name: each.load() for each in entry_points(group="scheduler_worker.weighers")}


def label(case: dict) -> str:
    return case.get("name") or case.get("filter") or ""


@pytest.mark.parametrize(
    "case", [each for each in cases("filters.jsonl") if each["filter"] in FILTERS], ids=label
)
def test_filters(case):
    unit = FILTERS[case["filter"]](options(case["config"]))
    hosts, request = table([case["host"]]), spec(case)
    applies = unit.applies(request) and not (request.is_rebuild_check and not unit.RUN_ON_REBUILD)
    passes = bool(unit.passes(hosts, request)[0]) if applies else True
    if case["expect"].get("raises") == "AttributeError" and unit.name == "ImagePropertiesFilter":
        # Nova cannot read its own cpu_info here; we can, and this host has the address bits.
        assert passes == (request.image_properties["hw_maxphysaddr_bits"] <= 46)
    elif "raises" in case["expect"]:
        assert not passes, "where Nova raises, the host is rejected"
    else:
        assert passes == case["expect"]["passes"]
    if not passes:
        assert unit.reason(hosts.state(0), request) != "does not pass"


@pytest.mark.parametrize("case", list(cases("weighers.jsonl")), ids=label)
def test_weighers(case):
    chosen = options(case["config"])
    hosts, request = table(case["hosts"]), spec(case)
    if "raises" in case["expect"]:
        assert case["expect"]["raises"] == "ComputeHostMetricNotFound"
        with pytest.raises(ComputeHostMetricNotFound):
            WEIGHERS["MetricsWeigher"](chosen).weigh(hosts, request)
        return
    if len(case["hosts"]) < 2:
        everything = Survey(hosts, request, (), first=("", np.ones(len(hosts), bool)))
        units = [unit(chosen) for unit in WEIGHERS.values()]
        totals = Standing(hosts, everything, units).totals(hosts, request)
        assert totals.tolist() == [0.0], "a lone host is not weighed"
        return
    for name, expected in case["per_weigher"].items():
        if name in WEIGHERS:
            unit = WEIGHERS[name](chosen)
            raw = clamp(unit.weigh(hosts, request), unit.minval, unit.maxval)
            assert raw == pytest.approx(expected["raw"], abs=1e-9), name
            normalized = normalize(raw, unit.minval, unit.maxval)
            assert normalized == pytest.approx(expected["norm"], abs=1e-9), name
            multipliers = np.broadcast_to(unit.multiplier(hosts), len(hosts))
            assert multipliers == pytest.approx(expected["mult"], abs=1e-9), name


class LowDice:
    """Cases draw from one host only, or shuffle nothing."""

    def randrange(self, start: int, /) -> int:
        return 0

    def shuffle(self, x, /) -> None:
        pass


def whole_requests():
    for case in cases("schedule.jsonl"):
        enabled = case["config"].get("filter_scheduler.enabled_filters", [])
        drawn = case["config"].get("filter_scheduler.host_subset_size", 1) > 1
        weighed = {name.rpartition(".")[2] for name in case["weigher_order"]} - {"PCIWeigher"}
        built = set(enabled) <= FILTERS.keys() and weighed <= WEIGHERS.keys()
        placement = case["refused_claims"] or not all(
            each["allocation_candidates"] for each in case["hosts"]
        )
        if built and not drawn and not placement:
            yield case


@pytest.mark.parametrize("case", list(whole_requests()), ids=label)
def test_whole_requests(case):
    """Chosen hosts and alternates, where no claim was refused and all units are there."""
    chosen = options(case["config"])
    enabled = case["config"].get("filter_scheduler.enabled_filters", [])
    pipeline = Pipeline(
        [FILTERS[name](chosen) for name in enabled],
        [unit(chosen) for unit in WEIGHERS.values()],
        chosen,
    )
    uuids = case["instance_uuids"] or [f"i{n}" for n in range(spec(case).num_instances)]
    request = Request(
        spec=spec(case),
        instance_uuids=tuple(uuids),
        num_alternates=chosen.max_attempts - 1 if case["return_alternates"] else 0,
    )
    hosts = table(case["hosts"])
    if "NoValidHost" in case["expect"]:
        with pytest.raises(NoValidHost):
            pipeline.decide(hosts, request, LowDice())
        return
    decision = pipeline.decide(hosts, request, LowDice())
    got = [[[s.service_host, s.nodename] for s in some] for some in decision.selections]
    expected = [[each[:2] for each in some] for some in case["expect"]["selections"]]
    assert got == expected
    for state in case["expect"].get("host_states_after", []):
        if not isinstance(state, dict):
            continue
        [record] = hosts.find(state["host"], state.get("node") or state.get("nodename"))
        mine = hosts.state(hosts.row_of(record.uuid))
        for name in ("free_ram_mb", "free_disk_mb", "vcpus_used", "num_instances", "num_io_ops"):
            if name in state:
                assert getattr(mine, name) == state[name], (state["host"], name)


def test_extra_specs():
    for case in cases("extra_specs_match.json"):
        if "raises" in case:
            with pytest.raises(ValueError, match=r"."):
                match(case["value"], case["req"])
        else:
            assert match(case["value"], case["req"]) == case["result"], json.dumps(case)


def test_normalisation():
    for case in cases("normalize.json"):
        values = np.array(case["list"], "f8")
        got = normalize(values, case["kw"].get("minval"), case["kw"].get("maxval"))
        assert got == pytest.approx(case["result"]), case


def test_the_cases_are_there():
    assert sum(1 for each in cases("filters.jsonl") if each["filter"] in FILTERS) > 100
    assert len(list(whole_requests())) > 10
    assert msgspec.structs.asdict(options({}))["max_attempts"] == 3
