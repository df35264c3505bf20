"""Settings of external units and their sandboxes."""

import sys
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from scheduler_worker.options import Opt
from scheduler_worker.scheduling.external.contract import ON_FAILURE, OnFailure

Wall = Literal["files", "ipc", "landlock", "network", "processes", "seccomp"]
"""A part of the isolation of a sandbox that the kernel has to grant."""
WALLS: tuple[Wall, ...] = get_args(Wall)


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[external_units]``; times in seconds."""

    directory: Annotated[Path, Opt()]
    """Directory with units: each *.py in it is a file in the form of oVirt's external scheduler, or
    with filters and weighers in the worker's form. Not set: there are none. Files are watched. The
    same files on all workers and API processes; docs/external-units.md."""
    python: Annotated[str | None, Opt()] = None
    """The interpreter that runs them, Python 3.9 or later; not set: that of the worker, which units
    in our own form need. The user below must be able to read its libraries."""
    user: Annotated[str | None, Opt()] = "nobody"
    """The user that they run as where the worker runs as root; never root. Otherwise they run as
    the worker's user."""
    timeout_s: Annotated[float, Opt(min=0.01, max=60)] = 2.0
    """Seconds for one call of a unit; then its processes are killed, and the decision goes on
    without it. The cluster's lock is held meanwhile: all calls of a decision together have half of
    [cluster_lock] hold_timeout, so this is at most that half."""
    load_timeout_s: float = 10.0
    """For starting a process and loading its file."""
    memory_mb: Annotated[int, Opt(min=64, max=65_536)] = 512
    """MiB of address space that each process of a unit may have."""
    processes: Annotated[int, Opt(min=1, max=64)] = 2
    """Calls of the units of one file that run at a time, each in a warm process of its own; others
    wait."""
    max_tasks: Annotated[int, Opt(min=4, max=4096)] = 32
    """Processes and threads that a unit may start in a call, all of which end with it."""
    network: Annotated[bool, Opt()] = False
    """Whether they may use the network, as a unit that asks an oVirt engine has to."""
    isolation: Annotated[tuple[Wall, ...], Opt()] = WALLS
    """What the kernel has to grant a sandbox: namespaces for files, ipc, network and processes,
    and landlock and seccomp. A file whose sandbox has less is not loaded. With network = true the
    wall network is not required. See docs/external-units.md, Walls."""
    on_failure: Annotated[
        OnFailure,
        Opt(
            choices={
                "pass": "all hosts pass a filter that fails, as in oVirt",
                "refuse": "no host passes a filter that fails",
            }
        ),
    ] = ON_FAILURE
    """What a filter that fails or is too slow does, unless its class declares on_failure. Of a
    weight that fails every score is 0; of a balance nothing moves."""
    rest_s: float = 0.5
    """For how long a file is not called after two calls in a row had to be killed; after each
    further one twice as long, up to 30 seconds."""
    max_output_bytes: int = 4 * 2**20

    @property
    def interpreter(self) -> str:
        """What runs the units."""
        return self.python or sys.executable

    @property
    def walls(self) -> frozenset[Wall]:
        """What a sandbox has where the kernel grants everything."""
        return frozenset(WALLS) - ({"network"} if self.network else frozenset())
