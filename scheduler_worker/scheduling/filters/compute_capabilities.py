"""Extra specs that name what the host must be capable of."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling import host_attributes
from scheduler_worker.scheduling.extra_specs import match
from scheduler_worker.scheduling.plugin import Filter

SCOPE = "capabilities"
MAXPHYSADDR = "hw:maxphysaddr_bits"

Requirement = tuple[tuple[str, ...], str, bool]
"""The path of an attribute, what it must meet, and whether it carried the scope."""


class ComputeCapabilitiesFilter(Filter):
    """Passes hosts that meet every ``capabilities:`` extra spec, and every unscoped one that names
    an attribute or a statistic of the host.
    """

    run_filter_once_per_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_requirements(spec))

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted = _requirements(spec)
        if any(path[0] in host_attributes.CONSUMED for path, _, _ in wanted):
            answers = (_meets_all(host, wanted) for host in hosts.states())
            return np.fromiter(answers, bool, len(hosts))
        key = (type(self).__name__, wanted)
        return hosts.derived(key, lambda host: _meets_all(host, wanted), "?")

    def reads(self, spec: RequestSpec) -> Hashable:
        return _requirements(spec)

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return _meets_all(host_state, _requirements(spec_obj))

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        for requirement in _requirements(spec):
            if not _meets(host_state, requirement):
                path, text, _ = requirement
                found = host_attributes.follow(host_state, path)
                return f"{':'.join(path)} is {str(found)[:80]!r}, which does not meet {text!r}"
        return super().reason(host_state, spec)


def _requirements(spec: RequestSpec) -> tuple[Requirement, ...]:
    found: list[Requirement] = []
    for key, text in spec.flavor.extra_specs.items():
        if key == MAXPHYSADDR:
            found.append((("cpu_info", "maxphysaddr", "bits"), f">= {text}", True))
            continue
        scope, *path = key.split(":")
        if not path:
            found.append(((scope,), text, False))
        elif scope == SCOPE:
            found.append((tuple(path), text, True))
    return tuple(sorted(found))


def _meets_all(host: HostState, wanted: tuple[Requirement, ...]) -> bool:
    return all(_meets(host, requirement) for requirement in wanted)


def _meets(host: HostState, requirement: Requirement) -> bool:
    path, text, scoped = requirement
    if not scoped and not host_attributes.has(host, path[0]):
        return True
    found = host_attributes.follow(host, path)
    if found is None:
        return False
    try:
        return match(str(found), text)
    except ValueError:
        # Text where the operator needs a number: this host does not meet it.
        return False
