"""The run of Nova's unit tests, and what to make of each."""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nova_cloud.errors import NotInstalled
from nova_cloud.installation import PROJECT, Installation

HERE = Path(__file__).parent
MODULES = (
    *("filters/test_*.py", "weights/test_*.py"),
    *("test_filters.py", "test_host_filters.py", "test_host_manager.py"),
    *("test_request_filter.py", "test_utils.py"),
)
"""Of ``nova.tests.unit.scheduler``. The others test what a client of the worker does, or the
messages between the two, of which the project has its own tests with the real ones."""
LIBRARIES = ("oslotest>=6,<7", "ddt>=1.7", "wsgi-intercept>=1.13")
"""What Nova's tests import, and Nova itself does not."""
BOUND_S = 900
"""The tests take a minute."""


@dataclass
class Verdict:
    """Names of tests; of some with the reason."""

    agree: list[str] = field(default_factory=list)
    differ: dict[str, str] = field(default_factory=dict)
    not_applicable: dict[str, str] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    """Tests that agree, although the table says that they are not applicable."""

    @property
    def total(self) -> int:
        return len(self.agree) + len(self.differ) + len(self.not_applicable) + len(self.stale)


def run(installation: Installation) -> Verdict:
    """Run the tests of this Nova."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [
            *(str(installation.python), str(HERE / "inside" / "runner.py"), str(results)),
            *_modules(installation),
            *("--", sys.executable, str(HERE / "answers.py")),
        ]
        environment = {**os.environ, "PYTHONPATH": str(_libraries(installation))}
        done = subprocess.run(
            command, env=environment, cwd=folder, timeout=BOUND_S,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode or not results.exists():
            raise RuntimeError(f"Nova's tests cannot be run: {done.stderr[-2000:]}")
        return judge(json.loads(results.read_text()), reasons())


def reasons() -> dict[str, str]:
    """Why tests are not applicable, by the beginning of their names, which end with ``$``."""
    found: dict[str, str] = tomllib.loads((HERE / "not_applicable.toml").read_text())
    return found


def judge(results: dict[str, Any], reasons: dict[str, str]) -> Verdict:
    """``results`` is what ``inside/runner.py`` has written."""
    verdict = Verdict()
    for name, result in results.items():
        matching = (why for begins, why in reasons.items() if f"{name}$".startswith(begins))
        reason = next(matching, None)
        why = _trouble(result)
        if why is None and reason is None:
            verdict.agree.append(name)
        elif why is None:
            verdict.stale.append(name)
        elif reason is not None:
            verdict.not_applicable[name] = reason
        else:
            verdict.differ[name] = why
    return verdict


def _trouble(result: dict[str, Any]) -> str | None:
    """Why a test did not pass with our answers alone; None: it did."""
    if result["outcome"] != "passed":
        return f"{result['outcome']}: {result['why']}"
    if result["inexpressible"]:
        return f"no message has this: {result['inexpressible'][0]}"
    return None if result["asked"] else "it asks no unit of ours"


def _modules(installation: Installation) -> Iterable[str]:
    code = "import nova.tests.unit.scheduler as found; print(found.__path__[0])"
    command = [str(installation.python), "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    root = Path(done.stdout.splitlines()[-1])
    for pattern in MODULES:
        for each in sorted(root.glob(pattern)):
            name = ".".join(each.relative_to(root).with_suffix("").parts)
            yield f"nova.tests.unit.scheduler.{name}"


def _libraries(installation: Installation) -> Path:
    """Where :data:`LIBRARIES` are, installed if need be, beside Nova's environment."""
    target = PROJECT / ".run" / "nova-tests-libraries"
    done = target / "installed"
    if not done.exists():
        pip = [str(installation.python), "-m", "pip", "install", "--quiet", "--no-deps"]
        command = [*pip, "--disable-pip-version-check", "--target", str(target), *LIBRARIES]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise NotInstalled(f"{' '.join(command)} failed.\n{ran.stderr[-2000:]}")
        done.touch()
    return target
