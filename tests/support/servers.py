"""Private servers on free loopback ports: RabbitMQ and Redis in a directory of their own.

A server's directory has everything that is needed to find, stop or restart it, so another process
can stop it (``tools/dev-services`` does). Only processes that were started here are ever stopped,
each by its pid.
"""

import contextlib
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.patience import PROCESS_S, eventually

LOOPBACK = "127.0.0.1"
STOP_S = 30.0
POLL_S = 0.05
_PORTS = 10_000, 32_768
_RANDOM = random.SystemRandom()  # the other one is seeded alike for each test
_CLAIMED: list[socket.socket] = []
VHOSTS = 32
"""How many virtual hosts are made at once."""
_ADD_VHOSTS = """lists:foreach(fun(Name) ->
    ok = rabbit_vhost:add(Name, <<"tests">>),
    All = <<".*">>,
    ok = rabbit_auth_backend_internal:set_permissions(
        <<"guest">>, Name, All, All, All, <<"tests">>)
end, [list_to_binary(Name) || Name <- %s])"""
RABBIT_PROGRAMS = Path("/usr/lib/rabbitmq/bin")


class ServerMissing(Exception):
    """Raised when the program is not installed; the message says how to get it."""


class ServerFailed(Exception):
    """Raised when a server does not start; carries the end of its log."""


