"""Runs the classes of one file in a sandbox. A script of its own: ``python -I -B runner.py
SETTINGS``.

It needs the standard library of Python 3.9 or later, so any interpreter may run it; a file with
units of the worker's own form needs one that has the worker installed. It consists of three
processes, each the child of the one before:

* the *keeper* is trusted. It isolates, waits until the worker closes the lifeline (or dies), and
  then kills all that is below it and removes what that wrote.
* the *server* is confined, loads the file, and answers the worker's calls on a socket.
* a *call* is a fork of the server, made for one call. What it prints is the answer, as a Python
  literal. It has no descriptor but its output, and with it ends all that it has started.

The lifeline comes as standard input and the socket as standard output, so both have low numbers
however many descriptors the worker has: select() and the limit on files need that. A frame on the
socket is its length in four bytes, then JSON.
"""

# For Python 3.9, and for units that import it too: they may not read the standard library.
from __future__ import annotations

import ast
import contextlib
import ctypes
import errno
import gc
import importlib
import json
import os
import re
import resource
import select
import signal
import socket
import struct
import sys
import traceback
import types
from typing import Any

METHODS = {"filter": "do_filter", "weight": "do_score", "balance": "do_balance"}
_LIBC = ctypes.CDLL(None, use_errno=True)
_PDEATHSIG, _DUMPABLE, _SECCOMP, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 22, 36, 38
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_TEMPORARY_BYTES, _FILES, _ERROR_CHARS = 16 * 2**20, 64, 500
_READABLE = (
    *("/usr", "/lib", "/lib64", "/bin", "/etc/ssl", "/etc/pki", "/etc/resolv.conf", "/etc/hosts"),
    *("/etc/nsswitch.conf", "/etc/localtime", "/etc/ld.so.cache", "/dev/urandom", "/dev/random"),
    *("/dev/zero", "/dev/null"),
)
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""What seccomp calls the architectures for which the numbers below are, in their order."""
_REFUSED = {
    # Memory that no limit of a process counts, some of which outlives the process.
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "vmsplice": (278, 75), "io_uring_setup": (425, 425), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    # Namespaces and mounts of the unit's own, in which it would be root.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
}  # fmt: skip
"""System calls that a unit may not make: their numbers on each architecture."""
_SOCKETS = {"socket": (41, 198), "socketpair": (53, 199)}
_CLONE, _CLONE3 = (56, 220), 435
_NEW_NAMESPACES = 0x7E020000
"""The flags of clone for namespaces."""


def main(text: str) -> None:
    """Be the keeper, until the worker lets go or the server ends."""
    settings = json.loads(text)
    lifeline, calls = _moved(0), _moved(1)
    os.umask(0o077)
    _prctl(_SUBREAPER, 1)
    # The keeper may be root, which can follow links that the unit's user cannot.
    reads = (*sys.path, *settings["reads"])
    paths = [os.path.realpath(path) for path in reads if os.path.exists(path)]  # noqa: PTH110
    refused = _isolate(settings)
    server = os.fork()
    if server == 0:
        try:
            os.close(lifeline)
            _serve(settings, paths, refused, calls)
        finally:
            os._exit(1)
    os.close(calls)
    ended = os.pidfd_open(server)
    select.select([lifeline, ended], [], [])
    _kill_children(server)
    import shutil  # not in the server, which would have it for each unit

    # The private folder is removed here, for the worker may have been killed.
    _LIBC.umount2(settings["folder"].encode(), 2)  # detached, for it is our working directory
    shutil.rmtree(settings["folder"], ignore_errors=True)


def _moved(standard: int) -> int:
    """The number of a standard descriptor now; /dev/null is in its place."""
    moved, nothing = os.dup(standard), os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, standard)
    os.close(nothing)
    return moved


# The keeper


def _isolate(settings: dict[str, Any]) -> dict[str, str]:
    """Enter namespaces of our own; for each one that the kernel refuses, why."""
    namespaces = {"processes": _NEWPID, "files": _NEWNS, "ipc": _NEWIPC}
    if not settings["network"]:
        namespaces["network"] = _NEWNET
    user, group = os.geteuid(), os.getegid()
    flags = sum(namespaces.values()) | (_NEWUSER if user else 0)
    if _LIBC.unshare(flags):
        return dict.fromkeys(namespaces, _reason("unshare"))
    if user:
        _map_user(user, group)
    owner = (user, group) if settings["user"] is None else settings["user"]
    # A file system of its own bounds what it can write; without one each file is bounded.
    failed = _mount(None, "/", None, 0x4000 | 0x40000, None) or _mount(  # MS_REC, MS_PRIVATE
        "sandbox",
        settings["folder"],
        "tmpfs",
        2 | 4 | 8,  # MS_NOSUID, MS_NODEV, MS_NOEXEC
        f"size={_TEMPORARY_BYTES},nr_inodes=1000,mode=0700,uid={owner[0]},gid={owner[1]}",
    )
    refused = {"files": _reason("mount")} if failed else {}
    os.chdir(settings["folder"])
    return refused


def _reason(call: str) -> str:
    return f"{call}: {os.strerror(ctypes.get_errno())}"


def _map_user(user: int, group: int) -> None:
    """Be the same user in the new namespace; without this only names of users would be wrong."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with contextlib.suppress(OSError), open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None
) -> int:
    names = [text and text.encode() for text in (source, target, kind)]
    return int(_LIBC.mount(*names, ctypes.c_ulong(flags), options and options.encode()))


