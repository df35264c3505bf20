"""Charts of values over time: block characters in a terminal, or a picture."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scheduler_worker.errors import ConfigError
from scheduler_worker.extras import needing_extra

SUFFIXES = (".png", ".svg")
TERMINAL, NONE = "terminal", "none"
"""The other places of a chart."""
MAX_CYCLES = 10_000
"""The longest run."""
Series = Mapping[str, Sequence[float | None]]
"""``entity output`` -> its value in each cycle; None while it is unknown."""

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ROWS = 4
_WIDEST_CYCLE = 4
_MIN_WIDTH = 10


def in_terminal(series: Series, *, interval_s: float, width: int) -> Iterator[str]:
    """Yield the lines of an area chart for each output, from its minimum to its maximum."""
    for name, values in series.items():
        yield ""
        yield name
        known = [value for value in values if value is not None]
        if known:
            yield from _area(values, min(known), max(known), width, interval_s)
        else:
            yield "  unknown"


def _area(
    values: Sequence[float | None], low: float, high: float, width: int, interval_s: float
) -> Iterator[str]:
    rows = _ROWS if high > low else 1
    margin = 2 + max(len(_n(low)), len(_n(high)))
    columns = max(_MIN_WIDTH, width - margin - 2)
    cells = [_level(value, low, high, rows) for value in _fitted(values, columns)]
    for row in reversed(range(rows)):
        label = _n(high) if row == rows - 1 else _n(low) if row == 0 else ""
        blocks = "".join(_BLOCKS[min(8, max(0, level - 8 * row))] for level in cells)
        yield f"{label:>{margin}} ┤{blocks}".rstrip()
    end = f"{(len(values) - 1) * interval_s:g} s"
    yield f"{'':{margin}} └{'─' * len(cells)}"
    yield f"{'':{margin}}  0 s{end:>{max(len(end) + 1, len(cells) - 3)}}"


def _level(value: float | None, low: float, high: float, rows: int) -> int:
    """Return the number of filled eighths of a row; at least 1 for a known value."""
    if value is None:
        return 0
    size = max(abs(low), abs(high)) or 1.0  # the difference of two large values may not be finite
    span = high / size - low / size
    return 1 + round((value / size - low / size) / (span or 1.0) * (8 * rows - 1))


def _fitted(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return a value for each column: a cycle takes several columns, or a column several cycles."""
    columns = len(values) * max(1, min(_WIDEST_CYCLE, width // len(values)))
    columns = min(columns, width)
    return [values[column * len(values) // columns] for column in range(columns)]


def _n(value: float) -> str:
    return f"{value:.6g}"


def in_file(series: Series, *, interval_s: float, path: Path) -> None:
    """Write a picture: a diagram for each output, a line for each entity.

    Raises ConfigError: matplotlib is missing, or the file cannot be written.
    """
    with needing_extra("chart", f"--chart {path}, unlike --chart terminal,"):
        from matplotlib.figure import Figure
    lines: dict[str, dict[str, Sequence[float | None]]] = {}
    for name, values in series.items():
        entity, _, output = name.rpartition(" ")
        lines.setdefault(output, {})[entity] = values
    figure = Figure(figsize=(8, 1 + 2.5 * max(1, len(lines))), layout="constrained")
    for number, (output, entities) in enumerate(lines.items(), 1):
        axes = figure.add_subplot(len(lines), 1, number, title=output, xlabel="seconds")
        for entity, values in entities.items():
            seconds = [cycle * interval_s for cycle in range(len(values))]
            figures = [float("nan") if value is None else value for value in values]
            axes.step(seconds, figures, where="post", marker=".", label=entity)
        axes.legend()
    try:
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"--chart {path}: cannot be written: {error.strerror}") from error
