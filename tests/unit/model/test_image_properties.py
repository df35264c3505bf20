"""Image properties as Nova's image object has them: their names, and the types of their values."""

import pytest

from scheduler_worker.model.image_properties import image_object, is_true


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
            {"hw_disk_bus": "scsi", "hw_scsi_model": "lsilogic"},
        ),
        ({"trait:A": "required", "trait:B": "forbidden"}, {"traits_required": ["A"]}),
        (
            {"hw_numa_cpus.0": "0", "hw_numa_cpus.1": "1-3", "hw_numa_mem.0": "48"},
            {"hw_numa_cpus": [[0], [1, 2, 3]], "hw_numa_mem": [48]},
        ),
        ({"os_distro": "debian", "own": "x"}, {"os_distro": "debian", "own": "x"}),
    ],
)
def test_former_names(former, present):
    assert image_object(former) == present


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("hw_boot_menu", " Yes", True),
        ("img_bdm_v2", "1", True),
        ("os_require_quiesce", "maybe", False),
        ("hw_cpu_cores", "02", 2),
        ("img_version", " +3 ", 3),
        ("hw_cpu_cores", "two", "two"),
        ("hw_architecture", "AMD64", "x86_64"),
        ("hw_emulation_architecture", "i586", "i686"),
        ("img_hv_type", "xapi", "xen"),
        ("hw_vm_mode", "HV", "hvm"),
        ("hw_vif_model", "VirtualPCNet32", "pcnet"),
        ("hw_scsi_model", "paraVirtual", "vmpvscsi"),
        ("os_type", "Linux", "linux"),
        ("hw_numa_cpus", ["3,0-1", "^2"], [[0, 1, 3], "^2"]),
        ("hw_numa_mem", ["0512", 512], [512, 512]),
        ("hw_boot_menu", False, False),
        ("hw_mem_page_size", "02", "02"),
        ("hw_disk_bus", "Virtio", "Virtio"),
        ("os_distro", "Yes", "Yes"),
    ],
)
def test_values_have_the_types_of_their_properties(name, text, value):
    """As a Nova 34 read them, where it reads them; else they stay."""
    assert image_object({name: text}) == {name: value}


@pytest.mark.parametrize("text", ["no", "", "false", "2", None])
def test_other_texts_mean_no(text):
    assert not is_true(text)
    assert all(is_true(yes) for yes in (" Yes ", "True", "1"))