def _kill_children(server: int) -> None:
    """Kill the server and what it leaves: orphans become our children, one layer after another."""
    pids = [server]
    while pids:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
        pids = _children()


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


# The server: its confinement


def _serve(
    settings: dict[str, Any], paths: list[str], refused: dict[str, str], to_worker: int
) -> None:
    calls = socket.socket(fileno=to_worker)
    _confine(settings, refused)
    found = {"refused": refused, "closed": _closed(paths)}
    if refused.keys() & set(settings["required"]):
        _send(calls, found)
        return
    try:
        classes = _load(settings) if settings["file"] else {}
        plugins = [_described(name, plugin) for name, plugin in classes.items()]
        sys.stdout.flush()  # to /dev/null: what the file printed until now is no answer
    except BaseException as error:  # whatever the file raises, SystemExit too
        _send(calls, {**found, "error": _brief(error)})
        return
    gc.freeze()  # so that a collection in a call does not touch, and so copy, what it inherits
    _send(calls, {**found, "plugins": plugins})
    alone = "processes" not in refused
    while (asked := _receive(calls)) is not None:
        reply = _answered(classes, asked, settings["output_bytes"], alone=alone)
        _send(calls, {"nonce": asked["nonce"], **reply})


def _confine(settings: dict[str, Any], refused: dict[str, str]) -> None:
    """Give up what this process may do; adds the walls that the kernel refuses to ``refused``."""
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if settings["user"] is not None:
        user, group = settings["user"]
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
        if _LIBC.unshare(_NEWUSER) == 0:  # so that only our own processes are counted
            _map_user(user, group)
        _prctl(_PDEATHSIG, signal.SIGKILL)  # a change of the user has cleared it
    _prctl(_DUMPABLE, 0)
    _prctl(_NO_NEW_PRIVS, 1)
    if "processes" not in refused or settings["user"] is not None:
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
        _LIBC.capset(header, (ctypes.c_uint32 * 6)())  # drops all capabilities
    for wall, build in (("landlock", _landlock), ("seccomp", _refuse_calls)):
        if (reason := build(settings)) is not None:
            refused[wall] = reason
    _limit(settings)


def _closed(paths: list[str]) -> tuple[str, str] | None:
    """The first path that this user may not read, and the first part of it that is in the way."""
    for path in paths:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            part = "/".join(parts[:end])
            reading = os.R_OK if part == path else 0
            if not os.access(part, reading | (os.X_OK if os.path.isdir(part) else 0)):  # noqa: PTH112
                return path, part
    return None


