"""The virtual environment of Nova and Placement, which is apart from ours."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

from nova_cloud.errors import NotInstalled

PROJECT = Path(__file__).resolve().parents[2]
REQUIREMENTS = (
    "nova==34.0.0",
    "openstack-placement==16.0.0",
    "PyMySQL>=1.1,<2",
    "pyuwsgi>=2.0.22",
    "cheroot>=10",  # serves Placement alone
    "fixtures>=4",  # Nova's fake driver imports both
    "testtools>=2.6",
)
"""What runs in the environment. A change of a version is a change of the schemas, too."""
_MISSING = """\
import importlib.metadata, json, sys
def have(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
missing = []
for text in json.load(sys.stdin):
    name, _, exact = text.partition("==")
    name = name.partition(">")[0]
    if not (have(name) == exact if exact else have(name)):
        missing.append(text)
json.dump(missing, sys.stdout)
"""


class Installation:
    """A virtual environment that has :data:`REQUIREMENTS`, once :meth:`ensure` has returned."""

    def __init__(self, venv: Path) -> None:
        self.venv = venv

    @property
    def python(self) -> Path:
        return self.program("python")

    def program(self, name: str) -> Path:
        """The path of a program of the environment."""
        return self.venv / "bin" / name

    def ensure(self) -> "Installation":
        """Install what is missing: a few minutes the first time. Raises NotInstalled.

        Of several processes one installs, and the others wait for it.
        """
        try:
            lock = self.venv.with_name(f"{self.venv.name}-lock").open("w")
        except OSError as error:
            raise self._not_installed(str(error)) from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if missing := self.missing():
                self._install(missing)
        return self

    def _install(self, missing: list[str]) -> None:
        print(f"Installing {' '.join(missing)} into {self.venv} ...", file=sys.stderr)
        if not self.python.exists():
            self._run([sys.executable, "-m", "venv", str(self.venv)])
        pip = [str(self.python), "-m", "pip", "install", "--quiet"]
        self._run([*pip, "--disable-pip-version-check", *REQUIREMENTS])

    def missing(self) -> list[str]:
        """The requirements that are not met."""
        if not self.python.exists():
            return list(REQUIREMENTS)
        answer = self._run([str(self.python), "-c", _MISSING], json.dumps(REQUIREMENTS))
        missing: list[str] = json.loads(answer)
        return missing

    def _run(self, command: list[str], stdin: str = "") -> str:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise self._not_installed(f"{' '.join(command)} failed.\n{done.stderr[-2000:]}")
        return done.stdout

    def _not_installed(self, why: str) -> NotInstalled:
        return NotInstalled(
            f"Nova and Placement are not installed in {self.venv}, and cannot be: {why}\n"
            f"With a package index in reach, this does it: python3 -m venv {self.venv} && "
            f"{self.python} -m pip install {' '.join(map(repr, REQUIREMENTS))}. "
            "NOVA_VENV names an environment elsewhere."
        )


def default_installation() -> Installation:
    """That of ``NOVA_VENV``, or else ``.venv-nova`` of the checkout."""
    return Installation(Path(os.environ.get("NOVA_VENV", PROJECT / ".venv-nova")))
