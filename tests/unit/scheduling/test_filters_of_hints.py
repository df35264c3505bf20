"""Filters that read hints, the image's id, earlier attempts, exact sizes, flavors and metrics."""

from typing import Any

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.scheduling.filters.affinity import (
    DifferentHostFilter,
    SameHostFilter,
    SimpleCIDRAffinityFilter,
    TypeAffinityFilter,
)
from scheduler_worker.scheduling.filters.capacity import (
    ExactCoreFilter,
    ExactDiskFilter,
    ExactRamFilter,
)
from scheduler_worker.scheduling.filters.compute import MetricsFilter
from scheduler_worker.scheduling.filters.isolated_hosts import IsolatedHostsFilter, RetryFilter
from scheduler_worker.scheduling.filters.json_filter import JsonFilter
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.units import made

INSTANCES: dict[str, Any] = {
    "h1": {"i1": {"instance_type_id": 1}, "i2": {"instance_type_id": 1}},
    "h2": {"i3": {}},
}


def fleet(**facts):
    """h1 with i1 and i2, h2 with i3, h3 with nothing."""
    records = [host_record(host=name, **facts) for name in ("h1", "h2", "h3")]
    return host_table(records, instances=INSTANCES)


def passing(unit, spec, hosts=None) -> str:
    """The numbers of the hosts that pass; both methods must agree, and the others give a reason."""
    hosts = hosts or fleet()
    mask = unit.passes(hosts, spec).tolist()
    assert mask == [unit.host_passes(host, spec) for host in hosts.states()]
    assert all(mask) or unit.applies(spec)
    for host, passes in zip(hosts.states(), mask, strict=True):
        assert passes or unit.reason(host, spec) != "does not pass"
    return "".join(
        host.host[1:] for host, passes in zip(hosts.states(), mask, strict=True) if passes
    )


def hinted(**hints):
    return request_spec(scheduler_hints=hints)


@pytest.mark.parametrize(
    ("named", "different", "same"),
    [
        (["i1", "i3"], "3", "12"),
        ([""], "123", "123"),
    ],
    ids=str,
)
def test_near_or_away_from_instances(named, different, same):
    assert passing(DifferentHostFilter(), hinted(different_host=named)) == different
    assert passing(SameHostFilter(), hinted(same_host=named)) == same


class TestAddresses:
    unit = SimpleCIDRAffinityFilter()

    @pytest.mark.parametrize(
        ("hints", "passes"),
        [
            ({"build_near_host_ip": ["192.0.2.130"]}, True),
            ({"build_near_host_ip": ["192.0.2.130"], "cidr": ["/25"]}, False),
            ({"build_near_host_ip": ["::"], "cidr": ["/0"]}, False),
            ({"build_near_host_ip": [""]}, True),
        ],
        ids=str,
    )
    def test_the_host_is_in_the_network(self, hints, passes):
        hosts = host_table([host_record(host="h1", host_ip="192.0.2.1")])
        assert passing(self.unit, hinted(**hints), hosts) == ("1" if passes else "")

    @pytest.mark.parametrize("address", [None, "", "nowhere"])
    def test_a_host_without_an_address_is_in_no_network(self, address):
        hosts = host_table([host_record(host="h1", host_ip=address)])
        for everywhere in ("0.0.0.0", "::"):
            spec = hinted(build_near_host_ip=[everywhere], cidr=["/0"])
            assert passing(self.unit, spec, hosts) == ""


@pytest.mark.parametrize(
    ("images", "hosts", "restricts", "image", "expected"),
    [
        ([], ["h1"], False, "a", "123"),
        (["a"], ["h1"], True, None, "23"),
        (["a"], [], True, "a", ""),
    ],
)
def test_isolated_images_and_hosts_belong_together(images, hosts, restricts, image, expected):
    unit = made(
        IsolatedHostsFilter,
        isolated_images=tuple(images),
        isolated_hosts=tuple(hosts),
        restrict_isolated_hosts_to_isolated_images=restricts,
    )
    assert passing(unit, request_spec(image={"id": image})) == expected


class TestRetry:
    def test_hosts_that_were_tried_do_not_pass(self):
        tried = [
            {"host": "h1", "hypervisor_hostname": "h1"},
            {"host": "h2", "hypervisor_hostname": "other"},
            {"hypervisor_hostname": "h3"},
        ]
        assert passing(RetryFilter(), request_spec(retry={"hosts": tried})) == "23"

    def test_a_first_attempt_goes_anywhere(self):
        for retry in (None, {"num_attempts": 1}):
            assert not RetryFilter().applies(request_spec(retry=retry))
            assert passing(RetryFilter(), request_spec(retry=retry)) == "123"


class TestExactSizes:
    @pytest.mark.parametrize(
        ("facts", "vcpus", "fits"),
        [
            ({"vcpus_used": 1}, 3, True),
            ({"vcpus": 0}, 0, False),
        ],
        ids=str,
    )
    def test_vcpus(self, facts, vcpus, fits):
        hosts = host_table([host_record(host="h1", **facts)])
        assert bool(passing(ExactCoreFilter(), request_spec(vcpus=vcpus), hosts)) is fits

    def test_the_totals_are_the_limits(self):
        host, spec = fleet().state(0), request_spec()
        assert ExactCoreFilter().limits(host, spec) == {"vcpu": 4}
        assert ExactRamFilter().limits(host, spec) == {"memory_mb": 8192}
        assert ExactDiskFilter().limits(host, spec) == {"disk_gb": 100}


@pytest.mark.parametrize(("flavor", "expected"), [(1, "13"), (2, "3"), (None, "3")])
def test_one_flavor_a_host(flavor, expected):
    assert passing(TypeAffinityFilter(), request_spec(flavor={"id": flavor})) == expected


def test_metrics_that_are_missing_are_named():
    unit = made(MetricsFilter, metrics_weight_setting=("b=1", "a=1"))
    assert unit.reason(fleet().state(0), request_spec()) == "does not report a, b"


class TestJson:
    unit = JsonFilter()

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ('["=", "$service.host", "h2"]', "2"),
            ('["not", "$service.disabled"]', "123"),
            ('["and", [">=", "$free_ram_mb", 8192], ["in", "$host", "h1", "h3"]]', "13"),
            ('["not", ["<", "$host", 1]]', ""),
        ],
    )
    def test_hosts_that_match_pass(self, query, expected):
        assert passing(self.unit, hinted(query=[query])) == expected

    @pytest.mark.parametrize("query", [[], [""], ["[]"], ["null"], ["0"]], ids=str)
    def test_an_empty_query_passes_every_host(self, query):
        assert not self.unit.applies(hinted(query=query))
        assert passing(self.unit, hinted(query=query)) == "123"

    def test_a_second_query_is_refused(self):
        with pytest.raises(RequestError, match=r"scheduler_hints.query: is given 2 times"):
            self.unit.applies(hinted(query=['["=", 1, 1]', "[]"]))
