"""Prints figures as a table and returns them as they are."""

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
