"""Directories with files of external units, and sandboxes for them."""

import contextlib
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scheduler_worker.backends.sandbox.pool import Sandboxes
from scheduler_worker.backends.sandbox.settings import SandboxSettings
from tests.support.servers import ServerMissing

_SYSTEM_PYTHON = Path("/usr/bin/python3")
PYTHON = str(_SYSTEM_PYTHON) if os.geteuid() == 0 and _SYSTEM_PYTHON.exists() else sys.executable
"""An interpreter whose libraries every user may read; root's own may be in root's home."""

HOSTS = [f"11111111-1111-1111-1111-{number:012}" for number in range(5)]


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A directory that every user may read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


def write(folder: Path, name: str, text: str) -> Path:
    """A file in it that every user may read."""
    path = folder / name
    path.write_text(textwrap.dedent(text))
    path.chmod(0o644)
    return path


def settings(folder: Path, **fields: Any) -> SandboxSettings:
    """Settings for tests: patient with a slow machine, without a rest after a failure, content
    with what isolation the machine grants.
    """
    defaults: dict[str, Any] = {"python": PYTHON, "timeout_s": 60.0, "rest_s": 0.0}
    defaults["load_timeout_s"] = 60.0
    defaults["isolation"] = ()
    return SandboxSettings(directory=folder, **(defaults | fields))


@contextlib.contextmanager
def sandboxes(text: str, observer: Any = None, **fields: Any) -> Iterator[Sandboxes]:
    """The sandboxes of one file, ``units.py``."""
    with directory() as folder:
        write(folder, "units.py", text)
        made = Sandboxes(settings(folder, **fields), observer)
        try:
            made.refresh()
            yield made
        finally:
            made.close()


def worker_python(folder: Path) -> str:
    """An interpreter that every user may read and that has the worker installed.

    Where this one is root's own, it is a virtual environment of the system's in ``folder``, which
    raises ServerMissing where the system has another version.
    """
    if sys.executable == PYTHON:
        return PYTHON
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    said = subprocess.run([PYTHON, "--version"], capture_output=True, text=True, check=True)
    if not said.stdout.startswith(f"Python {version}."):
        raise ServerMissing(f"no Python {version} that every user may read")
    for path in (folder / "bin", libraries := folder / "lib" / f"python{version}/site-packages"):
        path.mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(PYTHON)
    (folder / "pyvenv.cfg").write_text(f"home = {Path(PYTHON).parent}\n")
    paths = [each for each in sys.path if each.endswith("site-packages")]
    lines = [f"import site; site.addsitedir({each!r})\n" for each in paths]
    (libraries / "worker.pth").write_text("".join(lines))
    return str(folder / "bin" / "python")
