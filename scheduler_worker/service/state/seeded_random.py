"""The random source of a request, seeded by its id so that a recorded request replays exactly."""

from __future__ import annotations

import random
from collections.abc import MutableSequence
from typing import Any

from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.selectors import RandomSource


class _SeededRandom:
    """Seeds on first use: most requests need no random numbers, and seeding is slow."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._random: random.Random | None = None

    def randrange(self, start: int, /) -> int:
        return self._seeded().randrange(start)

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        self._seeded().shuffle(x)

    def _seeded(self) -> random.Random:
        if self._random is None:
            self._random = random.Random(self._seed)
        return self._random


def random_source(request: Request) -> RandomSource:
    """The random source of a request."""
    return _SeededRandom(request.request_id)
