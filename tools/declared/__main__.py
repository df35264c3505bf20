"""Fail where the package declares one fact twice: ``tools/declared``."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT / "tools")

from declared.alike import declared, problems  # noqa: E402 - the line above makes it importable
from declared.edges import edges_that_name_resources  # noqa: E402
from declared.options import repeated_defaults  # noqa: E402

EXCEPTIONS = Path(__file__).with_name("exceptions.toml")

exceptions = tomllib.loads(EXCEPTIONS.read_text())
found = declared(ROOT, "scheduler_worker")
complaints = [
    *problems(found, exceptions["alike"], exceptions["names"]),
    *edges_that_name_resources(ROOT),
    *repeated_defaults(ROOT, "scheduler_worker"),
]
for complaint in complaints:
    print(complaint, file=sys.stderr)
sys.exit(1 if complaints else 0)
