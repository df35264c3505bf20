"""Regenerate the pages about units: ``python tools/reference``."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from reference.pages import pages  # noqa: E402 - the line above makes it importable

for path, text in pages().items():
    path.write_text(text)
