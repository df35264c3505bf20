"""The conformance runner: reading, counting, exit status."""

import copy
import gzip
import json
import re

import pytest
from conformance import cli, nova, registry
from conformance.reading import Document, Malformed, documents

from tests.support.samples import nova_cases

GOOD = {"value": "2", "req": ">= 1", "result": True}
BAD = {"value": "2", "req": ">= 1", "result": False}
RAISES = {"value": "x", "req": ">= 1", "raises": "ValueError"}
NORMALIZE = {"list": [1, 3], "kw": {}, "result": [0, 1]}


@pytest.fixture
def written(tmp_path):
    def write(*lines):
        path = tmp_path / "cases"
        texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
        path.write_text("\n".join(texts) + "\n")
        return path

    return write


def values(path):
    return [each.value for each in documents(path)]


def test_cases_are_read_from_lines_lists_and_gzip(written, tmp_path):
    assert values(written(GOOD, BAD)) == [GOOD, BAD]
    path = written(json.dumps([GOOD, BAD], indent=1))
    assert values(path) == [GOOD, BAD]
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert values(packed) == [GOOD, BAD]


def test_malformed_json_is_refused_with_its_line(written):
    path = written(GOOD, "[1, 2")
    with pytest.raises(Malformed, match=rf"{path}:[23]: is not JSON"):
        values(path)


def test_each_kind_is_counted_by_itself(written, capsys):
    assert cli.main([str(written(GOOD, RAISES, NORMALIZE))]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output == [
        "extra-spec: 1 passed, 0 failed, 1 raised there, sane here",
        "normalize: 1 passed, 0 failed",
    ]


def test_a_difference_is_reported_with_its_place_and_fails_the_run(written, capsys):
    path = written(GOOD, BAD)
    assert cli.main([str(path)]) == cli.FAILED
    output = capsys.readouterr().out
    assert f"{path}:2: extra-spec: '>= 1' of '2' is True; recorded is False" in output
    assert "extra-spec: 1 passed, 1 failed" in output


def test_what_cannot_be_read_does_not_hide_the_rest(written, capsys, tmp_path):
    path = written({"strange": 1}, {"list": 5, "kw": {}, "result": []}, GOOD)
    assert cli.main([str(tmp_path / "missing"), str(path)]) == cli.UNREADABLE
    output = capsys.readouterr()
    assert "missing" in output.err
    assert f"{path}:1: no kind of case looks so (strange)" in output.err
    assert f"{path}:2: malformed normalize case: Expected `array`" in output.err
    assert "extra-spec: 1 passed, 0 failed" in output.out


def test_a_unit_that_is_not_there_fails_the_case(written, capsys):
    case = {"filter": "NoSuchFilter", "config": {}, "request_spec": {}, "expect": {"passes": True}}
    host = {"compute_node": {}, "service": {}, "cell_uuid": "", "instances": []}
    case["host"] = host | {"aggregates": [], "allocation_candidates": []}
    assert cli.main([str(written(case))]) == cli.FAILED
    assert "unknown filter NoSuchFilter" in capsys.readouterr().out


def test_an_option_that_does_not_exist_is_a_malformed_case():
    with pytest.raises(Malformed, match="no_such_option"):
        nova.options({"filter_scheduler.no_such_option": 1})


def test_an_exception_of_ours_fails_only_its_case(written, capsys, monkeypatch):
    def broken(case):
        raise ZeroDivisionError("one case")
        yield

    kinds = (registry.Kind("broken", lambda document: document == BAD, broken), *registry.kinds())
    monkeypatch.setattr(registry, "kinds", lambda: kinds)
    assert cli.main([str(written(BAD, GOOD))]) == cli.FAILED
    output = capsys.readouterr().out
    assert "raises ZeroDivisionError: one case" in output
    assert "extra-spec: 1 passed, 0 failed" in output


def differences_of(case):
    return registry.run(Document("here", case)).differences


def some_recorded(suits):
    """A recorded case, to be changed."""
    return next(copy.deepcopy(each.value) for each in nova_cases() if suits(each.value))


def taken_from(case):
    """The remaining resources of hosts with devices and pinned CPUs in the first cell."""
    after = case.get("expect", {}).get("after", {})
    return [
        each
        for each in after.values()
        if each["pci_device_pools"]
        and each["numa_topology"]
        and each["numa_topology"]["cells"][0]["pinned_cpus"]
    ]


def consumed():
    case = some_recorded(taken_from)
    assert not differences_of(case)
    return case


def more(counts, name):
    counts[name] += 1


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda cell, pools: cell["pinned_cpus"].pop(), "NUMA cell 0: .*pinned_cpus"),
        (lambda cell, pools: more(cell["mempages"][0], "used"), "NUMA cell 0: .*pages used"),
        (lambda cell, pools: more(cell, "memory_usage"), "NUMA cell 0: .*memory_usage"),
        (lambda cell, pools: more(cell, "cpu_usage"), "NUMA cell 0: .*cpu_usage"),
        (lambda cell, pools: more(pools[0], "count"), "devices 8086:"),
        (lambda cell, pools: pools.pop(), "devices 8086:.*recorded is None"),
    ],
    ids=["pinned", "pages", "memory", "shared", "devices", "pools"],
)
def test_what_is_left_inside_a_host_is_compared(spoil, what):
    case = consumed()
    for each in taken_from(case):
        spoil(each["numa_topology"]["cells"][0], each["pci_device_pools"])
    output = differences_of(case)
    assert output
    assert all(re.search(what, each) for each in output), output


