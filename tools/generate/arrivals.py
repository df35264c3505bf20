"""Draws the stream of requests: single instances, server groups, and some that fit no host."""

import math
from collections.abc import Iterator
from random import Random
from typing import Any

from generate.catalogue import IMAGES, VARIANTS, flavor, flavors, image, variant
from generate.figures import Figures, lifetime_s, pick, uuid4
from generate.fleet import ZONES

SPAN_S = 3 * 24 * 3600
"""The stream lasts three days."""
BUSY = (4, 3, 3, 3, 3, 4, 6, 9, 12, 14, 15, 14, 13, 14, 15, 14, 12, 10, 8, 7, 6, 6, 5, 5)
"""How many arrivals each hour of a day has, relative to the others."""

PROJECTS = 40
GROUP_SHARE = 0.015
"""Of the arrivals, how many bring a whole server group; about a tenth of the instances."""
VOLUME_SHARE, ZONE_SHARE, HINT_SHARE, HOPELESS_SHARE = 0.15, 0.3, 0.02, 0.004

POLICIES: tuple[tuple[float, tuple[str, dict[str, str]]], ...] = (
    (0.45, ("anti-affinity", {})),
    (0.05, ("anti-affinity", {"max_server_per_host": "2"})),
    (0.25, ("soft-anti-affinity", {})),
    (0.10, ("affinity", {})),
    (0.15, ("soft-affinity", {})),
)
GROUP_SIZES = ((0.4, 3), (0.3, 5), (0.2, 8), (0.1, 12))

VOLUME_KIND = 10
"""Sets the ids of flavors without a root disk apart from those of all other variants."""

Plain = dict[str, Any]


def make_requests(rng: Random, figures: Figures, count: int) -> list[Plain]:
    """``count`` requests in order of arrival; ``at_s`` and ``lifetime_s`` are seconds."""
    stream = _Stream(rng, figures)
    found: list[Plain] = []
    for at_s in _arrivals(rng, count):
        found += stream.batch(at_s)
        if len(found) >= count:
            break
    return sorted(found[:count], key=lambda request: request["at_s"])


def _arrivals(rng: Random, count: int) -> Iterator[float]:
    """The times of a Poisson process whose rate follows the hours of a day."""
    mean = sum(BUSY) / len(BUSY)
    groups = 1 + GROUP_SHARE * (sum(share * size for share, size in GROUP_SIZES) - 1)
    per_s = count / groups / SPAN_S
    at_s = 0.0
    while True:
        busy = BUSY[int(at_s // 3600) % len(BUSY)] / mean
        at_s += -math.log(1 - rng.random()) / (per_s * busy)
        yield at_s


class _Stream:
    """The state that the draws share: flavors, projects, earlier instances."""

    def __init__(self, rng: Random, figures: Figures) -> None:
        self._rng = rng
        self._figures = figures
        self._sold = flavors(figures)
        self._projects = [uuid4(rng).replace("-", "") for _ in range(PROJECTS)]
        self._earlier: list[str] = []

    def batch(self, at_s: float) -> list[Plain]:
        """The requests that arrive at one time: mostly one, sometimes those of a server group."""
        if self._rng.random() < HOPELESS_SHARE:
            return [self._request(at_s, self._hopeless())]
        if self._rng.random() < GROUP_SHARE:
            return self._group(at_s)
        return [self._request(at_s, self._spec())]

    def _request(self, at_s: float, spec: Plain) -> Plain:
        uuid = uuid4(self._rng)
        self._earlier.append(uuid)
        return {
            "at_s": round(at_s, 1),
            "lifetime_s": lifetime_s(self._rng, self._figures),
            "instance_uuid": uuid,
            "spec": spec,
        }

    def _spec(self) -> Plain:
        rng = self._rng
        spec: Plain = {
            "project_id": pick(rng, [(1 / rank, p) for rank, p in enumerate(self._projects, 1)]),
            "flavor": self._flavor(),
            "image": pick(rng, IMAGES),
        }
        if rng.random() < VOLUME_SHARE:
            _boot_from_volume(spec)
        if rng.random() < ZONE_SHARE:
            spec["availability_zone"] = pick(rng, [(1, zone) for zone in ZONES])
        if self._earlier and rng.random() < HINT_SHARE:
            other = self._earlier[int(rng.random() * len(self._earlier))]
            spec["scheduler_hints"] = {"different_host": [other]}
        return spec

    def _flavor(self) -> Plain:
        chosen = pick(self._rng, self._sold)
        kinds = [(share, (number, *rest)) for number, (share, rest) in enumerate(VARIANTS)]
        kind, suffix, extra_specs = pick(self._rng, kinds)
        return variant(chosen, kind, suffix, extra_specs=extra_specs)

    def _group(self, at_s: float) -> list[Plain]:
        """Instances of one server group: alike, and a few seconds apart."""
        rng = self._rng
        policy, rules = pick(rng, POLICIES)
        spec = self._spec()
        group = {
            "uuid": uuid4(rng),
            "name": f"{policy}-{len(self._earlier)}",
            "project_id": spec["project_id"],
            "policy": policy,
            "policies": [policy],
            "_rules": rules,
            "members": [],
            "hosts": [],
        }
        spec = {
            **spec,
            "instance_group": group,
            "scheduler_hints": {"group": [group["uuid"]]},
        }
        size = pick(rng, GROUP_SIZES)
        return [self._request(at_s + 2 * number, spec) for number in range(size)]

    def _hopeless(self) -> Plain:
        """A request that no host of the fleet can ever serve."""
        placement: Plain = pick(
            self._rng,
            [
                (1, {"availability_zone": "az9"}),
                (1, {"flavor": flavor(90, 512, 4096)}),
                (1, {"image": image(9, "aix-7", hw_architecture="ppc64")}),
                (1, {"flavor": _needs("capabilities:hypervisor_version", ">= 99000000")}),
            ],
        )
        return {**self._spec(), **placement}


def _needs(key: str, requirement: str) -> Plain:
    return variant(flavor(91, 2, 4), 0, ".future", extra_specs={key: requirement})


def _boot_from_volume(spec: Plain) -> None:
    """The root disk is a volume elsewhere, and the image is known by its properties only."""
    spec["is_bfv"] = True
    spec["flavor"] = variant(spec["flavor"], VOLUME_KIND, ".bfv", root_gb=0)
    spec["image"] = {"properties": spec["image"]["properties"], "min_ram": 0, "min_disk": 20}
