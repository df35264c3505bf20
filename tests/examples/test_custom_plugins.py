"""The example plugins install, are found by the worker, and agree over columns and per host."""

from importlib import import_module

import numpy as np
import pytest

from scheduler_worker.model.aggregates import Aggregate
from tests.support.hosts import aggregate, host_record, host_table, request_spec
from tests.support.packages import install, registered_in

WINDOW = "2026-03-01T22:00/2026-03-02T02:00"
START_S = 1772402400.0
"""The start of the window, in seconds since the epoch."""
SMALL = request_spec(vcpus=1, memory_mb=2048)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A directory into which pip has installed both packages."""
    target = install(tmp_path_factory.mktemp("plugins"), "custom_filter", "custom_weigher")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(target))
        yield target


@pytest.fixture
def maintenance_filter(installed):
    return import_module("maintenance_window_filter").MaintenanceWindowFilter()


@pytest.fixture
def shape_weigher(installed):
    return import_module("packing_shape_weigher").PackingShapeWeigher()


def record(number, **fields):
    size = {"vcpus": 16, "memory_mb": 32768}
    return host_record(host=f"host{number}", **{**size, **fields})


def planned(now_s, window=WINDOW, **metadata):
    """Two hosts, of which the first is in an aggregate with a window."""
    metadata = {"maintenance_window": window, **metadata}
    rack = Aggregate(id=1, name="rack-7", hosts=("host0",), metadata=metadata)
    hosts = host_table([record(0), record(1)], aggregates=[rack])
    hosts.now_s = now_s
    return hosts


@pytest.mark.parametrize(
    ("group", "name", "module"),
    [
        ("filters", "MaintenanceWindowFilter", "maintenance_window_filter"),
        ("weighers", "PackingShapeWeigher", "packing_shape_weigher"),
    ],
)
def test_the_worker_finds_them(installed, group, name, module):
    [entry] = registered_in(installed, f"scheduler_worker.{group}")
    assert (entry.name, entry.value) == (name, f"{module}:{name}")
    assert entry.load().__name__ == name


@pytest.mark.parametrize(
    ("since_start_s", "lead", "passes"),
    [
        (-3601, {}, True),
        (-3600, {}, False),
        (0, {}, False),
        (4 * 3600 - 1, {}, False),
        (4 * 3600, {}, True),
        (-61, {"maintenance_lead_s": "60"}, True),
        (-60, {"maintenance_lead_s": "60"}, False),
    ],
)
def test_hosts_close_an_hour_or_a_lead_before_the_window_and_open_after_it(
    maintenance_filter, since_start_s, lead, passes
):
    hosts = planned(START_S + since_start_s, **lead)
    assert maintenance_filter.passes(hosts, SMALL).tolist() == [passes, True]
    single = [maintenance_filter.host_passes(host, SMALL) for host in hosts.states()]
    assert single == [passes, True]


def test_the_reason_names_the_aggregate_and_the_window(maintenance_filter):
    reason = maintenance_filter.reason(planned(START_S).state(0), SMALL)
    assert reason == f"aggregate rack-7 is under maintenance {WINDOW}"


@pytest.mark.parametrize("window", ["tomorrow", "2026-03-01T22:00", "/", ""])
def test_an_unreadable_window_closes_the_host_and_says_so(maintenance_filter, window):
    hosts = planned(0.0, window)
    assert not maintenance_filter.host_passes(hosts.state(0), SMALL)
    assert "is not start/end" in maintenance_filter.reason(hosts.state(0), SMALL)


def test_the_filter_is_evaluated_for_survivors_only(maintenance_filter):
    assert maintenance_filter.looks_at_rows


def test_raw_values_are_the_formula(shape_weigher):
    # limits: (20 - 4) * 2 = 32 vCPUs and 32768 MiB; free: 24 of 32 and half; asked: 1/8 and 1/4
    reserved = {"vcpus": 20, "reserved_host_cpus": 4}
    reserved |= {"memory_mb": 40960, "reserved_host_memory_mb": 8192}
    used = {"cpu_allocation_ratio": 2.0, "vcpus_used": 8, "memory_mb_used": 16384}
    hosts = host_table([record(0, **reserved, **used)])
    cosine = (0.125 * 0.75 + 0.25 * 0.5) / (np.hypot(0.125, 0.25) * np.hypot(0.75, 0.5))
    raw = shape_weigher.weigh(hosts, request_spec(vcpus=4, memory_mb=8192))
    assert raw[0] == pytest.approx(cosine - 0.2 * 0.625)


@pytest.mark.parametrize("spec", [request_spec(vcpus=2), request_spec(vcpus=0, memory_mb=0)])
def test_columns_and_single_hosts_agree_even_for_odd_hosts(shape_weigher, spec):
    hosts = host_table(
        [
            record(0, vcpus=0, memory_mb=0),
            record(1, vcpus_used=40, memory_mb_used=65536),
            record(2, cpu_allocation_ratio=0.0),
            record(3, vcpus_used=3, memory_mb_used=777),
        ]
    )
    raw = shape_weigher.weigh(hosts, spec)
    assert np.isfinite(raw).all()
    rows = [shape_weigher.weigh_host(host, spec) for host in hosts.states()]
    assert rows == pytest.approx(raw.tolist())


def test_an_aggregate_may_weigh_it_differently(shape_weigher):
    heavy = aggregate("host0", packing_shape_weight_multiplier="3")
    hosts = host_table([record(0), record(1)], aggregates=[heavy])
    assert shape_weigher.multiplier(hosts).tolist() == [3.0, 1.0]
