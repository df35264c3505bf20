"""Files that are read again when they have changed, while the API serves."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from scheduler_worker.errors import ConfigError

T = TypeVar("T")


class RereadFile(Generic[T]):
    """What ``read`` makes of the file now; a file that it refuses changes nothing."""

    def __init__(
        self, path: Path, read: Callable[[Path], T], report: Callable[[str], None]
    ) -> None:
        """Raises ConfigError where ``read`` does."""
        self._path = path
        self._read = read
        self._report = report
        self._seen = self._stamp()
        self._current = read(path)

    def current(self) -> T:
        """Read the file if it has changed, and return what is in force."""
        if (stamp := self._stamp()) != self._seen:
            self._seen = stamp
            try:
                self._current = self._read(self._path)
            except ConfigError as error:
                self._report(f"{error}; what was read before stays in force")
        return self._current

    def _stamp(self) -> tuple[int, ...]:
        try:
            stat = self._path.stat()
        except OSError:
            return ()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size
