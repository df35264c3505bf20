"""oVirt's formulas, on numbers or columns of them. Memory is in MiB, loads are in percent."""

import math
from typing import Any

import numpy as np

from scheduler_worker.model.hosts import Mask, Values

MAX_WEIGHT = 1000
"""The worst score after rescaling."""
PAGE_TABLES_SHARE = 512
"""Page tables take one byte for so many bytes of memory."""
EMULATOR_MB = 64
VCPU_MB = 8
"""What the emulator may take for each vCPU or I/O thread."""


def schedulable_mb(
    physical_mb: float, overcommit_percent: float, committed_mb: float, own_mb: float
) -> float:
    """The memory of one host that may still be given to VMs, before pending ones; not negative."""
    return max(0.0, overcommit_percent * physical_mb / 100.0 - committed_mb - own_mb)


def less_pending(schedulable: Any, pending_mb: Any) -> Values:
    """The schedulable memory less that of pending VMs; never negative."""
    rest: Values = np.maximum(0.0, schedulable - pending_mb)
    return rest


def static_overhead_mb(memory_mb: Any) -> Any:
    """What a VM takes beside its memory: page tables and the emulator."""
    return memory_mb // PAGE_TABLES_SHARE + EMULATOR_MB


def possible_overhead_mb(vcpus: Any, io_threads: int = 0, video_ram_mb: int = 0) -> Any:
    """What a VM may take further."""
    return video_ram_mb + VCPU_MB * (vcpus + io_threads)


def fits_physically(
    free_mb: Any, pending_mb: Any, swap_free_mb: Any, new_pages_mb: Any, needed_mb: float
) -> Mask:
    """Whether free memory and swap hold a VM; an unknown (NaN) free amount holds none.

    ``pending_mb`` is what pending VMs really take, ``new_pages_mb`` the huge pages that would have
    to be made.
    """
    rest = free_mb - pending_mb - new_pages_mb
    fits: Mask = (rest >= 0) & (rest + swap_free_mb >= needed_mb)
    return fits


def fits_overcommitted(schedulable: Any, new_pages_mb: Any, total_mb: float) -> Mask:
    """Whether a VM with all its overhead may still be scheduled."""
    fits: Mask = np.asarray(total_mb + new_pages_mb <= schedulable)
    return fits


def swap_is_low(
    swap_total_mb: Any, swap_free_mb: Any, free_mb: Any, physical_mb: Any, allowed_percent: int
) -> Mask:
    """Whether no more is swapped out than allowed, or a figure is unknown (NaN) or not positive."""
    known = (free_mb > 0) & (physical_mb > 0) & ~np.isnan(swap_total_mb) & ~np.isnan(swap_free_mb)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.trunc((swap_total_mb - swap_free_mb - free_mb) * 100.0 / physical_mb)
    low: Mask = ~known | (share <= allowed_percent)
    return low


def rounded(values: Values) -> Values:
    """Rounded to integers, halves up."""
    shifted: Values = values + 0.5
    return np.floor(shifted, out=shifted)


def rescaled(scores: Values, low: float, high: float) -> Values:
    """Scores between ``low`` and ``high`` mapped to 1 for the lowest up to :data:`MAX_WEIGHT`.

    All are 1 where both ends are equal. NaN becomes the worst.
    """
    if low == high:
        scaled = np.ones(len(scores))
    else:
        scaled = 1.0 + rounded((scores - low) * ((MAX_WEIGHT - 1) / (high - low)))
    unknown = np.isnan(scores)
    if unknown.any():
        scaled[unknown] = MAX_WEIGHT
    return scaled


def cpu_score(load: Values, cpus: Values, over_ratio: Mask | None = None) -> Values:
    """Load for each shared CPU; a thousand times as much where there are too many vCPUs.

    Hosts without CPUs that could be shared have NaN.
    """
    if over_ratio is not None:
        load = np.where(over_ratio, MAX_WEIGHT, 1) * load
    has_cpus = cpus > 0
    if has_cpus.all():
        return rounded(load / cpus)
    return np.where(has_cpus, rounded(load / np.where(has_cpus, cpus, 1.0)), np.nan)


def cpu_score_of(load: float, cpus: float, over_ratio: object = None) -> float:
    """:func:`cpu_score` of one host."""
    if not cpus > 0 or math.isnan(load):
        return math.nan
    return float(math.floor((MAX_WEIGHT * load if over_ratio else load) / cpus + 0.5))


def even_memory_score(free: Values, need: Values | float, best: float) -> Values:
    """The less memory would be left compared with the emptiest host, the higher."""
    rest = free - (need + 1.0)
    return MAX_WEIGHT - rounded(rest * (MAX_WEIGHT - 1) / max(best - 1.0, 1.0))


def packed_memory_score(
    free: Values, need: Values | float, best: float, low_mb: float | None, high_mb: float | None
) -> Values:
    """The more memory would be left the higher; below ``low_mb`` as if far above ``high_mb``."""
    top = max(1.1 * best, 1.0)
    rest = free - need
    if low_mb is not None:
        high = np.inf if high_mb is None else high_mb
        rest = np.where(rest < low_mb, np.minimum(top, high + (low_mb - rest)), rest)
    scores: Values = np.trunc(rest / top * (MAX_WEIGHT - 1)) + 1.0
    return scores


def better_ranks(keys: list[Any]) -> Values:
    """For each key 1 and how many keys are smaller."""
    ordered = sorted(keys)
    # The last entry of a key counts, so that equal keys share the first place.
    first = {key: place for place, key in reversed(list(enumerate(ordered, 1)))}
    return np.fromiter((first[key] for key in keys), "f8", len(keys))
