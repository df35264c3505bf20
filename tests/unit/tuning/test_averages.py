"""Moving averages over the last reports, as production and dry runs compute them."""

import math

import pytest

from scheduler_worker.tuning.averages import MovingAverages
from scheduler_worker.tuning.samples import Entity, Sample
from tests.support.tuning import load

HOST, VM = Entity("Host", "h"), Entity("VM", "v")
DISK = Entity("VM.disk", "v", "vda")


def read_by(target, scope="VM", length=10):
    """The averages of a policy with one rule."""
    text = f"scope: {scope}\nrules: {{r: {{output: x.out, target: {target}}}}}\n"
    return MovingAverages.read_by(load(text), length)


def added(averages, samples, windows=None):
    """The last sample with its averages, and the windows."""
    windows = windows or {}
    for sample in samples:
        windows = averages.add_to(sample, "h", windows, is_new=True)
    return sample, windows


def of_vm(*objects):
    return [Sample(vms={"v": each}) for each in objects]


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([{"m": {"a": 1}}, {}, {"m": {"a": None}}, {"m": {"a": 4}}], {"a": 4, "a_avg": 2.5}),
        ([{"m": {"a": 1}}, {}], {"a_avg": 1}),
        ([{"m": {"a": 1}}, {"m": 5}], {"a_avg": 1}),
        ([{"m": {"a": 1}}, {"m": {"a": 3, "a_avg": 7}}], {"a": 3, "a_avg": 7}),
        ([{"m": {"a": 2}}, {"m": {"a": True}}, {"m": {"a": "x"}}], {"a": "x", "a_avg": 2}),
        (
            [{"m": {"a": 2}}, {"m": {"a": math.inf}}, {"m": {"a": 10**400}}],
            {"a": 10**400, "a_avg": 2},
        ),
    ],
    ids=["missing values", "no object", "not an object", "reported", "not numbers", "not finite"],
)
def test_a_mean_leaves_out_values_that_are_missing_or_not_numbers(reports, expected):
    sample, _ = added(read_by("m.a_avg"), of_vm(*reports))
    assert sample.vms["v"]["m"] == expected


def test_without_a_known_value_there_is_no_average():
    sample, windows = added(read_by("m.a_avg"), of_vm({"m": {"b": 1}}))
    assert (sample.vms["v"], windows[VM]) == ({"m": {"b": 1}}, {})


def test_only_averages_that_rules_read_are_computed():
    sample, windows = added(
        read_by("m.a_avg + m.b + deep.er.c_avg"), of_vm({"m": {"a": 1, "b": 2}})
    )
    assert sample.vms["v"] == {"m": {"a": 1, "b": 2, "a_avg": 1}}
    assert windows[VM] == {"m.a": [1.0]}
    assert MovingAverages.read_by(None, 10) == read_by("1")


def test_windows_of_entities_that_are_gone_are_dropped():
    averages = read_by("m.a_avg")
    _, windows = added(averages, of_vm({"m": {"a": 1}}))
    assert added(averages, [Sample()], windows)[1].keys() == {HOST}


@pytest.mark.parametrize("scope", ["Host", "VM", "VM.disk"])
def test_the_hosts_figures_are_averaged_for_the_host_whoever_reads_them(scope):
    samples = [Sample({"host": {"free": n}}, {"v": {}}, {"v": {"vda": {}}}) for n in (1, 3)]
    sample, windows = added(read_by("host.free_avg", scope), samples)
    assert sample.host == {"host": {"free": 3, "free_avg": 2}}
    assert windows == {HOST: {"host.free": [1.0, 3.0]}, VM: {}, DISK: {}}
