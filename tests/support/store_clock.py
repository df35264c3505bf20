"""A clock of a test's own for the scripts that a real Redis runs."""

from __future__ import annotations

import redis

from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.backends.redis.nodes import Script
from tests.support.clock import ManualClock

KEY = "the-clock-of-the-test"
ASKED = "redis.call('TIME')"
TOLD = f"redis.call('HMGET', '{KEY}', 's', 'us')"


class StoreClock:
    """The server's time as the scripts of some states see it, and the workers' own clock.

    ``pass_s`` lets time pass for both, ``jump_s`` sets the server's alone.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.workers = ManualClock()
        self.now_s = self.workers.time_s()
        self._write()

    def govern(self, state: RedisState) -> RedisState:
        """The scripts of this state go by this clock from now on."""
        scripts = state._server._scripts
        for name, script in scripts.items():
            assert ASKED in script.text
            scripts[name] = Script(script.text.replace(ASKED, TOLD))
        return state

    def pass_s(self, seconds: float) -> None:
        self.workers.advance(seconds)
        self.jump_s(seconds)

    def jump_s(self, seconds: float) -> None:
        self.now_s += seconds
        self._write()

    def _write(self) -> None:
        seconds, micros = divmod(round(self.now_s * 1_000_000), 1_000_000)
        self._client.hset(KEY, mapping={"s": seconds, "us": micros})
