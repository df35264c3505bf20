"""A process that has many descriptors open."""

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def many_descriptors() -> Iterator[None]:
    """Hold so many that new ones have numbers that select() refuses."""
    number = 1100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * number)), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(number)]
    try:
        yield
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
