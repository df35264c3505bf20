"""The figures of virtualisation hosts, and since when they are over-committed."""

import msgspec
import pytest

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.virt import RunningVm, VirtHost, over_commit_since_s
from tests.support.hosts import host_record


@pytest.mark.parametrize(
    ("load", "since_s", "expected_s"),
    [(90, None, 7.0), (90, 3.0, 3.0), (75, None, 7.0), (74, 3.0, None), (0, None, 7.0)],
)
def test_one_clock_measures_over_and_under_use(load, since_s, expected_s):
    assert over_commit_since_s(load, since_s, 7.0, high=75, low=0) == expected_s


def test_exclusive_cpus_take_no_part_in_the_shared_load():
    pinned = RunningVm(id="vm", exclusive_cpus=(1,))
    host = VirtHost(cores=3, cpu_usage=((0, 50.0), (1, 100.0), (2, 10.0)), vms=(pinned,))
    assert (host.shared_cpus, host.shared_load_percent, host.load_percent) == (2, 60.0, 30)


def test_what_a_record_has_is_stored_and_read_and_what_it_lacks_is_left_out():
    plain = msgspec.json.decode(msgspec.json.encode(host_record()))
    assert not {"virt", "over_commit_since_s", "power"} & plain.keys()
    vms = [{"id": "a", "vcpus": 2}]
    record = host_record(virt={"cores": 4, "vms": vms}, power={"state": "down"})
    assert msgspec.json.decode(msgspec.json.encode(record), type=HostRecord) == record
    assert record.virt == VirtHost(cores=4, vms=(RunningVm(id="a", vcpus=2),))
