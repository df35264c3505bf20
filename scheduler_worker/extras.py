"""Imports of what an extra of setup.cfg installs."""

import contextlib
from collections.abc import Iterator

from scheduler_worker.errors import ConfigError


@contextlib.contextmanager
def needing_extra(name: str, why: str) -> Iterator[None]:
    """Wraps the import of what an extra installs; ``why`` it is needed begins the error.

    Raises ConfigError, which names the extra, where it is missing.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{why} needs a package that is missing ({error}); run: "
            f"pip install 'scheduler_worker[{name}]'"
        ) from None