def test_a_request_that_is_placed_where_nova_raises_fails_its_case():
    case = consumed()
    case["expect"] = {"raises": "ValueError", "msg": "no"}
    [output] = differences_of(case)
    assert "is placed" in output
    assert "ValueError" in output


def test_hosts_that_raise_are_left_out_and_nothing_else():
    case = some_recorded(lambda each: {"raises", "selections"} <= each.get("expect", {}).keys())
    assert not differences_of(case)
    case["expect"]["selections"][0][0] = ["other", "other", "nova"]
    assert "other" in differences_of(case)[0]
    case["expect"] = {"NoValidHost": "No valid host was found. "}
    assert differences_of(case)


def test_a_missing_metric_is_raised_here_too():
    def misses_one(case):
        raised = case.get("expect", {}).get("raises")
        return raised == "ComputeHostMetricNotFound" and "refused_claims" in case

    case = some_recorded(misses_one)
    assert not differences_of(case)
    case["expect"]["raises"] = "ValueError"
    assert "ComputeHostMetricNotFound, where Nova raises ValueError" in differences_of(case)[0]


def raising_weighers():
    return some_recorded(lambda case: "per_weigher" in case and "raises" in case["expect"])


@pytest.mark.parametrize("name", ["raw", "norm", "mult"])
def test_figures_are_compared_even_where_no_order_came_of_them(name):
    case = raising_weighers()
    assert not differences_of(case)
    case["per_weigher"]["RAMWeigher"][name][0] += 1
    assert [each for each in differences_of(case) if each.startswith(f"RAMWeigher {name} are")]


def test_a_weigher_that_raised_has_to_raise():
    case = raising_weighers()
    case["per_weigher"]["RAMWeigher"] = {"raises": "ComputeHostMetricNotFound"}
    [output] = differences_of(case)
    assert output.startswith("RAMWeigher is weighed")


def test_the_cases_of_a_file_that_says_where_they_come_from_are_run_one_by_one(written, capsys):
    swap = {"swap_total_mb": 9, "swap_free_mb": 0, "mem_free_mb": 1, "physical_mem_mb": 8}
    kept = {"name": "swaps", "host": swap, "allowed_percent": 0, "expected_kept": True}
    proxy = {"name": "system.methodHelp", "args": [], "expected": [], "plugins": {}}
    path = written({"source": "oVirt", "cases": [kept, kept | {"expected_kept": False}, proxy]})
    assert cli.main([str(path)]) == cli.FAILED
    assert capsys.readouterr().out.splitlines() == [
        f"{path}:1 (swaps): ovirt-memory: Swap drops the host",
        f"{path}:1 (system.methodHelp): ovirt-proxy: skipped: there is no XML-RPC server; "
        "units are called by the worker itself",
        "ovirt-memory: 1 passed, 1 failed",
        "ovirt-proxy: 0 passed, 0 failed, 1 skipped",
    ]
    assert cli.main([str(written({"cases": [proxy]}))]) == 0


def test_what_a_file_says_of_all_cases_is_in_each_of_them(written, capsys):
    case = {"now": "2020-01-01", "hosts": [], "vms": [], "parameters": {}, "expected": []}
    source = "tests of EvenDistributionBalance"
    assert cli.main([str(written({"source": source, "cases": [case]}))]) == 0
    assert cli.main([str(written({"source": "hearsay", "cases": [case]}))]) == cli.UNREADABLE
    assert "`source` must name one of EvenDistributionBalance" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        {"selector": "RankSelector", "factors": {}, "hosts": ["a"], "records": [["u", "a", 1]],
         "expected_best": "a", "derived_totals": {"a": 7}},
        {"kind": "vm_host_weight", "groups": [], "hosts": ["a"], "derived_scores": {"a": 2}},
        {"vm_running": False, "source_os": None, "hosts": {"a": "x"}, "expected_kept": []},
        {"steps": [["add", "mem", "a", "v", 5]], "expected": {"mem_on": {"a": 6}}},
        {"unit": "PreferredHosts", "vm": {"preferred_hosts": ["a"]}, "hosts": ["a", "b"],
         "expected_scores": {"a": 0, "b": 1}},
        {"parameters": {}, "hosts": [{"id": "a", "vm_active": 9}], "occupied": {"a": 9},
         "expected_sources": ["a"], "expected_destinations": []},
        {"parameters": {}, "empty_up_hosts": [], "pm_down_hosts": [], "pm_maintenance_hosts": [],
         "pm_maintenance_ok_hosts": [], "expected": {"host": "a", "to": "up"}},
        {"source": "PowerSavingBalance", "parameters": {}, "now": "2020-01-01", "hosts": [],
         "vms": [], "expected": [{"vm": "v", "hosts": ["a"]}]},
        {"units": [{"id": "x", "name": "CPU", "type": "filter", "parameters": [],
                    "state": "enabled"}], "parameters": {}},
    ],
)  # fmt: skip
def test_a_wrong_case_about_ovirt_fails(wrong):
    assert registry.run(Document("here", wrong)).differences
