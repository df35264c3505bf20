"""Files that are read again when they have changed, while the API serves."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from scheduler_worker.errors import ConfigError

LOG = logging.getLogger(__name__)

T = TypeVar("T")


class RereadFile(Generic[T]):
    """What ``read`` makes of the file now; a file that it refuses changes nothing."""

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        """Raises ConfigError where ``read`` does."""
        self._path = path
        self._read = read
        self._seen = self._stamp()
        self._current = read(path)

    def current(self) -> T:
        """Read the file if it has changed, and return what is in force."""
        if (stamp := self._stamp()) != self._seen:
            self._seen = stamp
            try:
                self._current = self._read(self._path)
            except ConfigError as error:
                LOG.error("%s; what was read before stays in force", error)  # noqa: TRY400
        return self._current

    def _stamp(self) -> tuple[int, ...]:
        try:
            stat = self._path.stat()
        except OSError:
            return ()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size
