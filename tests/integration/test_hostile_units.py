"""Hostile code in cages: it fails alone and in time, and leaves no process and no file."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest

from scheduler_worker.backends.cage.process import Cage
from scheduler_worker.errors import ExternalUnitFailed
from scheduler_worker.scheduling.external.contract import read_filter
from scheduler_worker.scheduling.external.units import PluginCall
from tests.support.cages import HOSTS, cages, directory, settings, write
from tests.support.descriptors import many_descriptors

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


def test_the_processes_of_cages_are_those_that_must_not_be_left(nothing_is_left):
    with cages("class Good: pass"):
        assert processes_of(nothing_is_left)
        assert list(nothing_is_left.iterdir())


def ask(made, name):
    """The answer of a class, and why it failed."""
    plugin = next(
        each for file in made.refresh() for each in file.classes if each.name == name
    )  # fmt: skip
    question = PluginCall(plugin=plugin, hosts=HOSTS, vm="vm", properties={})
    return made.ask(question, read_filter), made.trouble(plugin) or ""


def tried(body, **fields):
    """Call a hostile class, then a good one of the same file; what became of both."""
    lines = "\n".join(f"            {each}" for each in body.strip().splitlines())
    text = (
        "import os, signal, socket, sys, time\nclass Hostile:\n"
        f"    def do_filter(self, hosts, vm, properties):\n{lines}\n"
    )
    with cages(text + GOOD.replace("\n    ", "\n"), **fields) as made:
        return ask(made, "Hostile"), ask(made, "Good")


OK = (frozenset(HOSTS[:2]), "")


def test_an_endless_loop_ends_by_the_clock():
    (found, why), good = tried("while True: pass", timeout_s=1.0)
    assert (found, why) == (None, "it did not answer in time")
    assert good == OK


def test_sleeping_for_ever_ends_by_the_clock():
    (found, why), _ = tried("time.sleep(3600)", timeout_s=0.5)
    assert (found, why) == (None, "it did not answer in time")


def test_a_fork_bomb_is_bounded_and_killed_whole():
    (found, why), good = tried("while True: os.fork()")
    assert found is None
    assert why.startswith("failed: ")  # all that were forked write; whose line is last is not known
    assert good == OK


def test_children_in_sessions_of_their_own_do_not_survive_a_call():
    body = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(3600)
    os._exit(0)
print(hosts)
"""
    (found, why), good = tried(body)
    assert (found, why) == (frozenset(HOSTS), "")
    assert good == OK


def test_memory_is_bounded():
    (found, why), good = tried("x = bytearray(4 * 2**30)\nprint(hosts)")
    assert found is None
    assert "MemoryError" in why
    assert good == OK


def test_output_is_bounded():
    body = "while True: sys.stdout.write('x' * 2**20)"
    (found, why), good = tried(body, max_output_bytes=2**20)
    assert (found, why) == (None, "printed more than 1048576 bytes")
    assert good == OK


def test_complaints_without_end_are_thrown_away():
    (found, why), good = tried("for _ in range(1000): sys.stderr.write('x' * 2**20)\nprint(hosts)")
    assert (found, why) == (frozenset(HOSTS), "")
    assert good == OK


def test_nothing_is_written_outside_the_private_directory():
    target = Path(tempfile.gettempdir()) / f"written-by-a-unit-{os.getpid()}"
    (found, why), good = tried(f"open({str(target)!r}, 'w')\nprint(hosts)")
    assert found is None
    assert "PermissionError" in why
    assert not target.exists()
    assert good == OK


def test_the_private_directory_is_bounded():
    body = "open('kept', 'wb').write(bytes(10))\nopen('large', 'wb').write(bytes(2**26))"
    (found, why), good = tried(body)
    assert found is None
    assert "OSError" in why or "signal 25" in why
    assert good == OK


def test_files_of_the_worker_cannot_be_read():
    (found, why), _ = tried("open('/etc/passwd')")
    assert found is None
    assert "PermissionError" in why


def test_there_is_no_network():
    (found, why), _ = tried("socket.create_connection(('127.0.0.1', 1), 5)")
    assert found is None
    assert "PermissionError" in why or "unreachable" in why


def test_killing_the_parents_is_in_vain():
    body = """
for pid in (os.getppid(), 1, -1):
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
print(hosts)
"""
    (_, _), good = tried(body)
    assert good == OK


def test_the_processes_of_the_worker_cannot_be_signalled():
    (found, why), _ = tried(f"os.kill({os.getpid()}, 0)")
    assert found is None
    assert "ProcessLookupError" in why or "PermissionError" in why


def test_ignoring_every_signal_is_in_vain():
    body = """
for each in signal.valid_signals():
    try: signal.signal(each, signal.SIG_IGN)
    except OSError: pass
while True: pass
"""
    (found, why), good = tried(body, timeout_s=1.0)
    assert (found, why) == (None, "it did not answer in time")
    assert good == OK


def test_closing_all_descriptors_is_no_answer():
    (found, why), good = tried("os.closerange(0, 100)")
    assert found is None
    assert why
    assert good == OK


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("print(['unknown'])", "none of the hosts"),
        ("print([float('nan')])", "cannot be read"),
        ("print('[' * 10000)", "cannot be read"),
        ("print('-' * 100000 + '1')", ""),
        ("print('9' * 5000)", "cannot be read"),
        ("os.write(1, bytes(range(256)))", "cannot be read"),
        ("os._exit(3)", "failed"),
        ("sys.exit('no')", "failed"),
        ("os.kill(os.getpid(), 9)", "killed by signal 9"),
        ("pass", "printed nothing"),
    ],
)
def test_nonsense_is_a_failure_of_that_class_alone(body, why):
    (found, said), good = tried(body)
    assert found is None
    assert why in said
    assert good == OK


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
READY = '{"plugins": [{"name": "Good", "kinds": {"filter": ""}}], "isolation": []}'


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
    with cages(FORGER.replace("{forged}", forged)) as made:
        found, said = ask(made, "Good")
    assert found is None
    assert why in said


def test_a_forged_declaration_makes_the_file_useless():
    with cages(FORGER.replace("{forged}", "send({'plugins': [{'name': 1}]})")) as made:
        (file,) = made.refresh()
    assert "Expected `str`" in (file.problem or "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("import os; os._exit(0)", "ended"),
        ("1/0", "ZeroDivisionError"),
        ("import no_such_module", "ModuleNotFoundError"),
    ],
)
def test_a_file_that_does_not_load_says_why(text, why):
    with cages(text) as made:
        (file,) = made.refresh()
    assert why in (file.problem or "")


def test_a_file_that_never_loads_ends_by_the_clock():
    with directory() as folder:
        path = write(folder, "loops.py", "while True: pass")
        with pytest.raises(ExternalUnitFailed, match="in time"):
            Cage(path, settings(folder, load_timeout_s=1.0))


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
        found, good = tried(body)
    assert found == OK
    assert good == OK


def test_no_variable_of_the_worker_is_handed_on(monkeypatch):
    monkeypatch.setenv("OS_SECRET", "hidden")
    (found, why), _ = tried("raise KeyError(str('OS_SECRET' in os.environ))")
    assert (found, why) == (None, "failed: KeyError: 'False'")
