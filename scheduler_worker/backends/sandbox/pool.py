"""Warm sandboxes for each file, and what happens when one of them fails."""

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from queue import Empty, LifoQueue
from typing import NamedTuple, TypeVar
from weakref import WeakSet

import msgspec

from scheduler_worker import events
from scheduler_worker.backends.sandbox.process import Sandbox, SandboxBroken, unprivileged
from scheduler_worker.backends.sandbox.settings import SandboxSettings, Wall
from scheduler_worker.errors import ExternalUnitFailed
from scheduler_worker.observer import Observer
from scheduler_worker.scheduling.catalogue import UnitKind, unit_id
from scheduler_worker.scheduling.external.contract import PluginClass, PluginFile, plugin_classes
from scheduler_worker.scheduling.external.units import PluginCall, Plugins

T = TypeVar("T")
Signature = tuple[int, int, int]
"""Of a file: when it or its rights changed in ns, its size, its inode."""

LOG = logging.getLogger(__name__)

_NAME = re.compile(r"[^\W\d]\w*")
_MAKE_NAMES = {"globals", "locals", "vars", "exec", "eval", "setattr", "modules", "__dict__"}
"""With one of these a file may have a class whose name is not in its text."""
_IMPORTS_ALL = re.compile(r"\bimport\s*\(?\s*\*")
LOGGED_EVERY_S = 60.0
"""A class that goes on failing is logged so often."""
_LONGEST_REST_S = 30.0


class _Loaded(NamedTuple):
    signature: Signature | None
    """None: the file is gone."""
    file: PluginFile


