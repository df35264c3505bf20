"""Figures of several runs, their middle, and how they are printed."""

from collections.abc import Sequence


def show(title: str, rows: Sequence[dict]) -> None:
    names = list(rows[0])
    texts = [names, *([_text(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[at]) for line in texts) for at in range(len(names))]
    print(f"\n{title}")
    for line in texts:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _text(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def middle(rows: Sequence[dict], name: str) -> dict:
    """The measurement with the median figure."""
    return sorted(rows, key=lambda row: row[name])[len(rows) // 2]


def ratio(rows: Sequence[dict], to: Sequence[dict], name: str) -> float:
    """How many times as large a figure is as another that was measured in turn with it."""
    return percentile([one[name] / other[name] for one, other in zip(rows, to, strict=True)], 0.5)


def jain(counts: Sequence[float]) -> float:
    """Jain's index of fairness: 1 when all have the same, 1/n when one has everything."""
    return sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts) or 1)
