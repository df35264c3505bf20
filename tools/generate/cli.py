"""The command line of the generator."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from generate import figures
from generate.arrivals import make_requests
from generate.files import json_lines, write_compressed
from generate.fleet import make_aggregates, make_hosts

SEED = 20240229


def generate(figures_path: Path, *, hosts: int, requests: int, seed: int = SEED) -> dict[str, str]:
    """The content of every file, by its name without ``.gz``."""
    known = figures.read(figures_path)
    rng = Random(seed)
    fleet = make_hosts(rng, known, hosts)
    aggregates = make_aggregates(rng, fleet)
    stream = make_requests(rng, known, requests)
    return {
        "hosts.jsonl": json_lines(fleet),
        "aggregates.json": json.dumps(aggregates, indent=1) + "\n",
        "requests.jsonl": json_lines(stream),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write ``hosts.jsonl.gz``, ``aggregates.json`` and ``requests.jsonl.gz``."""
    parser = argparse.ArgumentParser(prog="tools/generate", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="an existing directory")
    parser.add_argument(
        "--figures", type=Path, help="published figures (default: OUT/distributions.json)"
    )
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(argv)
    path = options.figures or options.out / "distributions.json"
    files = generate(path, hosts=options.hosts, requests=options.requests, seed=options.seed)
    (options.out / "aggregates.json").write_text(files.pop("aggregates.json"))
    for name, text in files.items():
        write_compressed(options.out / f"{name}.gz", text)
    print(f"{options.hosts:,} hosts and {options.requests:,} requests in {options.out}")
    return 0