class _Pool:
    """The sandboxes of one file; None stands for one that is to be started, an error for one that
    could not be. Sandboxes are started and closed in threads of their own: a call never pays for
    it.
    """

    def __init__(
        self, path: Path, signature: Signature, settings: SandboxSettings, first: Sandbox
    ) -> None:
        self._path = path
        self._signature = signature
        self._settings = settings
        self._free: LifoQueue[Sandbox | ExternalUnitFailed | None] = LifoQueue()
        for sandbox in (*[None] * (settings.processes - 1), first):
            self._free.put(sandbox)
        self._starting: WeakSet[threading.Thread] = WeakSet()
        """A thread leaves it when it ends."""
        self._killed = 0
        """How many calls in a row ended with their sandbox."""
        self._rests_until_s = 0.0
        self._is_closed = False

    def call(self, question: PluginCall) -> object:
        """Raises ExternalUnitFailed."""
        now_s, timeout_s = time.monotonic(), self._settings.timeout_s
        if now_s < self._rests_until_s:
            raise ExternalUnitFailed("it is not called for a while: its process was killed again")
        until_s = min(now_s + timeout_s, question.asking.until_s)
        # At least half of the time is the call's: its process would be killed for our waiting, or
        # for what other units took.
        call_by_s = until_s - timeout_s / 2
        if call_by_s < now_s:
            raise ExternalUnitFailed("other units left it no time")
        sandbox = self._taken(call_by_s)
        is_broken = True
        try:
            named = {"plugin": question.plugin.name, "kind": question.plugin.kind}
            asked = msgspec.structs.asdict(question) | named
            del asked["asking"]  # ours
            answer = sandbox.call(asked, until_s - time.monotonic())
            is_broken = False
        except ExternalUnitFailed as error:
            is_broken = isinstance(error, SandboxBroken)
            raise
        finally:
            if is_broken:
                self._rest()
                self._replace(sandbox)
            else:
                self._killed = 0
                self._put(sandbox)
        return answer

    def _taken(self, until_s: float) -> Sandbox:
        """A sandbox for the caller alone. Raises ExternalUnitFailed where there is none in time."""
        while True:
            try:
                entry = self._free.get(timeout=max(0.0, until_s - time.monotonic()))
            except Empty:
                raise ExternalUnitFailed("none of its processes is free") from None
            if isinstance(entry, Sandbox):
                return entry
            if entry is not None:
                self._put(None)
                self._rest()
                raise entry
            self._replace(None)

    def _rest(self) -> None:
        self._killed += 1
        if self._killed > 1:
            rest_s = self._settings.rest_s * 2 ** min(self._killed - 2, 10)
            self._rests_until_s = time.monotonic() + min(rest_s, _LONGEST_REST_S)

    def _replace(self, sandbox: Sandbox | None) -> None:
        """Close a sandbox and put another in its place, without the caller."""

        def replace() -> None:
            _close(sandbox)
            try:
                self._put(self._started())
            except (ExternalUnitFailed, OSError) as error:
                self._put(ExternalUnitFailed(str(error)))

        starting = threading.Thread(target=replace, name="unit-start", daemon=True)
        starting.start()
        self._starting.add(starting)

    def _started(self) -> Sandbox:
        if signature_of(self._path) == self._signature:
            sandbox = Sandbox(self._path, self._settings)
            if signature_of(self._path) == self._signature:
                return sandbox
            sandbox.close()
        raise ExternalUnitFailed(f"{self._path} has changed and is not read again yet")

    def _put(self, sandbox: Sandbox | ExternalUnitFailed | None) -> None:
        self._free.put(sandbox)
        if self._is_closed:
            self._close_free()

    def close(self) -> None:
        """End the sandboxes that are free or being started; one that is busy ends with its call."""
        self._is_closed = True
        self._close_free()
        for thread in tuple(self._starting):
            thread.join(self._settings.load_timeout_s)

    def _close_free(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                if isinstance(sandbox := self._free.get_nowait(), Sandbox):
                    sandbox.close()


class Sandboxes(Plugins):
    """All files of the directory, each in sandboxes of its own; thread-safe."""

    def __init__(
        self,
        settings: SandboxSettings,
        observer: Observer | None = None,
        units: Collection[str] | None = None,
    ) -> None:
        """``units`` are names or ids: files that can have none of them are not loaded; None: all
        files are.

        Raises ConfigError for a user that code of others must not run as.
        """
        unprivileged(settings.user)
        self.on_failure = settings.on_failure
        self._settings = settings
        self._observer = observer or Observer()
        self._units = units
        self._guard = threading.Lock()
        self._files: dict[Path, _Loaded] = {}
        self._pools: dict[str, _Pool] = {}
        self._troubles: dict[tuple[str, ...], str] = {}
        self._logged: dict[tuple[str, ...], tuple[float, int]] = {}
        """When a class was logged last, and how many failures were not logged since."""

    def refresh(self) -> list[PluginFile]:
        """Load new and changed files, and end the sandboxes of files that are gone; all files.

        One that cannot be loaded any more keeps the classes that it had, all calls of which fail:
        policies that use them remain valid.
        """
        with self._guard:
            signatures = {path: signature_of(path) for path in self._paths()}
            for path in self._files.keys() - signatures.keys():
                self._broken(path, None, "the file is gone")
            for path, signature in signatures.items():
                known = self._files.get(path)
                if signature is not None and (known is None or known.signature != signature):
                    self._load(path, signature)
            return [self._files[path].file for path in sorted(self._files)]

    @property
    def alarms(self) -> list[str]:
        """Why files are not loaded; does not wait for one that is being loaded."""
        files = (loaded.file for _, loaded in sorted(self._files.copy().items()))
        return [f"{file.name}: {file.problem}" for file in files if file.problem]

    def has_changed(self) -> bool:
        """Whether :meth:`refresh` would find a file that is new, changed or gone; quick."""
        with self._guard:
            known = {path: file.signature for path, file in self._files.items()}
        now = {path: signature_of(path) for path in self._paths()}
        return any(now.get(path) != known.get(path) for path in now.keys() | known.keys())

    def _paths(self) -> list[Path]:
        try:
            paths = _files(self._settings.directory)
        except OSError as error:
            LOG.error("[external_units] directory cannot be read: %s", error)  # noqa: TRY400
            return []
        return [path for path in paths if self._units is None or _may_have(path, self._units)]

    def _load(self, path: Path, signature: Signature) -> None:
        sandbox = None
        try:
            sandbox = Sandbox(path, self._settings)
            classes = plugin_classes(path.name, sandbox.plugins)
        except (ExternalUnitFailed, ValueError) as error:
            _close(sandbox)
            self._broken(path, signature, str(error))
            return
        self._end(path)
        file = PluginFile(name=path.name, classes=tuple(classes))
        self._files[path] = _Loaded(signature, file)
        self._pools[path.name] = _Pool(path, signature, self._settings, sandbox)
        LOG.info("%s runs confined by %s", path.name, ", ".join(sandbox.isolation) or "limits")
        if sandbox.refused:
            lacking = ", ".join(f"{wall} ({why})" for wall, why in sorted(sandbox.refused.items()))
            LOG.warning("The sandbox of %s lacks %s", path.name, lacking)
        self._observer.count(events.UNIT_FILES, path.name, "+".join(sandbox.isolation) or "limits")

    def _broken(self, path: Path, signature: Signature | None, problem: str) -> None:
        self._end(path)
        before = self._files.get(path)
        if before is None or before.file.problem != problem:
            LOG.warning("%s is left out: %s", path, problem)
        classes = before.file.classes if before else ()
        file = PluginFile(name=path.name, classes=classes, problem=problem)
        self._files[path] = _Loaded(signature, file)

    def _end(self, path: Path) -> None:
        if (pool := self._pools.pop(path.name, None)) is not None:
            pool.close()

    def close(self) -> None:
        """End all sandboxes."""
        with self._guard:
            for path in self._files:
                self._end(path)

    # Calls

    def ask(self, question: PluginCall, read: Callable[[object, Collection[str]], T]) -> T | None:
        plugin, began_s = question.plugin, time.monotonic()
        try:
            pool = self._pools.get(plugin.file)
            if pool is None:
                raise ExternalUnitFailed(f"there is no file {plugin.file} that can be loaded")
            answer = pool.call(question)
            try:
                value = read(answer, question.hosts)
            except ValueError as error:
                raise ExternalUnitFailed(f"its answer is useless: {error}") from None
        except ExternalUnitFailed as error:
            if began_s + self._settings.timeout_s > question.asking.until_s:
                question.asking.has_run_out = True
            self._failed(plugin, str(error))
            self._observer.count(events.UNIT_CALLS, plugin.name, self.fallback(plugin).result)
            return None
        finally:
            self._observer.time(events.UNIT_TIME, time.monotonic() - began_s)
        self._troubles.pop(plugin.key, None)
        self._observer.count(events.UNIT_CALLS, plugin.name, "ok")
        return value

    def trouble(self, plugin: PluginClass) -> str | None:
        return self._troubles.get(plugin.key)

    def _failed(self, plugin: PluginClass, why: str) -> None:
        self._troubles[plugin.key] = why
        now_s = time.monotonic()
        at_s, unsaid = self._logged.get(plugin.key, (float("-inf"), 0))
        if now_s - at_s < LOGGED_EVERY_S:
            self._logged[plugin.key] = at_s, unsaid + 1
            return
        self._logged[plugin.key] = now_s, 0
        more = f" ({unsaid} more failures since the last message)" if unsaid else ""
        done = self.fallback(plugin).words
        LOG.warning("External %s %s failed, %s: %s%s", plugin.kind, plugin.name, done, why, more)


def refused_walls(settings: SandboxSettings) -> Mapping[Wall, str]:
    """The walls that a sandbox does not have here, and why; it loads no file.

    Raises ExternalUnitFailed: no file would be loaded, or the user cannot read one; OSError: the
    directory cannot be read.
    """
    sandbox = Sandbox(None, settings, _files(settings.directory))
    sandbox.close()
    if sandbox.closed:
        raise ExternalUnitFailed(sandbox.closed)
    return sandbox.refused


def _files(directory: Path) -> list[Path]:
    """Raises OSError."""
    return [path for path in directory.iterdir() if path.suffix == ".py"]


def _may_have(path: Path, units: Collection[str]) -> bool:
    """Whether one of the units may be in the file; its text is read, and nothing runs."""
    if not units:
        return False
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return True  # loading says why
    words = {path.name, *_NAME.findall(text)}
    return (
        not words.isdisjoint(_MAKE_NAMES)
        or bool(_IMPORTS_ALL.search(text))
        or not words.isdisjoint(units)
        or any(unit_id(kind, word) in units for kind in UnitKind for word in words)
    )


def signature_of(path: Path) -> Signature | None:
    """What changes with a file; None: it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ctime_ns, status.st_size, status.st_ino


def _close(sandbox: Sandbox | None) -> None:
    if sandbox is not None:
        sandbox.close()
