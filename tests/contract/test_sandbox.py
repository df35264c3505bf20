"""What the kernel and Python do with the processes of a sandbox."""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import textwrap

from scheduler_worker.backends.sandbox.process import RUNNER
from scheduler_worker.scheduling.external.contract import read_filter
from scheduler_worker.scheduling.external.units import PluginCall
from tests.support.patience import PROCESS_S, SOON_S, eventually
from tests.support.sandboxes import HOSTS, directory, sandboxes, write


def test_what_a_file_prints_while_it_is_loaded_is_no_answer():
    text = """
        print("loading", end="")
        class Unit:
            def do_filter(self, hosts, vm, properties): print(hosts[3:])
    """
    with sandboxes(text) as made:
        [[plugin]] = [file.classes for file in made.refresh()]
        question = PluginCall(plugin=plugin, hosts=HOSTS, vm="vm", properties={})
        assert made.ask(question, read_filter) == frozenset(HOSTS[3:]), made.trouble(plugin)


CALL = """
    import os, signal, runner

    class Unit:
        def do_filter(self, hosts, vm, properties):
            if not (child := os.fork()):
                signal.pause()
            print(child)

    asked = {"plugin": "Unit", "kind": "filter", "hosts": [], "vm": "", "properties": {}}
    answered = runner._answered({"Unit": Unit}, asked | {"cpu_s": 60}, 1000, alone=False)
    print(answered["answer"])
"""


def test_what_a_call_has_started_ends_with_it_also_without_a_namespace_of_its_own():
    ours, theirs = os.pipe()
    kept = fcntl.fcntl(theirs, fcntl.F_DUPFD, 100)  # above what a call closes
    os.close(theirs)
    try:
        said = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(CALL)],
            cwd=RUNNER.parent, pass_fds=[kept], capture_output=True, text=True, check=True,
        )  # fmt: skip
        os.close(kept)
        is_over, *_ = select.select([ours], [], [], SOON_S)
        if not is_over:
            os.kill(int(said.stdout), signal.SIGKILL)
        assert is_over, "the child of the call still has its end of the pipe"
    finally:
        with contextlib.suppress(OSError):
            os.close(kept)
        os.close(ours)


MORTAL = """
    import sys, threading
    from pathlib import Path
    from scheduler_worker.backends.sandbox.process import Sandbox
    from tests.support.sandboxes import settings

    file = Path(sys.argv[1])
    sandbox = Sandbox(file, settings(file.parent))
    print("loaded", flush=True)
    threading.Event().wait()
"""


def test_a_sandbox_leaves_no_folder_behind_when_the_worker_is_killed():
    with directory() as units, directory() as temporary:
        file = write(units, "units.py", "open('written', 'w').close()")
        worker = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(MORTAL), str(file)],
            env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with worker:
            try:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "loaded\n"
                assert list(temporary.iterdir()) != []
            finally:
                worker.kill()
                worker.wait(PROCESS_S)
        eventually(lambda: list(temporary.iterdir()) == [])
