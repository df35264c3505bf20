"""The pipeline: order of steps, survivors, consumed claims, explanations."""

import contextlib
import random
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from scheduler_worker.errors import ComputeHostMetricNotFound, NoValidHost, RequestError
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.decisions import Allocation
from scheduler_worker.scheduling.destination import LABEL as DESTINATION
from scheduler_worker.scheduling.filters.capacity import RamFilter
from scheduler_worker.scheduling.filters.compute_capabilities import ComputeCapabilitiesFilter
from scheduler_worker.scheduling.filters.json_filter import JsonFilter
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.plugin import Filter, Weigher
from scheduler_worker.scheduling.selectors import NormalizedSum, RankSum, WeightedSum
from scheduler_worker.scheduling.weighers.metrics import MetricsWeigher
from scheduler_worker.scheduling.weighers.resources import CPUWeigher, RAMWeigher
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.units import decided, explained, made, pipeline_of


class Roomy(Filter):
    """Hosts with enough memory."""

    def passes(self, hosts, spec):
        return hosts.free_ram_mb >= spec.flavor.memory_mb


class RoomyForNow(Roomy):
    momentary = True


class Once(Filter):
    """Counts how often it is asked."""

    run_filter_once_per_request = True
    asked = 0

    def passes(self, hosts, spec):
        type(self).asked += 1
        return hosts.free_ram_mb >= 0


class OneByOne(Filter):
    """Records which hosts it is asked about."""

    shown: list[str] = []  # noqa: RUF012

    def host_passes(self, host_state, spec_obj):
        type(self).shown.append(host_state.host)
        return host_state.host != "h1"


class Free(Weigher):
    """Free memory."""

    minval = 0

    def weigh(self, hosts, spec):
        return hosts.free_ram_mb


def table(*free_mb: int, **fields):
    return host_table(
        [
            host_record(uuid=f"u{at}", host=f"h{at}", nodename=f"n{at}", memory_mb=10_000,
                        free_ram_mb=free, cell_uuid=fields.get("cells", "ccc")[at])
            for at, free in enumerate(free_mb)
        ]
    )  # fmt: skip


def decide(hosts, spec, *uuids, filters=(Roomy,), alternates=0, reserved=None):
    pipeline = pipeline_of([unit() for unit in filters], [Free()], Options())
    return decided(pipeline, hosts, spec, *uuids, alternates=alternates, reserved=reserved)


def names(decision) -> list[list[str]]:
    return [[each.service_host for each in some] for some in decision.selections]


def test_the_next_instance_sees_what_the_one_before_took():
    hosts = table(3000, 2500)
    decision = decide(hosts, request_spec(memory_mb=1000), "a", "b", "c")
    assert names(decision) == [["h0"], ["h1"], ["h0"]]
    assert hosts.free_ram_mb.tolist() == [1000, 1500]
    assert [claim.host_version for claim in decision.claims] == [1, 2, 1]


def test_a_failure_gives_everything_back():
    hosts = table(3000, 2500)
    with pytest.raises(NoValidHost, match="There are not enough hosts available") as refused:
        decide(hosts, request_spec(memory_mb=2000), "a", "b", "c")
    assert hosts.free_ram_mb.tolist() == [3000, 2500]
    steps = [(each.name, each.hosts_in, each.hosts_out) for each in refused.value.diagnosis.filters]
    assert steps == [("earlier instances", 2, 1), ("Roomy", 1, 0)]


def test_a_failure_gives_back_what_its_instances_had_before():
    hosts = table(3000, 0)
    decide(hosts, request_spec(memory_mb=1000), "a")
    with pytest.raises(NoValidHost):
        decide(hosts, request_spec(memory_mb=1500), "a", "b", "c")
    assert hosts.free_ram_mb.tolist() == [2000, 0]


def test_filters_that_run_once_run_once():
    Once.asked = 0
    decide(table(9000, 9000), request_spec(memory_mb=10), "a", "b", "c", filters=(Once, Roomy))
    assert Once.asked == 1


@pytest.mark.parametrize(
    ("free_mb", "uuids", "filters", "momentary"),
    [
        ((100, 5000), ["i"], [RoomyForNow], True),
        ((5000, 5000), ["i"], [RoomyForNow], False),
        ((100, 5000), ["i"], [Roomy], False),
        ((100, 5000), ["i", "j"], [RoomyForNow], True),
        ((100, 5000), ["i", "j"], [Once, RoomyForNow], True),
        ((100, 5000), ["i", "j"], [Once, Roomy], False),
    ],
)
def test_a_diagnosis_says_whether_hosts_were_refused_for_the_moment(
    free_mb, uuids, filters, momentary
):
    spec = request_spec(memory_mb=1000)
    found = decide(table(*free_mb), spec, *uuids, filters=filters)
    assert found.diagnosis.momentary is momentary


