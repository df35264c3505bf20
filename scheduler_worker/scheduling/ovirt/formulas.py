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
