"""The filter for extra specs about capabilities of the host."""

from collections.abc import Hashable

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling import host_attributes
from scheduler_worker.scheduling.extra_specs import meets
from scheduler_worker.scheduling.plugin import Filter

SCOPE = "capabilities"
MAXPHYSADDR = "hw:maxphysaddr_bits"

Requirement = tuple[tuple[str, ...], str, bool]
"""The path of an attribute, the requirement it must meet, and whether the key had the scope."""


class ComputeCapabilitiesFilter(Filter):
    """Passes hosts that meet every ``capabilities:`` extra spec, and every unscoped one that names
    an attribute or a statistic of the host.

    Reads: any attribute or statistic of the host; the flavor's extra specs.
    Example: extra specs ``capabilities:hypervisor_version = >= 6000000`` and
    ``capabilities:cpu_info:features = <in> avx2``.
    """

    run_filter_once_per_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_requirements(spec))

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        needs = _requirements(spec)
        if any(path[0] in host_attributes.CONSUMED for path, _, _ in needs):
            return _mask(hosts, needs)
        key = (type(self).__name__, needs)
        return hosts.derived(
            key, lambda host: _meets_all(host, needs), "?", lambda all_: _mask(all_, needs)
        )

    def reads(self, spec: RequestSpec) -> Hashable:
        return _requirements(spec)

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return _meets_all(host_state, _requirements(spec_obj))

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        for requirement in _requirements(spec):
            path, text, _ = requirement
            value = _text(host_state, path)
            if not _meets(value, requirement):
                return f"{':'.join(path)} is {str(value)[:80]!r}, which does not meet {text!r}"
        return super().reason(host_state, spec)


def _requirements(spec: RequestSpec) -> tuple[Requirement, ...]:
    requirements: list[Requirement] = []
    for key, text in spec.flavor.extra_specs.items():
        if key == MAXPHYSADDR:
            requirements.append((("cpu_info", "maxphysaddr", "bits"), f">= {text}", True))
            continue
        scope, *path = key.split(":")
        if not path:
            requirements.append(((scope,), text, False))
        elif scope == SCOPE:
            requirements.append((tuple(path), text, True))
    return tuple(sorted(requirements))


def _meets_all(host: HostState, requirements: tuple[Requirement, ...]) -> bool:
    return all(_meets(_text(host, requirement[0]), requirement) for requirement in requirements)


def _mask(hosts: Hosts, requirements: tuple[Requirement, ...]) -> Mask:
    """:func:`_meets_all` for all hosts; each distinct text is matched once."""
    mask = np.ones(len(hosts), bool)
    for requirement in requirements:
        texts = _texts(hosts, requirement[0])
        meets = {text: _meets(text, requirement) for text in set(texts)}
        mask &= np.fromiter(map(meets.__getitem__, texts), bool, len(texts))
    return mask


def _texts(hosts: Hosts, path: tuple[str, ...]) -> list[str | None]:
    """The text at a path of each host; a derived column, unless reservations change it."""
    if path[0] in host_attributes.CONSUMED:
        return [_text(host, path) for host in hosts.states()]
    column = hosts.derived((SCOPE, path), lambda host: _text(host, path), "O")
    texts: list[str | None] = column.tolist()
    return texts


def _text(host: HostState, path: tuple[str, ...]) -> str | None:
    value = host_attributes.follow(host, path)
    return None if value is None else str(value)


def _meets(value: str | None, requirement: Requirement) -> bool:
    path, text, scoped = requirement
    if value is None:
        # Without the scope, a name that is no attribute concerns only hosts with such a statistic.
        return not scoped and path[0] not in host_attributes.ATTRIBUTES
    return meets(value, text)