@pytest.mark.parametrize("count", [1, 2])
def test_a_filter_that_runs_once_does_not_reject_for_what_earlier_instances_took(count):
    """Nova asks it for the first instance only, whether its results are cached or not."""
    spec = request_spec(memory_mb=1000, extra_specs={"capabilities:free_ram_mb": ">= 2000"})
    pipeline = pipeline_of([RamFilter(), ComputeCapabilitiesFilter()], [RAMWeigher()], Options())
    hosts = table(*([3500] * count))
    assert len(decided(pipeline, hosts, spec, *"abcdef"[: 3 * count]).claims) == 3 * count
    assert hosts.free_ram_mb.tolist() == [500] * count


METRIC = [{"name": "cpu.frequency", "value": 1}]
REQUIRED = Options.of(metrics_weight_setting=("cpu.frequency=1",))


def three_hosts():
    """Two that report a metric, and ``c``, which does not, and has the instance x."""
    hosts = (host_record(host="a", metrics=METRIC), host_record(host="b", metrics=METRIC))
    return host_table([*hosts, host_record(host="c")], instances={"c": {"x": {}}})


def test_a_weigher_that_raises_raises_again():
    hosts = three_hosts()
    pipeline = pipeline_of([], [made(MetricsWeigher, REQUIRED), Free()], REQUIRED)
    for _ in range(3):
        with pytest.raises(ComputeHostMetricNotFound, match=r"on the compute host node c\.c"):
            decided(pipeline, hosts, request_spec())
    hosts.put(host_record(host="c", metrics=METRIC), 9)
    assert decided(pipeline, hosts, request_spec()).selections


class Failing(Free):
    """Raises when it is asked about one host."""

    fails = False

    def reads(self, spec):
        return ()

    def weigh_host(self, host_state, weight_properties):
        if self.fails:
            raise RuntimeError("it is not known")
        return super().weigh_host(host_state, weight_properties)


def test_what_a_unit_has_left_half_done_is_not_kept():
    hosts, failing = table(100, 3000, 2000), Failing()
    pipeline = pipeline_of([RamFilter()], [RAMWeigher(), failing], Options())
    spec = request_spec(memory_mb=500)
    assert names(decided(pipeline, hosts, spec, "a")) == [["h1"]]
    hosts.put(structs.replace(hosts.records[0], free_ram_mb=9000), 9)
    failing.fails = True
    with pytest.raises(RuntimeError, match="it is not known"):
        decided(pipeline, hosts, spec, "b")
    failing.fails = False
    assert names(decided(pipeline, hosts, spec, "b")) == [["h0"]]


class Odd(Weigher):
    """NaN for ``h0``; of the others, the fuller the better."""

    def weigh_host(self, host_state, weight_properties):
        return float("nan") if host_state.host == "h0" else 10_000.0 - host_state.free_ram_mb


def test_a_nan_score_counts_as_0_and_changes_no_other():
    hosts, pipeline = table(100, 2000, 3000), pipeline_of([], [Odd()], Options())
    chosen = []
    for number in range(3):
        chosen += names(decided(pipeline, hosts, request_spec(memory_mb=100), f"i{number}"))
    assert chosen == [["h1"]] * 3


def test_row_filters_run_last_and_explanations_keep_the_configured_order():
    hosts = host_table([host_record(host="h1"), host_record(host="h2", memory_mb=1)])
    pipeline = pipeline_of([OneByOne(), Roomy()], [], Options())
    OneByOne.shown = []
    with pytest.raises(NoValidHost) as refused:
        decided(pipeline, hosts, request_spec())
    assert OneByOne.shown == ["h1"]
    assert [step.name for step in refused.value.diagnosis.filters] == ["Roomy", "OneByOne"]
    diagnosis = explained(pipeline, hosts, request_spec())
    assert [(step.name, step.hosts_out) for step in diagnosis.filters] == [
        ("OneByOne", 1),
        ("Roomy", 0),
    ]


class Limiting(Filter):
    """Leaves a limit in Nova's way, on hosts with an even number only."""

    shown: list[str] = []  # noqa: RUF012

    def host_passes(self, host_state, spec_obj):
        type(self).shown.append(host_state.host)
        if host_state.host in {"h0", "h2"}:
            host_state.limits["vcpu"] = int(host_state.num_instances) + 10
        return True


