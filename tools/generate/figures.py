"""Published figures, and how to draw from them. No hosts and no requests in here."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

T = TypeVar("T")

SHORTEST_LIFE_HOURS = 1 / 60
"""Where the distribution of life-times begins; the published one begins at an hour."""


class Size(NamedTuple):
    """A flavor's size and its share of all creations."""

    vcpus: int
    ram_gb: int
    share: float


class Figures(NamedTuple):
    """The flavor mix and the distribution of life-times, as (hours, share that ends by then)."""

    sizes: tuple[Size, ...]
    lifetime_hours_cdf: tuple[tuple[float, float], ...]


def read(path: Path) -> Figures:
    """Read ``distributions.json``."""
    document = json.loads(path.read_text())
    return Figures(
        sizes=tuple(Size(*each) for each in document["huawei_east_1"]["vcpu_ramGB_share"]),
        lifetime_hours_cdf=tuple(
            (h, p) for h, p in document["azure_2019_v2"]["lifetime_hours_cdf"]
        ),
    )


def pick(rng: Random, weighted: Sequence[tuple[float, T]]) -> T:
    """One of (weight, item) pairs, by weight."""
    point = rng.random() * sum(weight for weight, _ in weighted)
    for weight, item in weighted:
        point -= weight
        if point < 0:
            return item
    return weighted[-1][1]


def lifetime_s(rng: Random, figures: Figures) -> int:
    """A life-time in seconds: between the published points, its logarithm is uniform."""
    point = rng.random()
    low_h, low_share = SHORTEST_LIFE_HOURS, 0.0
    for high_h, high_share in figures.lifetime_hours_cdf:
        if point <= high_share:
            break
        low_h, low_share = high_h, high_share
    along = (point - low_share) / (high_share - low_share)
    return round(3600 * low_h * math.pow(high_h / low_h, along))


def uuid4(rng: Random) -> str:
    """A random UUID, version 4."""
    digits = f"{rng.getrandbits(128):032x}"
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
