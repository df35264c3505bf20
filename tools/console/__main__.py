"""Run as ``python tools/console``."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from console.cli import main  # noqa: E402 - the line above makes it importable

sys.exit(main())
