"""Charts of how full the hosts are, in block characters."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
BUCKETS = 10


def strip(shares: Sequence[float], width: int = 64) -> str:
    """One character for each group of neighbours: their mean fill, 0..1."""
    width = min(width, len(shares))
    cuts = [len(shares) * number // width for number in range(width + 1)] if width else []
    groups = [shares[low:high] for low, high in pairwise(cuts)]
    return "".join(_block(sum(group) / len(group)) for group in groups)


def _block(share: float) -> str:
    return BLOCKS[min(len(BLOCKS) - 1, max(0, int(share * len(BLOCKS))))]


def histogram(columns: Mapping[str, Sequence[float]], width: int = 26) -> list[str]:
    """Hosts by fill: a row for each tenth, the fullest first, with a bar for each column."""
    counts = {name: _counts(shares) for name, shares in columns.items()}
    longest = max((count for each in counts.values() for count in each), default=0) or 1
    lines = ["   fill   " + "  ".join(f"{name:<{width + 6}}" for name in columns).rstrip()]
    for bucket in reversed(range(BUCKETS)):
        low, high = bucket * 100 // BUCKETS, (bucket + 1) * 100 // BUCKETS
        bars = [
            f"{each[bucket]:>5} {'█' * -(-each[bucket] * width // longest):<{width}}"
            for each in counts.values()
        ]
        lines.append(f"{low:>3}-{high:>3} % " + "  ".join(bars).rstrip())
    return lines


def _counts(shares: Sequence[float]) -> list[int]:
    counts = [0] * BUCKETS
    for share in shares:
        counts[min(BUCKETS - 1, max(0, int(share * BUCKETS)))] += 1
    return counts
