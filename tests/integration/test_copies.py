"""Copies of requests at three workers that prefer different clusters, on a real Redis."""

from __future__ import annotations

import random
from collections import Counter

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.service.placement.candidates import ClusterChoice
from tests.support.patience import NEVER_S
from tests.support.services import World, host
from tests.support.threads import Threads

REQUESTS = [(f"i{n}", f"j{n}") if n % 3 == 0 else (f"i{n}",) for n in range(60)]


def test_copies_without_a_cluster_get_the_same_answer(redis_url, monkeypatch):
    def shuffled(_, replicas, spec):
        return random.sample(replicas, len(replicas))

    monkeypatch.setattr(ClusterChoice, "_in_order", shuffled)
    states = [RedisState(redis_url, hold_timeout_s=NEVER_S) for _ in range(3)]
    worlds = [World(state=state, clock=SystemClock()) for state in states]
    worlds[0].report(
        *(host(f"{name}1", cluster=name, vcpus=400, memory_mb=400_000) for name in "abc")
    )
    with Threads(len(worlds)) as threads:
        answers = list(threads.map(lambda world: [world.place(*each) for each in REQUESTS], worlds))
    assert answers[0] == answers[1] == answers[2]
    reserved = Counter(uuid for uuids in worlds[0].reserved().values() for uuid in uuids)
    assert reserved == Counter(uuid for uuids in REQUESTS for uuid in uuids)
    for state in states:
        state.close()
