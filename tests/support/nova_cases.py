"""The cases of ``tests/cases/nova``, run by the code of ``tools/conformance``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from conformance import reading, registry  # noqa: E402 - the line above makes it importable

CASES = ROOT / "tests" / "cases" / "nova"


def documents() -> list[reading.Document]:
    """All cases of all files."""
    return [each for path in sorted(CASES.glob("*.gz")) for each in reading.documents(path)]


def differences(document: reading.Document) -> list[str]:
    """What is different from what was recorded."""
    return registry.run(document).differences
