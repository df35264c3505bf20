"""Applies to this process what a systemd unit, or a container's seccomp profile, would refuse it.

Filters are built by libseccomp, as systemd and container runtimes do; apt depends on it. Another
view of the file system, such as of ``ProtectSystem=``, is not made: that takes root.
"""

import ctypes
import json
import os
import pwd
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

GROUPS = Path(__file__).parents[1] / "samples/systemd/syscall_groups_252.txt"
_ALLOW, _ERRNO = 0x7FFF0000, 0x50000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_EQUAL, _MASKED_EQUAL = 4, 7
_NO_NEW_PRIVS, _CAPBSET_DROP = 38, 24
_NAMESPACES = {
    "mnt": 1 << 17, "cgroup": 1 << 25, "uts": 1 << 26, "ipc": 1 << 27,
    "user": 1 << 28, "pid": 1 << 29, "net": 1 << 30,
}  # fmt: skip
_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
_WRITE, _EXECUTE, _SHM_EXECUTE = 2, 4, 0o100000
_REFUSED_BY = {
    "PrivateDevices": ("@raw-io",),
    "ProtectClock": ("@clock",),
    "ProtectHostname": ("sethostname", "setdomainname"),
    "ProtectKernelLogs": ("syslog",),
    "ProtectKernelModules": ("@module",),
}
_WITHOUT_EFFECT_HERE = {
    # What runs, when, and with which names.
    *("Type", "User", "Group", "SupplementaryGroups", "ExecStart", "ExecReload", "Restart"),
    *("RestartSec", "RestartPreventExitStatus", "TimeoutStartSec", "TimeoutStopSec"),
    *("WatchdogSec", "LimitNOFILE", "Nice", "MemoryMax", "UMask", "SystemCallErrorNumber"),
    # Another view of files.
    *("ProtectSystem", "ProtectHome", "PrivateTmp", "ProtectControlGroups", "ProtectProc"),
    *("ProtectKernelTunables", "LogsDirectory", "StateDirectory"),
    # Calls that a sandbox does not make.
    *("RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "SystemCallArchitectures"),
    "AmbientCapabilities",
}


class Argument(NamedTuple):
    """A condition on an argument of a system call; with ``mask`` on these of its bits."""

    number: int
    operator: int
    value: int
    mask: int | None = None


class _Compared(ctypes.Structure):
    _fields_ = (
        *(("number", ctypes.c_uint), ("operator", ctypes.c_int)),
        *(("first", ctypes.c_uint64), ("second", ctypes.c_uint64)),
    )


class Filter:
    """A seccomp filter, in force after :meth:`load`."""

    def __init__(self, default: int = _ALLOW) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(default)))

    def rule(self, names: Iterable[str], *arguments: Argument, action: int) -> None:
        """Calls that this machine does not have are left out."""
        compared = (_Compared * len(arguments))(*map(_compared, arguments))
        for name in names:
            number = self._library.seccomp_syscall_resolve_name(name.encode())
            if number >= 0:
                failed = self._library.seccomp_rule_add_array(
                    self._context, ctypes.c_uint32(action), number, len(arguments), compared
                )
                assert not failed, (name, failed)

    def refuse(self, name: str, *arguments: Argument, errno: int = _EPERM) -> None:
        self.rule([name], *arguments, action=_ERRNO | errno)

    def load(self) -> None:
        failed = self._library.seccomp_load(self._context)
        assert not failed, failed


def _compared(argument: Argument) -> _Compared:
    number, operator, value, mask = argument
    return _Compared(number, operator, *((value, 0) if mask is None else (mask, value)))


def groups() -> dict[str, list[str]]:
    """The groups of system calls of systemd 252."""
    lines = (line.split() for line in GROUPS.read_text().splitlines() if line[0] == "@")
    return {name: members for name, *members in lines}


