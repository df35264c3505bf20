"""Print the largest files and functions; fail where one is above its bound: ``tools/sizes``."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT / "tools")

from sizes.measure import measured, problems  # noqa: E402 - the line above makes it importable

FOLDERS = ("scheduler_worker", "tests", "tools")
EXCEPTIONS: dict[str, str] = {}
"""Files that may be above a bound, each with the reason."""
SHOWN = 10

found = measured(ROOT, FOLDERS)
for size in found[:SHOWN]:
    print(f"{size.lines:4} of {size.bound:3}  {size.place}")
complaints = problems(found, EXCEPTIONS)
for complaint in complaints:
    print(complaint, file=sys.stderr)
sys.exit(1 if complaints else 0)
