"""Names that nobody else gives: 128 random bits.

They need not be hard to guess. The operating system's randomness costs a system call, during which
another thread takes the interpreter; so it is asked for a seed only.
"""

from __future__ import annotations

import os
import random

_random = random.Random()
os.register_at_fork(after_in_child=_random.seed)


def unique_hex() -> str:
    """32 hexadecimal digits."""
    return f"{_random.getrandbits(128):032x}"
