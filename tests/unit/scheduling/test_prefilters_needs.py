"""What a request needs, as the request filters derive it from flavor, image and the rest."""

import pytest

from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.scheduling.prefilters.needs import Group, Needs, Supply, needs_of
from scheduler_worker.scheduling.prefilters.traits import RequestFilterParameters
from tests.support.hosts import request_spec


def needs(parameters: RequestFilterParameters | None = None, **asked) -> Needs:
    return needs_of(request_spec(**asked), parameters or RequestFilterParameters())


@pytest.mark.parametrize(
    ("extra_specs", "image", "traits"),
    [
        ({}, {}, ""),
        ({"accel:device_profile": "fpga"}, {}, "COMPUTE_ACCELERATORS"),
        ({"accel:device_profile": ""}, {}, ""),
        ({"hw:virtio_packed_ring": "true"}, {}, "COMPUTE_NET_VIRTIO_PACKED"),
        ({}, {"hw_virtio_packed_ring": True}, "COMPUTE_NET_VIRTIO_PACKED"),
        ({"hw:virtio_packed_ring": "no"}, {}, ""),
        ({"hw:ephemeral_encryption": "yes"}, {}, "COMPUTE_EPHEMERAL_ENCRYPTION"),
        (
            {"hw:ephemeral_encryption": "1", "hw:ephemeral_encryption_format": "luks"},
            {},
            "COMPUTE_EPHEMERAL_ENCRYPTION COMPUTE_EPHEMERAL_ENCRYPTION_LUKS",
        ),
        ({"hw:ephemeral_encryption_format": "luks"}, {}, ""),
        ({"hw:sound_model": "virtio"}, {}, "COMPUTE_SOUND_MODEL_VIRTIO"),
        ({"hw:sound_model": "sb16"}, {}, ""),
        (
            {"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb", "hw:tpm_secret_security": "host"},
            {},
            "COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST COMPUTE_SECURITY_TPM_2_0 "
            "COMPUTE_SECURITY_TPM_CRB",
        ),
        (
            {},
            {"hw_tpm_version": "1.2"},
            "COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER COMPUTE_SECURITY_TPM_1_2 "
            "COMPUTE_SECURITY_TPM_TIS",
        ),
        ({"os:secure_boot": "required"}, {}, "COMPUTE_SECURITY_UEFI_SECURE_BOOT"),
        ({"os:secure_boot": "optional"}, {}, ""),
        (
            {"os:secure_boot": ""},
            {"os_secure_boot": "required"},
            "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
        ),
        ({"hw:maxphysaddr_mode": "emulate"}, {}, "COMPUTE_ADDRESS_SPACE_EMULATED"),
        ({}, {"hw_firmware_stateless": True}, ""),
        (
            {},
            {"hw_firmware_stateless": True, "hw_firmware_type": "uefi"},
            "COMPUTE_SECURITY_STATELESS_FIRMWARE",
        ),
        ({"hw:pci_numa_affinity_policy": "socket"}, {}, "COMPUTE_SOCKET_PCI_NUMA_AFFINITY"),
        ({"trait:CUSTOM_A": "required"}, {"traits_required": ["CUSTOM_B"]}, "CUSTOM_A CUSTOM_B"),
        ({"trait:CUSTOM_A": "Required"}, {}, ""),
    ],
)
def test_flavor_and_image_require_traits(extra_specs, image, traits):
    found = needs(extra_specs=extra_specs, image_properties=image)
    assert found.required == set(traits.split())
    assert found.forbidden == {"COMPUTE_STATUS_DISABLED"}


@pytest.mark.parametrize(
    ("extra_specs", "image", "field"),
    [
        ({"hw:virtio_packed_ring": "no"}, {"hw_virtio_packed_ring": True}, "virtio_packed_ring"),
        ({"hw:sound_model": "virtio"}, {"hw_sound_model": "sb16"}, "sound_model"),
        ({"hw:sound_model": "trumpet"}, {}, "sound_model"),
        ({"os:secure_boot": "required"}, {"os_secure_boot": "disabled"}, "specs.os:secure_boot"),
        ({"os:secure_boot": "disabled"}, {"os_secure_boot": "required"}, "specs.os:secure_boot"),
        ({}, {"os_secure_boot": "always"}, "properties.os_secure_boot"),
        (
            {"hw:pci_numa_affinity_policy": "required"},
            {"hw_pci_numa_affinity_policy": "socket"},
            "specs.hw:pci_numa_affinity_policy",
        ),
        ({"hw:tpm_version": "3"}, {}, "tpm_version"),
        ({"hw:tpm_version": "1.2", "hw:tpm_model": "tpm-crb"}, {}, "tpm_model"),
        ({"hw:mem_encryption": "1", "hw:mem_encryption_model": "rot13"}, {}, "encryption_model"),
        (
            {"hw:mem_encryption": "1", "hw:mem_encryption_model": "amd-sev-snp"},
            {"hw_firmware_type": "uefi"},
            "firmware_stateless",
        ),
        (
            {},
            {"hw_mem_encryption": True, "hw_mem_encryption_model": "amd-sev-snp"},
            "firmware_stateless",
        ),
        (
            {"hw:ephemeral_encryption": "1", "hw:ephemeral_encryption_format": "zip"},
            {},
            "ephemeral_encryption_format",
        ),
    ],
)
def test_invalid_and_contradicting_values_are_refused(extra_specs, image, field):
    with pytest.raises(RequestError, match=field):
        needs(extra_specs=extra_specs, image_properties=image)


