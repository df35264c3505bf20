"""The loop around the units: order of steps, survivors, what is consumed, what is explained."""

import random

import pytest

from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.scheduling.explain import explain
from scheduler_worker.scheduling.filters.json_filter import JsonFilter
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import DESTINATION, Pipeline, Request
from scheduler_worker.scheduling.plugin import Filter, Weigher
from tests.support.hosts import host_record, host_table, request_spec


class Roomy(Filter):
    """Hosts with enough memory."""

    def passes(self, hosts, spec):
        return hosts.free_ram_mb >= spec.flavor.memory_mb


class Once(Filter):
    """Counts how often it is asked."""

    run_filter_once_per_request = True
    asked = 0

    def passes(self, hosts, spec):
        type(self).asked += 1
        return hosts.free_ram_mb >= 0


class OneByOne(Filter):
    """Remembers which hosts it was shown."""

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


def decide(hosts, spec, *uuids, filters=(Roomy,), alternates=0, promised=None):
    pipeline = Pipeline([unit() for unit in filters], [Free()], Options())
    request = Request(spec=spec, instance_uuids=uuids or ("i",), num_alternates=alternates)
    return pipeline.decide(hosts, request, random.Random(1), promised)


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


def test_filters_that_run_once_run_once():
    Once.asked = 0
    decide(table(9000, 9000), request_spec(memory_mb=10), "a", "b", "c", filters=(Once, Roomy))
    assert Once.asked == 1


def test_row_faces_come_last_whatever_is_configured_and_explanations_keep_the_order():
    hosts = host_table([host_record(host="h1"), host_record(host="h2", memory_mb=1)])
    pipeline = Pipeline([OneByOne(), Roomy()], [], Options())
    request = Request(spec=request_spec(), instance_uuids=("i",))
    OneByOne.shown = []
    with pytest.raises(NoValidHost) as refused:
        pipeline.decide(hosts, request, random.Random(1))
    assert OneByOne.shown == ["h1"]
    assert [step.name for step in refused.value.diagnosis.filters] == ["Roomy", "OneByOne"]
    told = explain(pipeline, hosts, request, random.Random(1))
    assert [(step.name, step.hosts_out) for step in told.filters] == [("OneByOne", 1), ("Roomy", 0)]


def test_a_row_face_is_shown_survivors_only():
    OneByOne.shown = []
    decision = decide(table(10, 9000, 5000), request_spec(memory_mb=100), filters=(Roomy, OneByOne))
    assert names(decision) == [["h2"]]
    assert set(OneByOne.shown) == {"h1", "h2"}


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
    spec = {"force_hosts": ["h0"], "memory_mb": 5000}
    assert names(decide(hosts, request_spec(**spec))) == [["h0"]]
    with pytest.raises(NoValidHost):
        decide(table(10), request_spec(**spec, scheduler_hints={"_nova_check_type": ["other"]}))


def test_forced_hosts_do_not_hear_of_nonsense_in_what_nobody_reads():
    asked = {"scheduler_hints": {"query": ['["no such operator"']}}
    with pytest.raises(RequestError):
        decide(table(10), request_spec(**asked), filters=(JsonFilter,))
    forced = request_spec(**asked, force_hosts=["h0"])
    assert names(decide(table(10), forced, filters=(JsonFilter,))) == [["h0"]]


def test_alternates_are_of_the_same_cell_and_never_chosen_ones():
    hosts = table(9000, 8000, 7000, 6000, 5000, cells="ababa")
    decision = decide(hosts, request_spec(memory_mb=3000), "x", "y", alternates=2)
    assert names(decision) == [["h0", "h2", "h4"], ["h1", "h3"]]


def test_a_promised_instance_keeps_its_host_and_claims_nothing():
    hosts = table(9000, 8000)
    decision = decide(hosts, request_spec(memory_mb=10), "old", "new", promised={"old": 1})
    assert names(decision) == [["h1"], ["h0"]]
    assert [claim.instance_uuid for claim in decision.claims] == ["new"]


def test_a_group_grows_with_the_request():
    seen = []

    class Watching(Filter):
        """Remembers the group's hosts."""

        def passes(self, hosts, spec):
            seen.append(spec.instance_group.hosts)
            return hosts.free_ram_mb >= spec.flavor.memory_mb

    group = {"policy": "anti-affinity", "members": ["a", "b"], "hosts": ["h9"]}
    spec = request_spec(memory_mb=5000, instance_group=group)
    decide(table(9000, 8000), spec, "a", "b", filters=(Watching,))
    assert seen == [("h9",), ("h9", "h0")]


def test_requested_resources_are_mapped_to_the_host():
    spec = request_spec(memory_mb=10, requested_resources=[{"requester_id": "port-1"}])
    [[chosen]] = decide(table(9000), spec).selections
    assert '"port-1": ["u0"]' in chosen.allocation_request
    assert chosen.allocation_request_version == "1.36"