def _prctl(option: int, value: int) -> None:
    _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _limit(settings: dict[str, Any]) -> None:
    _bound(resource.RLIMIT_AS, settings["memory_bytes"])
    _bound(resource.RLIMIT_NOFILE, _FILES)
    _bound(resource.RLIMIT_NPROC, settings["processes"])
    _bound(resource.RLIMIT_FSIZE, _TEMPORARY_BYTES)
    _bound(resource.RLIMIT_CORE, 0)


def _bound(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (bound, bound))


def _landlock(settings: dict[str, Any]) -> str | None:
    """Permit to read programs and libraries, to write the private folder; why it failed."""
    abi = _LIBC.syscall(444, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return _reason("landlock_create_ruleset")
    # Version 1 has 13 rights to files; 2 adds REFER, 3 TRUNCATE, 4 TCP, 5 IOCTL_DEV, 6 scopes.
    rights = (1 << (13 + (abi >= 2) + (abi >= 3))) - 1 | (1 << 15) * (abi >= 5)
    network = 0 if settings["network"] or abi < 4 else 3
    words = [rights] + [network] * (abi >= 4) + [3] * (abi >= 6)
    ruleset = (ctypes.c_uint64 * len(words))(*words)
    made = _LIBC.syscall(444, ruleset, ctypes.c_size_t(8 * len(words)), 0)
    if made < 0:
        return _reason("landlock_create_ruleset")
    reading, of_files = 1 | 4 | 8, 1 | 2 | 4 | (abi >= 3) << 14 | (abi >= 5) << 15
    own = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path, settings["directory"]}
    own.add(os.path.abspath(__file__ + "/../../.."))  # noqa: PTH100 - the worker's package
    allowed = [(path, reading) for path in (*_READABLE, *own)]
    allowed += [(settings["folder"], rights), ("/dev/null", 1 << 1 | 1 << 2)]
    for path, granted in allowed:
        try:
            at = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        kept = granted if os.path.isdir(path) else granted & of_files  # noqa: PTH112
        rule = ctypes.create_string_buffer(struct.pack("=Qi", kept, at))
        _LIBC.syscall(445, made, 1, rule, 0)
        os.close(at)
    failed = _LIBC.syscall(446, made, 0)
    reason = _reason("landlock_restrict_self") if failed else None
    os.close(made)
    return reason


def _refuse_calls(settings: dict[str, Any]) -> str | None:
    """Refuse system calls that the other walls and limits do not cover; why it failed."""
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        return f"its system calls are unknown on {machine}"
    column = list(_ARCHITECTURES).index(machine)
    calls = {**_REFUSED, **({} if settings["network"] else _SOCKETS)}
    load, equal, above, any_of, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    permit, deny, no_such_call = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    steps = [
        *((load, 0, 0, 4), (equal, 1, 0, _ARCHITECTURES[machine]), (answer, 0, 0, deny)),
        *((load, 0, 0, 0), (above, 0, 1, 1 << 30), (answer, 0, 0, deny)),  # the x32 ABI
        *(step for numbers in calls.values()
          for step in ((equal, 0, 1, numbers[column]), (answer, 0, 0, deny))),
        # Its flags are in memory, which no filter reads. The C library then calls clone.
        *((equal, 0, 1, _CLONE3), (answer, 0, 0, no_such_call)),
        *((equal, 0, 3, _CLONE[column]), (load, 0, 0, 16), (any_of, 0, 1, _NEW_NAMESPACES)),
        *((answer, 0, 0, deny), (answer, 0, 0, permit)),
    ]  # fmt: skip
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    filtering = struct.pack("=H6xQ", len(steps), ctypes.addressof(program))
    return _reason("prctl") if _LIBC.prctl(_SECCOMP, ctypes.c_ulong(2), filtering, 0, 0) else None