def test_an_unknown_tpm_secret_security_is_refused():
    extra_specs = {"hw:tpm_version": "2.0", "hw:tpm_secret_security": "nobody"}
    with pytest.raises(NoValidHost) as refused:
        needs(extra_specs=extra_specs)
    assert refused.value.reason == (
        "Scheduling failed: TPM secret security 'nobody' is not supported."
    )


def test_remote_managed_devices_require_a_trait():
    device = {"count": 1, "spec": [{"physical_network": "p", "remote_managed": "True"}]}
    assert needs(pci_requests={"requests": [device]}).required == {"COMPUTE_REMOTE_MANAGED_PORTS"}


@pytest.mark.parametrize(
    ("image", "is_bfv", "traits"),
    [
        ({"disk_format": "qcow2"}, False, {"COMPUTE_IMAGE_TYPE_QCOW2"}),
        ({"disk_format": "qcow2"}, True, set()),
        ({"disk_format": "docker"}, False, set()),
        ({}, False, set()),
    ],
)
def test_disk_formats_require_traits_where_enabled(image, is_bfv, traits):
    parameters = RequestFilterParameters(query_placement_for_image_type_support=True)
    assert needs(parameters, image=image, is_bfv=is_bfv).required == traits
    assert not needs(image=image, is_bfv=is_bfv).required


@pytest.mark.parametrize(
    ("properties", "traits"),
    [
        (
            {"hw_disk_bus": "virtio", "hw_cdrom_bus": "sata", "hw_vif_model": "ne2k-pci"},
            "STORAGE_BUS_VIRTIO STORAGE_BUS_SATA NET_VIF_MODEL_NE2K_PCI",
        ),
        (
            {"hw_viommu_model": "intel", "hw_video_model": "vga"},
            "VIOMMU_MODEL_INTEL GRAPHICS_MODEL_VGA",
        ),
        ({"hw_disk_bus": "virtio", "hw_video_model": "crystal"}, ""),
    ],
)
def test_image_properties_require_traits_all_or_none(properties, traits):
    parameters = RequestFilterParameters(image_metadata_prefilter=True)
    expected = {f"COMPUTE_{each}" for each in traits.split()}
    assert needs(parameters, image_properties=properties).required == expected
    assert not needs(image_properties=properties).required


def test_groups_are_read_off_extra_specs():
    found = needs(
        extra_specs={
            "resources:VGPU": "1",
            "trait:CUSTOM_ROOT": "required",
            "resources1:CUSTOM_FPGA": " 2 ",
            "trait1:CUSTOM_FAST": "required",
            "trait1:CUSTOM_OLD": "forbidden",
            "resources_b:SRIOV_NET_VF": "4",
            "resources_c:VGPU": "0",
            "resources:CUSTOM_MANY": "many",
            "resources:BANANAS": "3",
            "group_policy": "isolate",
        }
    )
    assert found.required == frozenset()
    assert found.supply == Supply(
        groups=(
            Group(resources=(("VGPU", 1),), required=frozenset({"CUSTOM_ROOT"})),
            Group(
                name="1",
                resources=(("CUSTOM_FPGA", 2),),
                required=frozenset({"CUSTOM_FAST"}),
                forbidden=frozenset({"CUSTOM_OLD"}),
            ),
            Group(name="_b", resources=(("SRIOV_NET_VF", 4),)),
        ),
        isolates=True,
    )


def test_several_suffixes_need_a_policy():
    extra_specs = {"resources1:VGPU": "1", "resources2:VGPU": "1"}
    with pytest.raises(RequestError, match="group_policy"):
        needs(extra_specs=extra_specs)
    assert not needs(extra_specs=extra_specs | {"group_policy": "none"}).supply.isolates


def test_persistent_memory_and_encrypted_memory_are_resources():
    found = needs(extra_specs={"hw:pmem": "4GB, 16-gb,4GB", "hw:mem_encryption": "true"})
    [group] = found.supply.groups
    assert group.required == {"HW_CPU_X86_AMD_SEV"}
    assert dict(group.resources) == {
        "CUSTOM_PMEM_NAMESPACE_4GB": 2,
        "CUSTOM_PMEM_NAMESPACE_16_GB": 1,
        "MEM_ENCRYPTION_CONTEXT": 1,
    }


def test_requested_groups_need_a_requester_id():
    group = {"requester_id": "port", "resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}}
    found = needs(requested_resources=[group | {"in_tree": "p", "aggregates": [["a", "b"]]}])
    assert found.supply.groups[1] == Group(
        name="port",
        resources=(("NET_BW_EGR_KILOBIT_PER_SEC", 1000),),
        in_tree="p",
        member_of=(frozenset({"a", "b"}),),
    )
    with pytest.raises(RequestError, match=r"requested_resources\[1\]\.requester_id"):
        needs(requested_resources=[group, {"resources": {"VGPU": 1}}])


def test_a_request_may_bring_traits_and_aggregates_of_its_own():
    found = needs(
        request_level_params={"root_required": ["A"], "root_forbidden": ["B"]},
        requested_destination={"aggregates": ["x, y", "z"], "forbidden_aggregates": ["w"]},
    )
    assert found.required == {"A"}
    assert found.forbidden == {"B", "COMPUTE_STATUS_DISABLED"}
    assert found.member_of == ({"x", "y"}, {"z"})  # type: ignore[comparison-overlap]
    assert found.forbidden_aggregates == {"w"}


def test_units_with_equal_parameters_share_what_is_computed():
    """Each unit has parameters of its own, and all ask about one request in turn."""
    spec = request_spec(flavor={"extra_specs": {"trait:CUSTOM_A": "required"}})
    assert needs_of(spec, RequestFilterParameters()) is needs_of(spec, RequestFilterParameters())
