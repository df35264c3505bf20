"""The shipped fleet is the generator's output for the shipped figures."""

import gzip
from pathlib import Path

import msgspec
from generate.cli import generate

from scheduler_worker.model.host_reports import HostReport

FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleet"


def test_the_shipped_files_are_made_again_to_the_byte():
    made = generate(FLEET / "distributions.json", hosts=1000, requests=20000)
    assert (FLEET / "aggregates.json").read_text() == made["aggregates.json"]
    for name in ("hosts.jsonl", "requests.jsonl"):
        packed = (FLEET / f"{name}.gz").read_bytes()
        assert packed[4:8] == bytes(4)  # no time of day
        assert gzip.decompress(packed).decode() == made[name]
    hosts = [
        msgspec.json.decode(each, type=HostReport) for each in made["hosts.jsonl"].splitlines()
    ]
    assert len(hosts) == 1000