class DeclaredLimiting(Limiting):
    def reads(self, spec):
        return spec.flavor.memory_mb


def limits(decision) -> list[list[int | None]]:
    return [[each.limits.vcpu for each in some] for some in decision.selections]


@pytest.mark.parametrize("kind", [Limiting, DeclaredLimiting])
def test_a_filter_is_asked_once_about_a_host_and_again_when_the_host_has_changed(kind):
    kind.shown = []
    hosts = table(9000, 8000, 7000)
    found = decide(hosts, request_spec(memory_mb=100), filters=(kind,), alternates=2)
    assert names(found) == [["h0", "h1", "h2"]]
    assert limits(found) == [[10, None, 10]]
    assert sorted(kind.shown) == ["h0", "h1", "h2"]

    kind.shown = []
    hosts = table(9000, 8000, 7950)
    spec = request_spec(memory_mb=1000)
    found = decide(hosts, spec, "a", "b", "c", filters=(kind, Once), alternates=1)
    assert [some[0] for some in names(found)] == ["h0", "h0", "h1"]
    assert names(found)[0] == ["h0", "h2"]
    assert [some[0] for some in limits(found)] == [10, 11, None]
    assert kind.shown == [*["h0", "h1", "h2"] * 3, "h1"]


def test_a_limit_that_is_kept_follows_the_use_of_its_host():
    hosts, pipeline = table(9000, 1000), pipeline_of([made(DeclaredLimiting)], [made(RAMWeigher)])
    found = [decided(pipeline, hosts, request_spec(memory_mb=100), uuid) for uuid in "abc"]
    assert [limits(each) for each in found] == [[[10]], [[11]], [[12]]]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"requested_destination": {"host": "h1"}}, "h1"),
        ({"requested_destination": {"host": "h1", "node": "n1"}}, "h1"),
        ({"requested_destination": {"host": "H1"}}, None),
        ({"requested_destination": {"host": "h1", "node": "n2"}}, None),
        ({"requested_destination": {"cell": {"uuid": "b"}}}, "h2"),
        ({"requested_destination": {"cell": {"uuid": "b"}, "allow_cross_cell_move": True}}, "h0"),
        ({"ignore_hosts": ["H0", "h1"]}, "h2"),
        ({"force_hosts": ["H2"]}, "h2"),
        ({"force_hosts": ["h1"], "force_nodes": ["n1"]}, "h1"),
        ({"force_nodes": ["N1"]}, None),
        ({"force_hosts": ["h1"], "ignore_hosts": ["h1"]}, None),
    ],
)
def test_destination_ignored_and_forced(spec, expected):
    hosts = table(9000, 8000, 7000, cells="aab")
    if expected is None:
        with pytest.raises(NoValidHost) as refused:
            decide(hosts, request_spec(memory_mb=10, **spec))
        assert refused.value.diagnosis.filters[0].name == DESTINATION
    else:
        assert names(decide(hosts, request_spec(memory_mb=10, **spec))) == [[expected]]


def test_forced_hosts_are_not_filtered_unless_it_is_a_check():
    hosts = table(10, 9000)
    spec: dict[str, Any] = {"force_hosts": ["h0"], "memory_mb": 5000}
    assert names(decide(hosts, request_spec(**spec))) == [["h0"]]
    with pytest.raises(NoValidHost):
        decide(table(10), request_spec(**spec, scheduler_hints={"_nova_check_type": ["other"]}))


def test_forced_hosts_ignore_invalid_fields_of_skipped_filters():
    asked: dict[str, Any] = {"scheduler_hints": {"query": ['["no such operator"']}}
    with pytest.raises(RequestError):
        decide(table(10), request_spec(**asked), filters=(JsonFilter,))
    forced = request_spec(**asked, force_hosts=["h0"])
    assert names(decide(table(10), forced, filters=(JsonFilter,))) == [["h0"]]


def test_an_instance_with_a_reservation_keeps_its_host_and_claims_nothing():
    hosts = table(9000, 8000)
    decision = decide(hosts, request_spec(memory_mb=10), "old", "new", reserved={"old": 1})
    assert names(decision) == [["h1"], ["h0"]]
    assert [claim.instance_uuid for claim in decision.claims] == ["new"]


