"""Unique ids of 128 random bits. They are not meant to be unguessable.

The generator is only seeded by the operating system: asking it for each id would be a system call,
during which another thread takes the interpreter lock.
"""

import os
import random

_random = random.Random()
os.register_at_fork(after_in_child=_random.seed)


def unique_hex() -> str:
    """32 hexadecimal digits."""
    return f"{_random.getrandbits(128):032x}"
