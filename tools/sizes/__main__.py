"""Print the largest files and functions, and the budgets; fail where a bound does not hold."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT / "tools")

from sizes import budgets, measure  # noqa: E402 - the line above makes it importable

FOLDERS = ("scheduler_worker", "tests", "tools")
EXCEPTIONS: dict[str, str] = {}
"""Files that may be above a bound, each with the reason."""
SHOWN = 10
BUDGETS = Path(__file__).with_name("budgets.toml")

found = measure.measured(ROOT, FOLDERS)
for size in found[:SHOWN]:
    print(f"{size.lines:4} of {size.bound:3}  {size.place}")
figures = tomllib.loads(BUDGETS.read_text())
lines = budgets.folder_lines(ROOT, figures["base"])
print(*budgets.table(lines, figures), sep="\n")
complaints = [*measure.problems(found, EXCEPTIONS), *budgets.problems(lines, figures)]
for complaint in complaints:
    print(complaint, file=sys.stderr)
sys.exit(1 if complaints else 0)
