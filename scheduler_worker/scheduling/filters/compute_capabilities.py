"""The filter for extra specs about capabilities of the host."""

from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling import host_attributes
from scheduler_worker.scheduling.extra_specs import meets
from scheduler_worker.scheduling.filters.facts import FactFilter

SCOPE = "capabilities"
MAXPHYSADDR = "hw:maxphysaddr_bits"

Requirement = tuple[tuple[str, ...], str, bool]
"""The path of an attribute, the requirement it must meet, and whether the key had the scope."""


class ComputeCapabilitiesFilter(FactFilter):
    """Passes hosts that meet every ``capabilities:`` extra spec, and every unscoped one that names
    an attribute or a statistic of the host.

    Reads: any attribute or statistic of the host; the flavor's extra specs.
    Example: extra specs ``capabilities:hypervisor_version = >= 6000000`` and
    ``capabilities:cpu_info:features = <in> avx2``.
    """

    run_filter_once_per_request = True
    reads_use = True

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        needs = self.asked(spec)
        if any(path[0] in host_attributes.CONSUMED for path, _, _ in needs):
            return _mask(hosts, needs)
        return hosts.derived(
            (type(self).__name__, needs),
            lambda host: self.rejection(host, needs) is None,
            "?",
            lambda all_: _mask(all_, needs),
        )

    def asked(self, spec: RequestSpec) -> tuple[Requirement, ...]:
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

    def rejection(self, host: HostState, asked: Any) -> str | None:
        for requirement in asked:
            path, text, _ = requirement
            value = _text(host_attributes.top(host, path[0]), path)
            if not _meets(value, requirement):
                return f"{':'.join(path)} is {str(value)[:80]!r}, which does not meet {text!r}"
        return None


def _mask(hosts: Hosts, requirements: tuple[Requirement, ...]) -> Mask:
    """The hosts that meet all; each distinct text is matched once."""
    mask = np.ones(len(hosts), bool)
    for requirement in requirements:
        texts = _texts(hosts, requirement[0])
        meets = {text: _meets(text, requirement) for text in set(texts)}
        mask &= np.fromiter(map(meets.__getitem__, texts), bool, len(texts))
    return mask


def _texts(hosts: Hosts, path: tuple[str, ...]) -> list[str | None]:
    """The text at a path of each host; hosts with the same value above it are read once.

    Derived columns hold the values, one for all statistics: requests may name many paths below.
    """
    first = path[0]
    if first in host_attributes.CONSUMED:
        return [_text(host_attributes.top(host, first), path) for host in hosts.states()]
    if first in host_attributes.ATTRIBUTES:
        of = partial(host_attributes.top, name=first)
        tops = hosts.derived((SCOPE, first), of, "O").tolist()
    else:
        statistics = hosts.derived((SCOPE, ""), attrgetter("stats"), "O").tolist()
        tops = [each.get(first) for each in statistics]
    keys = [top if isinstance(top, str) else id(top) for top in tops]
    texts = {key: _text(top, path) for key, top in dict(zip(keys, tops, strict=True)).items()}
    return [texts[key] for key in keys]


def _text(top: Any, path: tuple[str, ...]) -> str | None:
    value = host_attributes.below(top, path)
    return None if value is None else str(value)


def _meets(value: str | None, requirement: Requirement) -> bool:
    path, text, scoped = requirement
    if value is None:
        # Without the scope, a name that is no attribute concerns only hosts with such a statistic.
        return not scoped and path[0] not in host_attributes.ATTRIBUTES
    return meets(value, text)
