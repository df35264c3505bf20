"""Hostile code in sandboxes: it fails alone and in time, and leaves no process and no file."""

import contextlib
import fcntl
import os
import pwd
import re
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from scheduler_worker import remedies
from scheduler_worker.backends.sandbox.process import RUNNER, Sandbox
from scheduler_worker.errors import ExternalUnitFailed
from scheduler_worker.scheduling.external.contract import read_filter
from scheduler_worker.scheduling.external.units import PluginCall
from tests.support.descriptors import many_descriptors
from tests.support.patience import PROCESS_S, SOON_S, TooSoon, eventually, growing
from tests.support.sandboxes import HOSTS, PYTHON, directory, sandboxes, settings, write

GOOD = """
    class Good:
        def do_filter(self, hosts, vm, properties):
            print(hosts[:2])
"""


def processes_of(folder):
    """Command lines of the processes that were given paths in the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            command = path.read_bytes()
            if os.fsencode(folder) in command:
                found.append((path.parent.name, command))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch):
    """All that a test makes is in a folder of its own; what is left there at the end is found."""
    with directory() as folder:
        folder.chmod(0o1777)  # as that of the system
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        yield folder
        assert processes_of(folder) == []
        assert list(folder.iterdir()) == []


def test_the_processes_of_sandboxes_are_those_that_must_not_be_left(nothing_is_left):
    with sandboxes("class Good: pass"):
        assert processes_of(nothing_is_left)
        assert list(nothing_is_left.iterdir())


def ask(made, name):
    """The answer of a class, and why it failed."""
    [plugin] = [each for file in made.refresh() for each in file.classes if each.name == name]
    question = PluginCall(plugin=plugin, hosts=HOSTS, vm="vm", properties={})
    return made.ask(question, read_filter), made.trouble(plugin) or ""


def tried(body, **fields):
    """Call a hostile class, then a good one of the same file; what became of both."""
    lines = "\n".join(f"            {each}" for each in body.strip().splitlines())
    text = (
        "import os, signal, socket, sys, time\nclass Hostile:\n"
        f"    def do_filter(self, hosts, vm, properties):\n{lines}\n"
    )
    with sandboxes(text + GOOD.replace("\n    ", "\n"), **fields) as made:
        return ask(made, "Hostile"), ask(made, "Good")


OK = (frozenset(HOSTS[:2]), "")
LATE = "it did not answer in time"
DAUGHTERS = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(3600)
    os._exit(0)
print(hosts)
"""
PARRICIDE = """
for pid in (os.getppid(), 1, -1):
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
sys.exit("lives")
"""
DEAF = """
for each in signal.valid_signals():
    try: signal.signal(each, signal.SIG_IGN)
    except OSError: pass
while True: pass
"""
FAILURES = [
    ("while True: pass", LATE),
    ("time.sleep(3600)", LATE),
    (DEAF, LATE),
    ("while True: os.fork()", "failed: .*"),  # all that were forked write; whose line is last?
    (PARRICIDE, ".*"),
    ("x = bytearray(4 * 2**30)\nprint(hosts)", ".*MemoryError.*"),
    ("while True: sys.stdout.write('x' * 2**20)", "printed more than 1048576 bytes"),
    ("open('kept', 'wb').write(bytes(10))\nopen('large', 'wb').write(bytes(2**26))",
     ".*(OSError|signal 25).*"),
    ("open('/etc/passwd')", ".*PermissionError.*"),
    (f"open('/tmp/written-by-a-unit-{os.getpid()}', 'w')", ".*PermissionError.*"),
    ("socket.create_connection(('127.0.0.1', 1), 5)", ".*(PermissionError|unreachable).*"),
    (f"os.kill({os.getpid()}, 0)", ".*(ProcessLookupError|PermissionError).*"),
    ("os.closerange(0, 100)", ".+"),
    ("raise KeyError(str('OS_SECRET' in os.environ))", "failed: KeyError: 'False'"),
    ("print(['unknown'])", ".*none of the hosts.*"),
    ("print('[' * 10000)", ".*cannot be read.*"),
    ("print('-' * 100000 + '1')", ".*"),
    ("os.write(1, bytes(range(256)))", ".*cannot be read.*"),
    ("os._exit(3)", ".*failed.*"),
    ("sys.exit('no')", ".*failed.*"),
    ("os.kill(os.getpid(), 9)", ".*killed by signal 9.*"),
]  # fmt: skip
"""What hostile code does, and why it failed."""


@pytest.mark.parametrize(("body", "why"), FAILURES)
def test_hostile_code_fails_alone_and_in_time(monkeypatch, body, why):
    monkeypatch.setenv("OS_SECRET", "hidden")

    def scene(timeout_s):
        limits = {"timeout_s": timeout_s} if why == LATE else {"max_output_bytes": 2**20}
        outcome = tried(body, **limits)
        if why == LATE and outcome[1] != OK:
            raise TooSoon(outcome)
        return outcome

    (found, said), good = growing(scene, TooSoon)
    assert found is None
    assert re.fullmatch(why, said, re.DOTALL)
    assert good == OK