def test_a_group_grows_with_the_request():
    seen = []

    class Watching(Filter):
        """Records the group's hosts."""

        def passes(self, hosts, spec):
            seen.append(spec.instance_group.hosts)
            return hosts.free_ram_mb >= spec.flavor.memory_mb

    group = {"policy": "anti-affinity", "members": ["a", "b"], "hosts": ["h9"]}
    spec = request_spec(memory_mb=5000, instance_group=group)
    decide(table(9000, 8000), spec, "a", "b", filters=(Watching,))
    assert seen == [("h9",), ("h9", "h0")]


class GrownGroup(Filter):
    """Passes ``h0`` alone until the group has a host."""

    def reads(self, spec):
        return spec.instance_group.hosts

    def host_passes(self, host_state, spec_obj):
        return host_state.host == "h0" or bool(spec_obj.instance_group.hosts)


def test_a_host_that_was_rejected_for_an_earlier_instance_stays_rejected():
    hosts, pipeline = table(1500, 9000), pipeline_of([RamFilter(), GrownGroup()], [RAMWeigher()])
    spec = request_spec(memory_mb=1000, instance_group={"policy": "affinity", "members": ["a"]})
    with pytest.raises(NoValidHost):
        decided(pipeline, hosts, spec, "a", "b")
    assert names(decided(pipeline, hosts, spec, "a")) == [["h0"]]


class SmallGroup(Filter):
    """Passes hosts while the group has fewer than two."""

    def host_passes(self, host_state, spec_obj):
        return len(spec_obj.instance_group.hosts) < 2


def test_alternates_are_for_the_group_as_it_has_grown():
    hosts, group = table(9000, 8000, 7000), {"policy": "anti-affinity", "members": ["a", "b"]}
    spec = request_spec(memory_mb=5000, instance_group=group)
    found = decide(hosts, spec, "a", "b", filters=(Roomy, SmallGroup), alternates=1)
    assert names(found) == [["h0"], ["h1"]]


def test_requested_resources_are_mapped_to_the_host():
    spec = request_spec(memory_mb=10, requested_resources=[{"requester_id": "port-1"}])
    [[chosen]] = decide(table(9000), spec).selections
    assert chosen.allocation == Allocation(mappings={"port-1": ["u0"]})


class FreeMemory(Weigher):
    """Has no bound, and counts thrice."""

    default_factor = 3.0
    reads_request = False

    def weigh(self, hosts, spec):
        return hosts.free_ram_mb


class Alike(Weigher):
    """The same for all hosts."""

    reads_request = False

    def weigh(self, hosts, spec):
        return np.full(len(hosts), 5.0)


@pytest.mark.parametrize("selector", [NormalizedSum, WeightedSum, RankSum])
@pytest.mark.parametrize("seed", range(6))
def test_best_totals_by_ends_are_those_by_all_hosts(seed, selector, monkeypatch):
    rng = random.Random(seed)
    weights = [made(unit) for unit in (RAMWeigher, FreeMemory, Alike)]
    pipeline = pipeline_of([made(RamFilter)], weights, selector=selector)
    tables = [
        host_table(
            host_record(host=f"{at}-{number}", memory_mb_used=rng.randrange(7000), vcpus=8)
            for number in range(rng.choice([0, 1, 2, 5]))
        )
        for at in range(4)
    ]
    for number in range(6):
        spec = request_spec(memory_mb=512 * rng.randrange(1, 3), instance_uuid=f"i{number}")
        totals = pipeline.best_totals(tables, spec)
        with monkeypatch.context() as patch:
            patch.setattr("scheduler_worker.scheduling.pipeline._common", lambda _: None)
            assert pipeline.best_totals(tables, spec) == totals
        table = rng.choice([table for table in tables if len(table)])
        with contextlib.suppress(NoValidHost):
            pipeline.decide(table, Request(spec=spec, instance_uuids=(f"i{number}",)), rng)


def test_clusters_whose_aggregates_switch_different_weights_on_are_scored_together():
    weights = [
        made(RAMWeigher, ram_weight_multiplier=0.0),
        made(CPUWeigher, cpu_weight_multiplier=0.0),
    ]
    pipeline = pipeline_of([], weights)
    tables = [
        host_table(
            [host_record(host=host, memory_mb_used=used) for host, used in hosts.items()],
            aggregates=[Aggregate(id=1, hosts=tuple(hosts), metadata={multiplier: "1.0"})],
        )
        for multiplier, hosts in (
            ("ram_weight_multiplier", {"a1": 7168, "a2": 6144}),
            ("cpu_weight_multiplier", {"b1": 0, "b2": 4096}),
        )
    ]
    assert pipeline.best_totals(tables, request_spec()) == [0.25, 1.0]
