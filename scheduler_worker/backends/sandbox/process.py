"""One sandbox: the processes of ``runner.py`` for one file, and the socket to them."""

import contextlib
import json
import math
import os
import pwd
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from scheduler_worker import remedies
from scheduler_worker.backends.sandbox.settings import SandboxSettings, Wall
from scheduler_worker.conversion import convert
from scheduler_worker.errors import ConfigError, ExternalUnitFailed

RUNNER = Path(__file__).with_name("runner.py")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}
_DIRECTORY_PREFIX = "scheduler-worker-unit-"
_END_TIMEOUT_S = 5.0


class SandboxBroken(ExternalUnitFailed):
    """Raised when the processes are of no use any more and must be replaced."""


class _Ready(msgspec.Struct):
    """The first message of a sandbox."""

    plugins: object = None
    refused: dict[Wall, str] = {}
    """The walls that the kernel refuses, and its reasons."""
    closed: tuple[str, str] | None = None
    """A path that the user may not read, and the part of it that is in the way."""
    error: str | None = None


class _Answer(msgspec.Struct):
    nonce: str
    answer: object = None
    error: str | None = None


class Sandbox:
    """Processes that have loaded a file; one call at a time. Call :meth:`close` in the end."""

    def __init__(
        self, file: Path | None, settings: SandboxSettings, reads: Collection[Path] = ()
    ) -> None:
        """Start the processes and load the file, or none, which examines the sandbox alone.

        ``reads`` are more files that the user must be able to read.

        Raises ExternalUnitFailed: they cannot be started, the file cannot be loaded, or the sandbox
        has less than the settings require; says why, and what to change.
        """
        self._settings = settings
        user = unprivileged(settings.user)
        self._folder = Path(tempfile.mkdtemp(prefix=_DIRECTORY_PREFIX))
        lifeline, self._lifeline = os.pipe()
        self._socket, peer = socket.socketpair()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            if user is not None:
                os.chown(self._folder, *user)
            self._process = self._started(file, reads, user, lifeline, peer)
        except OSError as error:
            self.close()
            raise ExternalUnitFailed(f"{settings.interpreter} cannot be started: {error}") from None
        finally:
            os.close(lifeline)
            peer.close()
        try:
            until_s = time.monotonic() + settings.load_timeout_s
            ready = convert(self._receive(until_s), _Ready)
            self.closed = _closed(ready, settings)
            """What the user cannot read, and what to change; a file may do without it."""
            if problem := _lacking(ready, settings):
                raise SandboxBroken(problem)
            if ready.error is not None:
                raise SandboxBroken(". ".join(filter(None, (ready.error, self.closed))))
        except (msgspec.ValidationError, SandboxBroken) as error:
            self.close()
            what = f"{file.name} cannot be loaded" if file else "no unit can be loaded"
            raise ExternalUnitFailed(f"{what}: {error}") from None
        self.plugins = ready.plugins
        """What the file declares, not checked yet."""
        self.refused = ready.refused
        """The walls that it does not have, and why."""
        self.isolation = tuple(sorted(settings.walls - ready.refused.keys()))
        """The walls that it has."""

    def _started(
        self,
        file: Path | None,
        reads: Collection[Path],
        user: tuple[int, int] | None,
        lifeline: int,
        calls: socket.socket,
    ) -> subprocess.Popen[bytes]:
        settings = self._settings
        files = [str(each) for each in (file, *reads) if each is not None]
        arguments = {
            "file": file and str(file),
            "directory": str(settings.directory),
            "reads": [str(settings.directory), *files],
            "required": settings.isolation,
            "folder": str(self._folder),
            "user": user,
            "network": settings.network,
            "memory_bytes": settings.memory_mb * 2**20,
            "processes": settings.max_tasks,
            "output_bytes": settings.max_output_bytes,
        }
        return subprocess.Popen(  # noqa: S603 - the operator's interpreter, our script
            [settings.interpreter, "-I", "-B", str(RUNNER), json.dumps(arguments)],
            stdin=lifeline,
            stdout=calls.fileno(),
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env={**_ENVIRONMENT, "HOME": str(self._folder), "TMPDIR": str(self._folder)},
            start_new_session=True,
        )

    def call(self, asked: Mapping[str, Any], timeout_s: float) -> object:
        """The answer to one call, as JSON has it.

        Raises:
            SandboxBroken: there is no valid answer in time; close this sandbox.
            ExternalUnitFailed: the class failed; the sandbox is as good as before.
        """
        nonce = secrets.token_hex(16)
        until_s = time.monotonic() + timeout_s
        named = {**asked, "nonce": nonce, "cpu_s": math.ceil(timeout_s) + 1}
        body = msgspec.json.encode(named)
        with self._until(until_s):
            self._socket.sendall(struct.pack(">I", len(body)) + body)
        try:
            answer = convert(self._receive(until_s), _Answer)
        except msgspec.ValidationError as error:
            raise SandboxBroken(f"its process sent no answer: {error}") from None
        if answer.nonce != nonce:
            raise SandboxBroken("its process answered another call than was made")
        if answer.error is not None:
            raise ExternalUnitFailed(answer.error)
        return answer.answer

    def close(self) -> None:
        """Kill all processes, wait until they are gone, and remove what they wrote."""
        self._socket.close()
        os.close(self._lifeline)  # the keeper ends all others, then itself
        if self._process is not None:
            try:
                self._process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, 9)
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Frames

    def _receive(self, until_s: float) -> object:
        size = struct.unpack(">I", self._exactly(4, until_s))[0]
        if size > 2 * self._settings.max_output_bytes:
            raise SandboxBroken(f"its process sent a message of {size} bytes")
        try:
            return msgspec.json.decode(self._exactly(size, until_s))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SandboxBroken(f"its process sent what is no JSON: {error}") from None

    def _exactly(self, size: int, until_s: float) -> bytes:
        received = bytearray()
        while len(received) < size:
            with self._until(until_s):
                more = self._socket.recv(min(size - len(received), 65536))
            if not more:
                raise SandboxBroken("its process has ended")
            received += more
        return bytes(received)

    @contextlib.contextmanager
    def _until(self, until_s: float) -> Iterator[None]:
        """Inside, the socket blocks no longer; its errors are raised as SandboxBroken."""
        try:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            yield
        except TimeoutError:
            raise SandboxBroken("it did not answer in time") from None
        except OSError as error:
            raise SandboxBroken(f"its process has ended: {error}") from None