UNBOUNDED = """
import ctypes
libc = ctypes.CDLL(None)
pages = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(9)), 9)
add_key, clone = (248, 56) if os.uname().machine == "x86_64" else (217, 220)
made = {
    "a shared segment": libc.shmget(0, 480 * 2**20, 0o1600),
    "a message queue": libc.msgget(0, 0o1600),
    "semaphores": libc.semget(0, 1, 0o1600),
    "a message queue of POSIX": libc.mq_open(b"/kept", 0o102, 0o600, None),
    "a memory file": libc.memfd_create(b"kept", 0),
    "a key": libc.syscall(add_key, b"user", b"kept", b"1", 1, -2),
    "pages in a pipe": libc.vmsplice(os.pipe()[1], pages, 1, 0),
    "a user namespace": libc.unshare(1 << 28),
    "a child in a user namespace": libc.syscall(clone, 1 << 28 | 17, 0, 0, 0, 0),
    "a file system": libc.syscall(430, b"tmpfs", 0),
}
if not made["a child in a user namespace"]: os._exit(0)
raise MemoryError([name for name, result in made.items() if result >= 0])
"""
"""Memory that limits of a process do not count. Segments, queues and keys outlive the process."""


def test_a_unit_keeps_no_memory_beside_what_is_bounded():
    (_, said), good = tried(UNBOUNDED)
    assert said == "failed: MemoryError: []"
    assert good == OK


THREADS = """
import subprocess, threading
thread = threading.Thread(target=lambda: print(hosts[:2]))
thread.start()
thread.join()
subprocess.run(["/bin/true"], check=True)
"""


def test_threads_and_programs_are_not_refused():
    assert tried(THREADS) == (OK, OK)


@pytest.mark.parametrize(
    "body",
    [DAUGHTERS, "for _ in range(1000): sys.stderr.write('x' * 2**20)\nprint(hosts)"],
    ids=["children in sessions of their own", "complaints without end"],
)
def test_what_a_call_leaves_behind_is_ended_or_thrown_away(body):
    assert tried(body) == ((frozenset(HOSTS), ""), OK)


def test_a_worker_with_many_descriptors_confines_alike():
    body = """
def is_open(number):
    try: os.fstat(number)
    except OSError: return False
    return True
assert not any(map(is_open, range(3, 4096)))
print(hosts[:2])
"""
    with many_descriptors():
        assert tried(body) == (OK, OK)


FORGER = """
    import os, json, socket, struct, sys
    import stat
    # While the file is loaded, the socket to the worker is among the descriptors.
    def is_socket(fd):
        try: return stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError: return False
    (number,) = filter(is_socket, range(64))
    to_worker = socket.socket(fileno=os.dup(number))
    def send(message):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        to_worker.sendall(struct.pack(">I", len(body)) + body)
    {forged}
    class Good:
        def do_filter(self, hosts, vm, properties):
            print(hosts[:2])
"""
READY = '{"plugins": [{"name": "Good", "kinds": {"filter": ""}}]}'


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        (f"send({READY}); send({{'nonce': 'guess', 'answer': []}})", "another call"),
        (f"send({READY}); send(b'not json')", "no JSON"),
        (f"send({READY}); send([1])", "no answer"),
        (f"send({READY}); send(b'x' * 20_000_000)", "message of"),
        (f"send({READY}); os._exit(0)", "ended"),
    ],
)
def test_forged_messages_are_found_out(forged, why):
    with sandboxes(FORGER.replace("{forged}", forged)) as made:
        found, said = ask(made, "Good")
    assert found is None
    assert why in said


FORGED_DECLARATION = FORGER.replace("{forged}", "send({'plugins': [{'name': 1}]})")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("import os; os._exit(0)", "ended"),
        pytest.param(FORGED_DECLARATION, "Expected `str`", id="forged"),
    ],
)
def test_a_file_that_does_not_load_says_why(text, why):
    with sandboxes(text) as made:
        (file,) = made.refresh()
    assert why in (file.problem or "")


def test_a_library_that_the_user_cannot_read_is_named_where_a_file_needs_it():
    with directory() as folder, directory() as environment:
        file = write(folder, "units.py", "import no_such_library")
        modest = write(folder, "modest.py", "class Unit: pass")
        (environment / "bin").mkdir()
        (environment / "bin/python").symlink_to(PYTHON)
        (environment / "pyvenv.cfg").write_text(f"home = {Path(PYTHON).resolve().parent}\n")
        python = str(environment / "bin/python")
        say = "import sysconfig; print(sysconfig.get_path('purelib'))"
        said = subprocess.run([python, "-c", say], capture_output=True, text=True, check=True)
        libraries = Path(said.stdout.strip())
        libraries.mkdir(parents=True)
        libraries.chmod(0)
        try:
            with pytest.raises(ExternalUnitFailed) as raised:
                Sandbox(file, settings(folder, python=python))
            Sandbox(modest, settings(folder, python=python)).close()
        finally:
            libraries.chmod(0o755)
    user = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "nobody"
    assert str(raised.value) == (
        "units.py cannot be loaded: ModuleNotFoundError: No module named 'no_such_library'. "
        f"user {user} cannot read {libraries}, for {libraries} is "
        f"closed to it. {remedies.UNREADABLE_PYTHON}"
    )


def test_a_file_that_never_loads_ends_by_the_clock():
    with directory() as folder:
        path = write(folder, "loops.py", "while True: pass")
        with pytest.raises(ExternalUnitFailed, match="in time"):
            Sandbox(path, settings(folder, load_timeout_s=1.0))


def test_what_a_file_prints_while_it_is_loaded_is_no_answer():
    with sandboxes('print("loading", end="")\n' + textwrap.dedent(GOOD)) as made:
        assert ask(made, "Good") == OK


# What a call, or a worker, leaves behind


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
    from scheduler_worker.backends.sandbox.process import RUNNER, Sandbox
    from tests.support.sandboxes import settings

    file = Path(sys.argv[1])
    sandbox = Sandbox(file, settings(file.parent))
    print("loaded", flush=True)
    threading.Event().wait()
"""


def test_a_sandbox_leaves_no_folder_behind_when_the_worker_is_killed(nothing_is_left):
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
        eventually(lambda: processes_of(nothing_is_left) == [])
