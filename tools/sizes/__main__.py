"""Print the largest files and functions, and the budgets; fail where a bound does not hold.

``tools/sizes --lower`` first lowers the budgets in ``budgets.toml`` to the sizes.
"""

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
permitted = tomllib.loads(BUDGETS.read_text())
lines = budgets.folder_lines(ROOT, permitted)
if "--lower" in sys.argv[1:]:
    BUDGETS.write_text(budgets.text(lines, permitted))
    permitted = tomllib.loads(BUDGETS.read_text())
print(*budgets.table(lines, permitted), sep="\n")
complaints = [*measure.problems(found, EXCEPTIONS), *budgets.problems(lines, permitted)]
for complaint in complaints:
    print(complaint, file=sys.stderr)
sys.exit(1 if complaints else 0)