# The server: the file and its calls


def _load(settings: dict[str, Any]) -> dict[str, type]:
    """The classes of the file that have one of the methods, by name; imported classes too."""
    path = settings["file"]
    with open(path, "rb") as file:  # noqa: PTH123
        source = file.read()
    sys.dont_write_bytecode = True
    sys.path.insert(0, settings["directory"])
    name = os.path.basename(path)[:-3]  # noqa: PTH119
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    exec(compile(source, path, "exec"), module.__dict__)  # noqa: S102 - that is what it is for
    members = sorted(vars(module).items())
    return {name: unit for name, unit in members if isinstance(unit, type) and _kinds(unit)}


def _own_form(plugin: type) -> Any:
    """What runs a class of the worker's own form; None: its form is oVirt's."""
    if "scheduler_worker.scheduling.plugin" not in sys.modules:
        return None
    sandboxed = importlib.import_module("scheduler_worker.scheduling.external.sandboxed")
    return sandboxed if sandboxed.is_unit(plugin) else None


def _kinds(plugin: type) -> list[str]:
    if (own := _own_form(plugin)) is not None:
        return list(own.kinds(plugin))
    return [kind for kind, name in METHODS.items() if callable(getattr(plugin, name, None))]


def _described(name: str, plugin: type) -> dict[str, Any]:
    facts = {"name": name, "on_failure": str(getattr(plugin, "on_failure", None) or "")}
    if (own := _own_form(plugin)) is not None:
        kinds = dict.fromkeys(_kinds(plugin), str(plugin.__doc__ or "").partition("\n\n")[0])
        return {**facts, "kinds": kinds, "own": own.described(plugin)}
    kinds = {kind: str(getattr(plugin, METHODS[kind]).__doc__ or "") for kind in _kinds(plugin)}
    validation = str(getattr(plugin, "properties_validation", "") or "")
    return {**facts, "kinds": kinds, "validation": validation}


def _answered(
    classes: dict[str, type], asked: dict[str, Any], most: int, *, alone: bool
) -> dict[str, Any]:
    """Make one call; ``answer``, or ``error`` in a few words."""
    answer, output = os.pipe()
    complaints, errors = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            status = _call(classes, asked, output, errors)
        except BaseException:  # whatever happens, this process ends here
            status = 1
        os._exit(status)
    os.close(output)
    os.close(errors)
    try:
        printed, said = _read_all(pid, answer, complaints, most)
    finally:
        os.close(answer)
        os.close(complaints)
        status = _end(pid, alone=alone)
    if printed is None:
        return {"error": f"printed more than {most} bytes"}
    if status:
        return {"error": _failure(status, said)}
    text, is_own = printed.decode(errors="replace"), _own_form(classes[asked["plugin"]])
    try:
        return {"answer": _plain(json.loads(text) if is_own else read_printed(text, asked["kind"]))}
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        return {"error": f"what it printed cannot be read: {_brief(error)}"}


