"""Regenerate the pages, the alerts and the board that follow from the code.

``python tools/reference`` does it.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from reference.alerts import rules  # noqa: E402 - the line above makes it importable
from reference.board import board  # noqa: E402
from reference.operations import with_tables  # noqa: E402
from reference.pages import pages  # noqa: E402

for path, text in (pages() | with_tables() | rules() | board()).items():
    path.write_text(text)