def _closed(ready: _Ready, settings: SandboxSettings) -> str | None:
    if ready.closed is None:
        return None
    path, part = ready.closed
    of_units = Path(path).is_relative_to(settings.directory.resolve())
    change = remedies.UNREADABLE_UNITS if of_units else remedies.UNREADABLE_PYTHON
    return f"{_user(settings)} cannot read {path}, for {part} is closed to it. {change}"


def _lacking(ready: _Ready, settings: SandboxSettings) -> str | None:
    """Why no file is loaded into this sandbox, and what to change."""
    lacking = sorted(settings.walls & ready.refused.keys() & set(settings.isolation))
    if not lacking:
        return None
    reasons = ", ".join(sorted({ready.refused[wall] for wall in lacking}))
    return f"its sandbox lacks {', '.join(lacking)} ({reasons}). {remedies.WALLS}"


def _user(settings: SandboxSettings) -> str:
    number = os.geteuid()
    with contextlib.suppress(KeyError):  # a container's user may have no name
        return f"user {pwd.getpwuid(number).pw_name if number else settings.user}"
    return f"user {number}"


def unprivileged(user: str | None) -> tuple[int, int] | None:
    """User and group that code runs as; None: this process's, which is not root.

    Raises ConfigError where there is no such user, or the user is root.
    """
    if os.geteuid():
        return None
    try:
        account = pwd.getpwnam(user or "")
    except KeyError:
        raise ConfigError(f"[external_units] user: there is no user {user!r}") from None
    if account.pw_uid == 0:
        raise ConfigError("[external_units] user: code of others must not run as root")
    return account.pw_uid, account.pw_gid