def directives(unit: Path) -> dict[str, list[str]]:
    """The settings of ``[Service]``, each with its values in the order of the file."""
    _, _, service = unit.read_text().partition("\n[Service]\n")
    found: dict[str, list[str]] = {}
    for line in service.partition("\n[")[0].splitlines():
        name, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def by_unit(unit: Path) -> None:
    """Confine this process as systemd 252 would for the unit; root becomes nobody."""
    found = directives(unit)
    unknown = found.keys() - _APPLIED.keys() - _REFUSED_BY.keys() - _WITHOUT_EFFECT_HERE
    assert not unknown, f"it is not known what {unknown} do to a sandbox"
    _without_capabilities()
    libc = ctypes.CDLL(None)
    assert not libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)  # without it a user may load no filter
    for name, calls in _REFUSED_BY.items():
        if found.get(name) == ["yes"]:
            refused = Filter()
            refused.rule(_members(calls), action=_ERRNO | _EPERM)
            refused.load()
    for name, apply in _APPLIED.items():
        if name in found:
            apply(" ".join(found[name]).split())


def by_profile(profile: Path) -> None:
    """Confine this process as a container runtime would, without capabilities."""
    _without_capabilities()
    actions = {"SCMP_ACT_ALLOW": _ALLOW, "SCMP_ACT_ERRNO": _ERRNO | _EPERM}
    read = json.loads(profile.read_text())
    made = Filter(actions[read["defaultAction"]])
    for rule in read["syscalls"]:
        assert rule.keys() == {"names", "action"}
        made.rule(rule["names"], action=actions[rule["action"]])
    made.load()


def _without_capabilities() -> None:
    if os.geteuid() == 0:
        libc, nobody = ctypes.CDLL(None), pwd.getpwnam("nobody")
        for capability in range(64):
            libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
        os.setgroups([])
        os.setresgid(*[nobody.pw_gid] * 3)
        os.setresuid(*[nobody.pw_uid] * 3)
        libc.prctl(4, 1, 0, 0, 0)  # dumpable again, as a program that was begun by that user


def _members(names: Iterable[str]) -> list[str]:
    known = groups()
    return [member for name in names for member in known.get(name, [name])]


def _calls(words: list[str]) -> None:
    made = Filter(_ERRNO | _EPERM)
    made.rule(dict.fromkeys(_members(words)), action=_ALLOW)
    made.load()


def _namespaces(words: list[str]) -> None:
    made = Filter()
    made.refuse("clone3", errno=_ENOSYS)  # its flags are in memory
    retained = {} if words == ["yes"] else dict.fromkeys(words)
    of_any = [] if not retained else [Argument(1, _EQUAL, 0)]
    made.refuse("setns", *of_any)
    for name, flag in _NAMESPACES.items():
        if name not in retained:
            made.refuse("unshare", Argument(0, _MASKED_EQUAL, flag, flag))
            made.refuse("clone", Argument(0, _MASKED_EQUAL, flag, flag))
            if retained:
                made.refuse("setns", Argument(1, _MASKED_EQUAL, flag, flag))
    made.load()


def _families(words: list[str]) -> None:
    made = Filter(_ALLOW)
    others = sorted(set(range(45)) - {_FAMILIES[word] for word in words})
    for family in others:
        made.refuse("socket", Argument(0, _EQUAL, family), errno=_EAFNOSUPPORT)
    made.load()


def _no_new_code(words: list[str]) -> None:
    if words == ["yes"]:
        made, both = Filter(), _WRITE | _EXECUTE
        made.refuse("mmap", Argument(2, _MASKED_EQUAL, both, both))
        for name in ("mprotect", "pkey_mprotect"):
            made.refuse(name, Argument(2, _MASKED_EQUAL, _EXECUTE, _EXECUTE))
        made.refuse("shmat", Argument(2, _MASKED_EQUAL, _SHM_EXECUTE, _SHM_EXECUTE))
        made.load()


def _only_none(words: list[str]) -> None:
    assert not words, "capabilities are dropped, whatever the unit keeps"


_APPLIED: Mapping[str, Callable[[list[str]], None]] = {
    "NoNewPrivileges": lambda _: None,  # set for every unit
    "CapabilityBoundingSet": _only_none,
    "RestrictNamespaces": _namespaces,
    "RestrictAddressFamilies": _families,
    "MemoryDenyWriteExecute": _no_new_code,
    "SystemCallFilter": _calls,  # the last: it may refuse to load another one
}
