"""Nova's own filter and weigher handlers, in a process of their own, on the same hosts."""

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.table import percentile

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-nova" / "bin" / "python"
FILTERS = (
    *("ComputeFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter"),
    *("ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter"),
)
"""Nova's defaults. Placement has looked at capacity and zones before."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--peer", action="store_true", help="beside Nova 34, on the same hosts, in turn with it"
    )
    parser.add_argument(
        "--peer-python", type=Path, default=PYTHON, metavar="PATH", help="the one that has Nova"
    )


class Peer:
    """Nova, asked for one window of decisions after the other."""

    def __init__(
        self, python: Path, reports: Sequence[dict], aggregates: list[dict], filters: Sequence[str]
    ) -> None:
        if not python.exists():
            raise SystemExit(
                f"There is no {python}. Nova needs an environment of its own:\n"
                f"  python3 -m venv {PYTHON.parents[1]}\n  {PYTHON} -m pip install nova==34.0.0"
            )
        child = Path(__file__).with_name("nova_handlers.py")
        self._process = subprocess.Popen(
            [python, child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._zones = {
            aggregate["metadata"]["availability_zone"]: aggregate["hosts"]
            for aggregate in aggregates
            if "availability_zone" in aggregate["metadata"]
        }
        self._hosts = [report["host"] for report in reports]
        self._send({"hosts": reports, "aggregates": aggregates, "filters": [*FILTERS, *filters]})

    def window(self, spec: dict, instances: int, seconds: float = 0.0) -> dict:
        """Decide one request repeatedly: ``build_ms``, ``judge_ms``, the hosts chosen last."""
        hosts = self._zones.get(spec.get("availability_zone"), self._hosts)
        self._send({"spec": spec, "hosts": hosts, "instances": instances, "seconds": seconds})
        assert self._process.stdout is not None  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("Nova's process ended; its output is above.")
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()  # closes its input, which ends it

    def _send(self, message: dict) -> None:
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


def compared(windows: Sequence[dict], median_ms: float, chosen: Sequence[str]) -> dict:
    """Nova's medians, without and with the making of its host states, over ours."""
    judge = percentile([ms for window in windows for ms in window["judge_ms"]], 0.5)
    build = percentile([ms for window in windows for ms in window["build_ms"]], 0.5)
    return {
        "nova_ms": judge,
        "nova_build_ms": build,
        "ratio": judge / median_ms,
        "ratio_with_build": (judge + build) / median_ms,
        "same_hosts": all(window["chosen"] == list(chosen) for window in windows),
    }
