"""Reads our own form: a directory that ``tools/generate`` wrote."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from replay.streams import Arrival, Stream


def read(directory: Path, limit: int | None = None) -> Stream:
    """Read hosts, aggregates and the first ``limit`` requests; each may be gzipped or not."""
    arrivals = [Arrival(**line) for line in _lines(directory / "requests.jsonl", limit)]
    aggregates = directory / "aggregates.json"
    return Stream(
        hosts=list(_lines(directory / "hosts.jsonl")),
        aggregates=json.loads(aggregates.read_text()) if aggregates.exists() else [],
        arrivals=arrivals,
        length=len(arrivals),
    )


def _lines(path: Path, limit: int | None = None) -> Iterator[dict[str, Any]]:
    packed = path.with_name(path.name + ".gz")
    with gzip.open(packed, "rt") if packed.exists() else path.open() as lines:
        for number, line in enumerate(lines):
            if number == limit:
                return
            yield json.loads(line)
