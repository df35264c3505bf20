"""What needs packages that only some workers have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from scheduler_worker.errors import ConfigError


@contextlib.contextmanager
def needing_extra(name: str, why: str) -> Iterator[None]:
    """For importing what an extra installs.

    Raises ConfigError, which names the extra, where it is missing.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{why} needs {error.name} ({error}); run: pip install 'scheduler_worker[{name}]'"
        ) from None
