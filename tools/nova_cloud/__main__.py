"""Run as ``python tools/nova_cloud``."""

import sys
from pathlib import Path

# Our own package, and the servers and configurations that the tests use.
TOOLS = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(TOOLS), str(TOOLS.parent)]

from nova_cloud.cli import main  # noqa: E402 - the lines above make it importable

sys.exit(main())
