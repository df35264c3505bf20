"""Run as ``python tools/suite``."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from suite.cli import main  # noqa: E402 - the line above makes it importable

sys.exit(main())
