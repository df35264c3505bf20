"""Copies of requests at three workers that like different clusters best, on a real Redis."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.service.candidates import Candidates
from tests.support.services import World, host

pytestmark = pytest.mark.servers

REQUESTS = [(f"i{n}", f"j{n}") if n % 3 == 0 else (f"i{n}",) for n in range(60)]


def test_copies_that_name_no_cluster_are_answered_alike(redis_url, monkeypatch):
    def anything(_, replicas, spec):
        return {each.scope: random.random() for each in replicas}

    monkeypatch.setattr(Candidates, "_scores", anything)
    states = [RedisState(redis_url, hold_timeout_s=10.0) for _ in range(3)]
    worlds = [World(state=state, clock=SystemClock()) for state in states]
    worlds[0].report(
        *(host(f"{name}1", cluster=name, vcpus=400, memory_mb=400_000) for name in "abc")
    )
    with ThreadPoolExecutor(len(worlds)) as threads:
        told = list(threads.map(lambda world: [world.place(*each) for each in REQUESTS], worlds))
    assert told[0] == told[1] == told[2]
    promised = Counter(uuid for uuids in worlds[0].promised().values() for uuid in uuids)
    assert promised == Counter(uuid for uuids in REQUESTS for uuid in uuids)
    for state in states:
        state.close()
