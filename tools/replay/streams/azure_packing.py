"""Reads the Azure packing trace (2020), an SQLite file.

Its sizes are fractions of a machine; here every machine is of one nominal shape. A type that runs
on several kinds of machines takes its size on the kind that most types run on, if it is there.
"""

import math
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from uuid import UUID

from replay.streams import Arrival, Plain, Stream, flavor

DAY_S = 24 * 3600
NOMINAL_VCPUS, NOMINAL_MEMORY_MB, NOMINAL_DISK_GB = 128, 512 * 1024, 8000
"""The assumed size of a machine of the trace."""

_TYPES = "SELECT vmTypeId, machineId, core, memory, COALESCE(hdd, 0) + COALESCE(ssd, 0) FROM vmType"
_VMS = "SELECT tenantId, vmTypeId, starttime, endtime FROM vm ORDER BY starttime, vmId LIMIT ?"


def read(path: Path, limit: int | None = None, seed: int = 0, hosts: int = 1000) -> Stream:
    """Read the trace for ``hosts`` nominal machines; days become seconds since the first start."""
    rng = Random(seed)
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as trace:
        flavors = _flavors(trace)
        rows = trace.execute(_VMS, (-1 if limit is None else limit,)).fetchall()
    first = rows[0][2] if rows else 0.0
    arrivals = [
        Arrival(
            at_s=DAY_S * (start - first),
            lifetime_s=None if end is None else max(0.0, DAY_S * (end - start)),
            instance_uuid=_uuid(rng),
            spec={"project_id": str(tenant), "flavor": flavors[kind]},
        )
        for tenant, kind, start, end in rows
    ]
    fleet = [_host(number, rng) for number in range(hosts)]
    return Stream(fleet, [], arrivals, len(arrivals))


def _flavors(trace: sqlite3.Connection) -> dict[int, Plain]:
    """The flavor of each type; the machine that most types fit on is read last, and so wins."""
    rows = trace.execute(_TYPES).fetchall()
    types_of: dict[int, int] = {}
    for _, machine, *_ in rows:
        types_of[machine] = types_of.get(machine, 0) + 1
    rows.sort(key=lambda row: (types_of[row[1]], -row[1]))
    return {
        kind: flavor(
            f"azure-{kind}",
            math.ceil(core * NOMINAL_VCPUS),
            math.ceil(memory * NOMINAL_MEMORY_MB),
            root_gb=math.ceil(disk * NOMINAL_DISK_GB),
        )
        for kind, _, core, memory, disk in rows
    }


def _host(number: int, rng: Random) -> Plain:
    return {
        "uuid": _uuid(rng),
        "host": f"machine-{number:05d}",
        "vcpus": NOMINAL_VCPUS,
        "memory_mb": NOMINAL_MEMORY_MB,
        "local_gb": NOMINAL_DISK_GB,
        "cpu_allocation_ratio": 1.0,
        "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0,
    }


def _uuid(rng: Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))
