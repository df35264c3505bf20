"""Worker processes for tests: real ones, with a file for their log."""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from scheduler_worker import conf
from scheduler_worker.cli.worker import main
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.rpc.transport import Bus
from tests.support.patience import PROCESS_S, SOON_S


def write_config(path: Path, **groups: Mapping[str, Any]) -> Path:
    """An oslo.config file; ``DEFAULT`` and other groups by keyword."""
    lines = []
    for group, options in groups.items():
        lines.append(f"[{group}]")
        for name, value in options.items():
            values = value if isinstance(value, list) else [value]
            lines += [f"{name} = {each}" for each in values]
    path.write_text("\n".join(lines) + "\n")
    return path


def load_config(path: Path, **groups: Mapping[str, Any]) -> conf.Configuration:
    """The configuration of such a file."""
    return conf.load(["--config-file", str(write_config(path, **groups))])


_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["scheduler_worker.compose.worker", "scheduler_worker.cli.check"])


def run_worker(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``scheduler-worker`` to its end.

    The process is forked from one that has the modules: to import them takes a CPU second.
    """
    command = ["--config-file", str(config), *arguments]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = _SERVER.Process(
            target=_run, args=(command, DupFd(out.fileno()), DupFd(err.fileno()))
        )
        process.start()
        process.join()
        assert process.exitcode is not None
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, process.exitcode, out.read(), err.read())


def _run(command: list[str], *outputs: Any) -> None:
    for target, source in enumerate(outputs, 1):
        os.dup2(source.detach(), target)
    sys.exit(main(command))


class WorkerProcess:
    """``scheduler-worker`` as a process; always ended when the block is left.

    ``module`` may be another one that runs the same command, ``program`` one of an installation.
    """

    def __init__(
        self,
        config: Path,
        *arguments: str,
        name: str = "worker",
        module: str = "scheduler_worker",
        program: Path | str = "",
    ) -> None:
        self.log_path = config.with_name(f"{name}.log")
        self._log = self.log_path.open("w")
        command = [str(program)] if program else [sys.executable, "-m", module]
        self.process = subprocess.Popen(
            [*command, "--config-file", str(config), *arguments],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def await_log(self, text: str, timeout_s: float = PROCESS_S) -> None:
        """Wait until the log contains the text."""
        deadline_s = time.monotonic() + timeout_s
        while text not in self.log:
            assert self.process.poll() is None, f"the worker ended: {self.log}"
            assert time.monotonic() < deadline_s, f"no {text!r} in the log: {self.log}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)

    def ready(self) -> "WorkerProcess":
        """Until it consumes; one that does not is ended."""
        try:
            self.await_log("Serving topic")
        except BaseException:
            self.__exit__()
            raise
        return self

    def stop(self, timeout_s: float = PROCESS_S) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(PROCESS_S)

    def peak_mb(self) -> float:
        """Its largest resident set so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, the process is stopped by SIGSTOP, as a virtual machine that is migrated."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(PROCESS_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._log.close()


@contextlib.contextmanager
def connected(url: str, timeout_s: float = SOON_S):
    """A client of the workers on a bus, once one of them answers; one should be ready."""
    with Bus(conf.load(), url=url) as bus:
        client = SchedulerClient(bus, timeout_s=timeout_s)
        deadline_s = time.monotonic() + PROCESS_S
        while True:
            try:
                client.ping("?")
                break
            except SchedulerWorkerError:
                if time.monotonic() > deadline_s:
                    raise
        yield client


@contextlib.contextmanager
def all_ready(*workers: WorkerProcess) -> Iterator[tuple[WorkerProcess, ...]]:
    """Workers that are ready; ended when the block is left."""
    with contextlib.ExitStack() as stack:
        for worker in workers:
            stack.enter_context(worker)
        for worker in workers:
            worker.ready()
        yield workers


class NotifySocket:
    """A service manager's end of ``$NOTIFY_SOCKET``, to which workers send notifications."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def close(self) -> None:
        self._socket.close()

    def next(self, timeout_s: float = PROCESS_S) -> str | None:
        """The next notification; None when none arrives in time."""
        self._socket.settimeout(timeout_s)
        try:
            return self._socket.recv(4096).decode()
        except TimeoutError:
            return None

    def until(self, text: str, timeout_s: float = PROCESS_S) -> str:
        """The first notification that contains the text; earlier ones are skipped."""
        ends_s = time.monotonic() + timeout_s
        while (left_s := ends_s - time.monotonic()) > 0:
            message = self.next(left_s)
            if message is not None and text in message:
                return message
        raise AssertionError(f"there was no notification {text!r}")
