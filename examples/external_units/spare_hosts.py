"""An external unit: a filter and a weight in one class, in the form of oVirt's external scheduler.

What the class prints is its answer. It sees ids only; this one has a list of reserved hosts.
"""

from __future__ import annotations


class SpareHosts:
    """Keeps some hosts for VMs that are named."""

    properties_validation = "spare_hosts=[0-9a-f,-]*;named_vms=[0-9a-f,-]*"

    def do_filter(self, hosts_ids: list[str], vm_id: str, args_map: dict[str, str]) -> None:
        """Rejects spare hosts for all VMs but those of named_vms."""
        spare = args_map.get("spare_hosts", "").split(",")
        is_named = vm_id in args_map.get("named_vms", "").split(",")
        print([each for each in hosts_ids if is_named or each not in spare])

    def do_score(self, hosts_ids: list[str], vm_id: str, args_map: dict[str, str]) -> None:
        """Prefers spare hosts; the lower the score, the better."""
        spare = args_map.get("spare_hosts", "").split(",")
        print([(each, 0 if each in spare else 10) for each in hosts_ids])
