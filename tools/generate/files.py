"""Writes the files; the same content gives the same bytes."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def json_lines(items: Iterable[Any]) -> str:
    """Compact JSON values, one per line."""
    return "".join(json.dumps(item, separators=(",", ":")) + "\n" for item in items)


def write_compressed(path: Path, text: str) -> None:
    """Gzip without a time or a name inside, so that it is reproducible."""
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
