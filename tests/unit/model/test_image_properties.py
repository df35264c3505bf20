"""Image properties under former names."""

import pytest

from scheduler_worker.model.requests import under_present_names


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ({"architecture": "aarch64"}, {"hw_architecture": "aarch64"}),
        (
            {"hypervisor_type": "qemu", "vm_mode": "hvm"},
            {"img_hv_type": "qemu", "hw_vm_mode": "hvm"},
        ),
        ({"vmware_adaptertype": "ide"}, {"hw_disk_bus": "ide"}),
        (
            {"vmware_adaptertype": "lsiLogic"},
            {"hw_disk_bus": "scsi", "hw_scsi_model": "lsiLogic"},
        ),
        ({"trait:A": "required", "trait:B": "forbidden"}, {"traits_required": ["A"]}),
        (
            {"hw_numa_cpus.0": "0", "hw_numa_cpus.1": "1-3", "hw_numa_mem.0": "48"},
            {"hw_numa_cpus": ["0", "1-3"], "hw_numa_mem": ["48"]},
        ),
        ({"os_distro": "debian", "own": "x"}, {"os_distro": "debian", "own": "x"}),
    ],
)
def test_former_names(former, present):
    assert under_present_names(former) == present


def test_the_present_name_prevails():
    both = {"hw_architecture": "aarch64", "architecture": "x86_64"}
    assert under_present_names(both) == {"hw_architecture": "aarch64"}
