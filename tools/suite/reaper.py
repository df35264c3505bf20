"""Run a command, and wait for every process below it: ``reaper.py COMMAND...``.

Processes whose parent ends first, such as those of a browser, would go to init, and their CPU time
with them. Here they come to this process, so whoever waits for it learns what all have used.
SIGTERM interrupts the command, as a terminal does.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

PR_SET_CHILD_SUBREAPER = 36
"""See prctl(2)."""
CANNOT_START = 127
"""The status if there is no such command: that of shells."""


def main(arguments: Sequence[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    begun: list[int] = []
    is_to_end = False

    def interrupt(*_: object) -> None:
        nonlocal is_to_end
        is_to_end = True
        for pid in begun:
            os.kill(pid, signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        command = subprocess.Popen(arguments)
    except OSError as error:
        print(error, file=sys.stderr)
        return CANNOT_START
    begun.append(command.pid)
    if is_to_end:  # it was asked for before the command had a number
        interrupt()
    ended, status = 0, 0
    while ended != command.pid:
        ended, status = os.wait()
    command.returncode = os.waitstatus_to_exitcode(status)
    return command.returncode if command.returncode >= 0 else 128 - command.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
