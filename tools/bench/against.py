"""The same benchmark in two checkouts, in turn: figures of this one beside those of the other."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.table import percentile, show

HERE = Path(__file__).resolve().parents[2]


def compare(other: Path, turns: int, words: Sequence[str]) -> list[dict]:
    """Run the benchmark ``turns`` times in each checkout; a row for each figure of each row.

    ``ratio`` is ours over theirs, of the runs of one turn; below 1 ours is less. What a row
    measures are its texts and whole numbers, so that figures are compared only if they are alike.
    """
    pairs: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    for number in range(turns):
        theirs, ours = (_figures(checkout, words) for checkout in (other.resolve(), HERE))
        for key in theirs.keys() & ours.keys():
            pairs.setdefault(key, []).append((theirs[key], ours[key]))
        print(f"turn {number + 1} of {turns}", file=sys.stderr)
    rows = []
    for (*what, figure), measured in sorted(pairs.items(), key=str):
        ratios = [ours / theirs for theirs, ours in measured if theirs]
        if ratios:
            rows.append(
                {
                    "what": " ".join(map(str, what)),
                    "figure": figure,
                    "theirs": percentile([theirs for theirs, _ in measured], 0.5),
                    "ours": percentile([ours for _, ours in measured], 0.5),
                    "ratio": percentile(ratios, 0.5),
                    "least": min(ratios),
                    "most": max(ratios),
                }
            )
    show(f"Beside {other}: median of {turns} turns, and ratios of ours to theirs", rows)
    return rows


def _figures(checkout: Path, words: Sequence[str]) -> dict[tuple[object, ...], float]:
    """The floating-point figures of one run, by what they measure and their names.

    The checkout's own ``.venv`` is used if it has one: units are found by what is installed.
    """
    own = checkout / ".venv/bin/python"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [
            str(own) if own.exists() else sys.executable,
            "tools/bench",
            *words,
            "--json",
            str(path),
        ]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        subprocess.run(
            command, cwd=checkout, env=environment, stdout=subprocess.DEVNULL, check=True
        )
        [rows] = json.loads(path.read_text()).values()
    found: dict[tuple[object, ...], float] = {}
    for row in rows:
        fixed = [each for name, each in row.items() if name != "runs" and type(each) in (str, int)]
        found |= {(*fixed, name): each for name, each in row.items() if isinstance(each, float)}
    return found
