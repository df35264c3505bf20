"""Run a command, and wait for every process below it: ``reaper.py COMMAND...``.

Processes whose parent ends first, such as those of a browser, would go to init, and their CPU time
with them. Here they come to this process, so whoever waits for it learns what all have used.
"""

import ctypes
import os
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36
"""See prctl(2)."""

ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
command = subprocess.Popen(sys.argv[1:])
ended, status = 0, 0
while ended != command.pid:
    ended, status = os.wait()
command.returncode = os.waitstatus_to_exitcode(status)
sys.exit(command.returncode if command.returncode >= 0 else 128 - command.returncode)