class Server:
    """One server process, run from ``directory``, which it alone uses.

    ``start`` returns when the server answers; ``stop`` and ``kill`` when its process is gone.
    The data stays in the directory, so that ``restart`` finds it again.
    """

    name: str
    ports: Sequence[str] = ("port",)

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def port(self) -> int:
        return self._number("port")

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def pid(self) -> int:
        return self._number("pid")

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def is_running(self) -> bool:
        return (self.directory / "pid").exists() and self._is_ours(self.pid)

    def start(self) -> None:
        """Start on the ports of the last time, or on free ones."""
        self.take_ports()
        self._launch("pid", self.command(), self.environment())
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def take_ports(self) -> None:
        """Choose the ports, if that is yet to be done: others may need them before the start."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for each in self.ports:
            if not (self.directory / each).exists():
                (self.directory / each).write_text(str(free_port()))

    def stop(self) -> None:
        """Let it finish properly."""
        self._end("pid", signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._end("pid", signal.SIGKILL)

    def restart(self) -> None:
        """Stop, and start again on the same ports and data."""
        self.stop()
        self.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, the process stands still: it keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return dict(os.environ)

    def check_ready(self) -> None:
        """Return when the server answers; raise any Exception while it does not."""
        raise NotImplementedError

    def _launch(self, pid_file: str, command: list[str], environment: Mapping[str, str]) -> None:
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                command,
                cwd=self.directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[child.pid] = child
        (self.directory / pid_file).write_text(str(child.pid))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + PROCESS_S
        problem: Exception | None = None
        while time.monotonic() < deadline and self._children[self.pid].poll() is None:
            try:
                return self.check_ready()
            except Exception as error:
                problem = error
                time.sleep(POLL_S)  # there is no other signal that a server is up
        tail = self.log.read_text(errors="replace")[-2000:]
        raise ServerFailed(f"{self.name} did not start ({problem}); the end of its log:\n{tail}")

    def _end(self, pid_file: str, how: signal.Signals) -> None:
        path = self.directory / pid_file
        if not path.exists():
            return
        pid = int(path.read_text())
        if self._is_ours(pid):
            _end_process(pid, how)
        child = self._children.pop(pid, None)
        if child is not None:
            child.wait()
        path.unlink()

    def _is_ours(self, pid: int) -> bool:
        """Whether the process is one that was started here: a pid may belong to a stranger now."""
        try:
            return Path(f"/proc/{pid}/cwd").readlink() == self.directory.resolve()
        except OSError:
            return False

    def _number(self, name: str) -> int:
        return int((self.directory / name).read_text())


class RedisServer(Server):
    """A Redis with an append-only file; ``options`` are settings with underscores for hyphens.

    With ``appendfsync="always"`` every change is on the disk before it is answered. Otherwise a
    killed server may have forgotten its last two seconds: it puts off writing while the disk is
    slow.
    """

    name = "Redis"
    account: Mapping[str, Any] = {}

    def __init__(self, directory: Path, **options: object) -> None:
        super().__init__(directory)
        self.options = options

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def command(self) -> list[str]:
        options = {
            "port": self.port,
            "bind": LOOPBACK,
            "dir": self.directory.resolve(),
            "appendonly": "yes",
            "save": "",
            "daemonize": "no",
            "repl-diskless-sync-delay": 0,
            **{name.replace("_", "-"): value for name, value in self.options.items()},
        }
        flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        return [program("redis-server"), *flags]

    def check_ready(self) -> None:
        with socket.create_connection((LOOPBACK, self.port), timeout=1) as connection:
            connection.sendall(b"INFO server\r\n")
            answer = connection.recv(4096).decode(errors="replace")
        if f"process_id:{self.pid}\r\n" not in answer:  # loading, or a stranger on this port
            raise ServerFailed(answer.partition("\r\n")[0])


class RedisSentinel(RedisServer):
    """The only sentinel of the service ``blue``, whose first master is given.

    It answers an account of its own alone.
    """

    name = "Sentinel"
    account: Mapping[str, Any] = {"username": "me", "password": "hush"}

    def __init__(self, directory: Path, master: RedisServer) -> None:
        super().__init__(directory)
        self._master = master

    @property
    def url(self) -> str:
        return f"redis+sentinel://{LOOPBACK}:{self.port}/blue/0?sentinel_username=me&sentinel_password=hush"

    def command(self) -> list[str]:
        file = self.directory / "sentinel.conf"  # the sentinel writes to it too
        if not file.exists():
            file.write_text(
                f"port {self.port}\nbind {LOOPBACK}\ndir {self.directory.resolve()}\n"
                "user default on nopass ~* &* -@all +info +ping\nuser me on >hush &* +@all\n"
                f"sentinel monitor blue {LOOPBACK} {self._master.port} 1\n"
                "sentinel down-after-milliseconds blue 600000\n"  # a busy master is no failure
            )
        return [program("redis-server"), str(file.resolve()), "--sentinel"]


class RabbitServer(Server):
    """A RabbitMQ of one node, with an epmd of its own; needs no privileges."""

    name = "RabbitMQ"
    ports = ("port", "dist_port", "epmd_port")

    def __init__(self, directory: Path, configuration: Mapping[str, object] = {}) -> None:
        """``configuration`` has the lines of ``rabbitmq.conf``."""
        super().__init__(directory)
        self._configuration = configuration
        self._spare_vhosts: list[str] = []

    @property
    def url(self) -> str:
        return self.url_of("/")

    def url_of(self, vhost: str) -> str:
        """The URL of a virtual host, as oslo.messaging writes it."""
        return f"rabbit://guest:guest@{LOOPBACK}:{self.port}/{vhost.strip('/')}"

    def new_vhost(self) -> str:
        """The URL of a new, empty virtual host."""
        if not self._spare_vhosts:
            self._spare_vhosts = [uuid.uuid4().hex for _ in range(VHOSTS)]
            self.evaluate(_ADD_VHOSTS % json.dumps(self._spare_vhosts))
        return self.url_of(self._spare_vhosts.pop())

    def add_user(self, name: str, password: str) -> None:
        self._change_accounts("add_user", name, password)

    def delete_user(self, name: str) -> None:
        self._change_accounts("delete_user", name)

    def permit(self, user: str, configure: str, write: str, read: str, vhost: str = "/") -> None:
        """Let the user do that, and nothing else, on the virtual host."""
        self._change_accounts("set_permissions", user, vhost, configure, write, read)

    def forbid(self, user: str, vhost: str = "/") -> None:
        """Let the user do nothing on the virtual host."""
        self._change_accounts("clear_permissions", user, vhost)

    def close_connections(self, user: str) -> None:
        """Close all connections of a user."""
        self.evaluate(f"rabbit_networking:close_all_user_connections(<<{json.dumps(user)}>>, <<>>)")

    def may_use(self, memory: float) -> None:
        """Raise the alarm of memory from this share of the machine's on."""
        self.evaluate(f"vm_memory_monitor:set_vm_memory_high_watermark({memory:f})")

    def _change_accounts(self, function: str, *texts: str) -> None:
        arguments = ", ".join(f"<<{json.dumps(each)}>>" for each in (*texts, "tests"))
        self.evaluate(f"ok = rabbit_auth_backend_internal:{function}({arguments})")

    def queues(self, vhost: str = "/") -> list[str]:
        """The names of a virtual host's queues."""
        names = "[binary_to_list(element(4, Name)) || Name <- rabbit_amqqueue:list_names({})]"
        return json.loads(self.evaluate(names.format(f"<<{json.dumps(vhost)}>>")))

    def evaluate(self, expression: str) -> str:
        """The value of an expression in Erlang, inside the server.

        It comes at once, and costs nothing: see :meth:`control`.
        """
        cookie = (self.directory / ".erlang.cookie").read_text()
        node = f"{LOOPBACK}:{self._number('dist_port')}"
        done = subprocess.run(
            [program("erl_call"), "-r", "-c", cookie, "-address", node, "-e"],
            input=f"{expression}.\n", capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not done.stdout.startswith("{ok, "):
            raise ServerFailed(f"{expression}: {done.stdout}{done.stderr}")
        return done.stdout.removeprefix("{ok, ").removesuffix("}")

    def control(self, *arguments: str) -> str:
        """The output of ``rabbitmqctl``, which starts for a CPU second."""
        command = [program("rabbitmqctl", RABBIT_PROGRAMS), "-q", *arguments]
        done = subprocess.run(
            command, env=dict(self.environment()), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ServerFailed(f"rabbitmqctl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self) -> None:
        program("rabbitmq-server", RABBIT_PROGRAMS)  # before epmd runs in vain
        self.take_ports()
        (self.directory / "plugins").write_text("[].\n")
        lines = [f"{name} = {value}\n" for name, value in self._configuration.items()]
        (self.directory / "rabbitmq.conf").write_text("".join(lines))
        epmd = [program("epmd"), "-address", LOOPBACK, "-port", str(self._number("epmd_port"))]
        self._launch("epmd_pid", epmd, os.environ)
        # The server would start one that outlives it.
        eventually(lambda: _listens(self._number("epmd_port")), PROCESS_S)
        super().start()

    def stop(self) -> None:
        super().stop()
        self._end("epmd_pid", signal.SIGTERM)

    def kill(self) -> None:
        super().kill()
        self._end("epmd_pid", signal.SIGKILL)

    def command(self) -> list[str]:
        return [program("rabbitmq-server", RABBIT_PROGRAMS)]

    def environment(self) -> Mapping[str, str]:
        home = self.directory.resolve()
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(self._number("epmd_port")),
            "RABBITMQ_NODENAME": f"scheduler-worker-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._number("dist_port")),
            "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server: one pid to stop
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def check_ready(self) -> None:
        import amqp

        address = f"{LOOPBACK}:{self.port}"
        with amqp.Connection(address, "guest", "guest", connect_timeout=2, read_timeout=5) as link:
            link.channel().close()


def program(name: str, *places: Path) -> str:
    """The path of an installed program. Raises ServerMissing."""
    found = shutil.which(name, path=os.pathsep.join([*map(str, places), os.environ["PATH"]]))
    if found is None:
        raise ServerMissing(f"{name} is not installed; tools/install-servers installs it")
    return found


def free_port() -> int:
    """A port of the loopback that is free, and that no other process gets from here.

    Otherwise another test might get it before a server listens there, or while it is away. It is
    below those that the kernel gives to clients, for the same reason. The claim ends with this
    process.
    """
    while True:
        port = _RANDOM.randrange(*_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            _CLAIMED.append(_claim(port))
            probe.bind((LOOPBACK, port))
            return port


def _claim(port: int) -> socket.socket:
    """Claim it by an abstract name, which the kernel gives once. Raises OSError."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0scheduler-worker-tests/port/{port}")
    except OSError:
        claim.close()
        raise
    return claim


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
        return True
    return False


def _end_process(pid: int, how: signal.Signals) -> None:
    """Send the signal, and wait until the process is gone; at last it is killed."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, how)
            gone, _, _ = select.select([handle], [], [], STOP_S)
            if not gone:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                select.select([handle], [], [], STOP_S)
        finally:
            os.close(handle)