def _end(pid: int, *, alone: bool) -> int:
    """Kill a call and what it has started; the call's status."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # The first process of a namespace signals all others; else it is the group of the call.
        os.kill(-1 if alone else -pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(ChildProcessError):
        while alone:
            os.waitpid(-1, 0)
    return status


def _failure(status: int, said: bytes) -> str:
    last = said.decode(errors="replace").strip().rpartition("\n")[2]
    how = f"was killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "failed"
    return (f"{how}: {last}" if last else how)[:_ERROR_CHARS]


def _call(classes: dict[str, type], asked: dict[str, Any], output: int, errors: int) -> int:
    """In a process of its own: call the method, which prints its answer."""
    os.setpgid(0, 0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.closerange(3, _FILES)
    _bound(resource.RLIMIT_CPU, asked["cpu_s"])  # of this process; the server's grows for ever
    try:
        plugin = classes[asked["plugin"]]
        if (own := _own_form(plugin)) is not None:
            with contextlib.redirect_stdout(sys.stderr):
                answer = own.answer(plugin, asked)
            sys.stdout.write(json.dumps(answer))
        else:
            method = getattr(plugin(), METHODS[asked["kind"]])
            of_vm = [] if asked["kind"] == "balance" else [asked["vm"]]
            method(asked["hosts"], *of_vm, asked["properties"])
    except SystemExit as error:
        return int(bool(error.code))
    except BaseException:
        traceback.print_exc()
        return 1
    sys.stdout.flush()
    return 0


def _read_all(pid: int, answer: int, complaints: int, most: int) -> tuple[bytes | None, bytes]:
    """What the call printed, and the end of its complaints; None: it printed too much."""
    ended = os.pidfd_open(pid)
    kept = {answer: b"", complaints: b""}
    os.set_blocking(answer, False)
    os.set_blocking(complaints, False)
    pipes, is_running = {answer, complaints}, True
    try:
        while pipes and is_running:
            ready = select.select([ended, *pipes], [], [])[0]
            is_running = ended not in ready
            for at in tuple(pipes):
                while (more := _available(at)) and len(kept[answer]) <= most:
                    kept[at] += more
                    kept[complaints] = kept[complaints][-4096:]
                if more == b"":
                    pipes.discard(at)
            if len(kept[answer]) > most:
                return None, b""
    finally:
        os.close(ended)
    return kept[answer], kept[complaints]


def _available(at: int) -> bytes | None:
    """What can be read; None: nothing yet, empty: never again."""
    try:
        return os.read(at, 65536)
    except BlockingIOError:
        return None


# What is printed, and the frames


def read_printed(text: str, kind: str) -> Any:
    """The Python literal that was printed; the last line alone where more was printed before it.

    A balance may print its two items without a comma between them, the first without quotes.

    Raises ValueError, SyntaxError: nothing there is a literal.
    """
    text = text.strip()
    if not text:
        raise ValueError("it printed nothing")
    last = text.rpartition("\n")[2].strip()
    for candidate in (text, last):
        with contextlib.suppress(ValueError, SyntaxError):
            return _literal(candidate)
    two = re.fullmatch(r"([\w.:-]*)\s+(\[.*\])", last) if kind == "balance" else None
    if two is None:
        if re.search(r"[\s,(\[-](nan|inf)\b", last):
            raise ValueError("a score is nan or inf, and must be a finite number")
        return ast.literal_eval(last)
    return two.group(1), ast.literal_eval(two.group(2))


def _literal(text: str) -> Any:
    """The value of a literal; plain lists of ids and numbers are read as JSON, which is quick."""
    quoted = re.sub(r"'([\w.:-]*)'", r'"\1"', text)
    if not re.search(r"['\\]|\([^(),]*\)", quoted):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(quoted.replace("(", "[").replace(")", "]"))
    return ast.literal_eval(text)


def _plain(value: Any) -> Any:
    """The value as JSON has it, which excludes NaN. Raises ValueError for another type."""
    try:
        json.dumps(value, allow_nan=False)
    except TypeError as error:
        if isinstance(value, (set, frozenset)):
            return sorted(value)
        raise ValueError(str(error)) from None
    return value


def _brief(error: BaseException) -> str:
    return traceback.format_exception_only(type(error), error)[-1].strip()[:_ERROR_CHARS]


def _send(calls: socket.socket, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    calls.sendall(struct.pack(">I", len(body)) + body)


def _receive(calls: socket.socket) -> dict[str, Any] | None:
    """The next call; None: the worker has closed the socket."""
    header = calls.recv(4, socket.MSG_WAITALL)
    size = struct.unpack(">I", header)[0] if len(header) == 4 else 0
    body = calls.recv(size, socket.MSG_WAITALL)
    return json.loads(body) if body and len(body) == size else None


if __name__ == "__main__":
    main(sys.argv[1])
