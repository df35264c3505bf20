"""Every wall of a sandbox stands under the restrictions that the shipped files put on the worker.

A wall that this machine refuses without them too is skipped, with the kernel's reason.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker import remedies
from scheduler_worker.backends.sandbox.process import RUNNER
from scheduler_worker.backends.sandbox.settings import WALLS
from tests.support.confinement import directives, groups
from tests.support.sandboxes import directory, write

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((*ROOT.glob("etc/systemd/*.service"), *ROOT.glob("examples/systemd/*.service")))
PROFILES = sorted(ROOT.glob("etc/container/*.json"))
SHIPPED = [*UNITS, *PROFILES]

PROBE = """
    import os, socket

    try:
        open(os.path.dirname(os.path.dirname(__file__)) + "/loaded", "w").close()
    except OSError:
        pass

    class Probe:
        def do_filter(self, hosts, vm, properties):
            def write(path):
                open(path, "w").close()

            attempts = {
                "reads the configuration": lambda: open(properties["secret"]),
                "writes beside it": lambda: write(properties["secret"] + ".new"),
                "connects to a server": lambda: socket.create_connection(
                    ("127.0.0.1", int(properties["port"])), 5
                ),
                "signals the worker": lambda: os.kill(int(properties["worker"]), 0),
                "makes a memory file": lambda: os.memfd_create("kept"),
            }
            done = []
            for name, attempt in attempts.items():
                try:
                    attempt()
                except OSError:
                    continue
                done.append(name)
            print(done)
"""
WORKER = """
    import json, os, sys
    from pathlib import Path

    from scheduler_worker.backends.sandbox import pool, process
    from scheduler_worker.backends.sandbox.settings import WALLS
    from tests.support import confinement
    from tests.support.sandboxes import settings

    shipped, folder, port = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    process.RUNNER = folder / "package/backends/sandbox/runner.py"
    if shipped.endswith(".service"):
        confinement.by_unit(Path(shipped))
    elif shipped.endswith(".json"):
        confinement.by_profile(Path(shipped))
    else:
        confinement._without_capabilities()
    private = folder / "private"
    private.mkdir(mode=0o700)
    (private / "secret").write_text("password")
    units = folder / "units"
    strict = pool.Sandboxes(settings(units, isolation=WALLS))
    [file] = strict.refresh()
    strict.close()
    was_loaded = (folder / "loaded").exists()
    sandbox = process.Sandbox(units / "probe.py", settings(units))
    known = {"secret": str(private / "secret"), "port": port, "worker": str(os.getpid())}
    asked = {"plugin": "Probe", "kind": "filter", "hosts": [], "vm": "", "properties": known}
    done = sandbox.call(asked, 60.0)
    sandbox.close()
    found = {"refused": sandbox.refused, "done": done, "problem": file.problem}
    print(json.dumps({**found, "alarms": strict.alarms, "was_loaded": was_loaded}))
"""


@cache
def found_under(shipped: Path | None) -> Any:
    """What a sandbox lacks, and what a unit can do, in a worker with these restrictions."""
    with directory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        folder.chmod(0o777)
        (folder / "units").mkdir(mode=0o755)
        write(folder / "units", "probe.py", PROBE)
        (runner := folder / "package/backends/sandbox/runner.py").parent.mkdir(parents=True)
        shutil.copy(RUNNER, runner)
        runner.chmod(0o644)
        words = [str(shipped), str(folder), str(server.getsockname()[1])]
        said = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(WORKER), *words],
            cwd=ROOT, env=os.environ | {"TMPDIR": str(folder)},
            capture_output=True, text=True,
        )  # fmt: skip
    assert not said.returncode, said.stderr
    return json.loads(said.stdout)


@pytest.mark.parametrize("wall", WALLS)
@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda path: path.name)
def test_every_wall_stands_under_what_is_shipped(shipped, wall):
    if (reason := found_under(None)["refused"].get(wall)) is not None:
        pytest.skip(f"this machine gives no sandbox the wall {wall}: {reason}")
    assert wall not in found_under(shipped)["refused"]


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda path: path.name)
def test_a_unit_reaches_nothing_under_what_is_shipped(shipped):
    if refused := found_under(None)["refused"]:
        pytest.skip(f"this machine gives no sandbox every wall: {refused}")
    found = found_under(shipped)
    assert (found["done"], found["problem"], found["alarms"]) == ([], None, [])


def test_a_unit_file_that_takes_walls_away_is_noticed_and_no_unit_is_loaded():
    """As the files were before they permitted namespaces and Landlock."""
    permitted = "landlock_add_rule landlock_create_ruleset landlock_restrict_self mount umount2"
    with directory() as folder:
        text = (ROOT / "etc/systemd/scheduler-worker@.service").read_text()
        before = text.replace("ipc mnt net pid user", "yes").replace(permitted, "")
        assert before != text
        old = folder / "old.service"
        old.write_text(before)
        old.chmod(0o644)
        found = found_under(old)
    lost = {"files", "ipc", "landlock", "network", "processes"}
    assert lost <= found["refused"].keys()
    assert {"reads the configuration", "signals the worker"} <= set(found["done"])
    assert not found["was_loaded"]
    lacking = ", ".join(sorted(found["refused"]))
    assert found["problem"].startswith(f"probe.py cannot be loaded: its sandbox lacks {lacking} (")
    assert "unshare: Operation not permitted" in found["problem"]
    assert found["problem"].endswith(remedies.WALLS)
    assert found["alarms"] == [f"probe.py: {found['problem']}"]


def test_the_recorded_groups_are_of_a_systemd_without_landlock():
    assert "unshare" in groups()["@system-service"]
    assert not [name for name in groups()["@system-service"] if name.startswith("landlock")]
    assert all(directives(unit).get("NoNewPrivileges") == ["yes"] for unit in UNITS)
