"""An administration that is killed in the middle of its edits: SQL and the shared state agree."""

import itertools
import subprocess
import sys

import redis

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.backends.sql.migrate import PolicySchema
from scheduler_worker.service.policies.reconciler import Reconciler
from tests.support.office import ANNA, Office
from tests.support.patience import NEVER_S

from .policy_stores import opened

EDITS = 12
"""How many edits a process makes before it is killed in the middle of the next ones."""


def connected(redis_url: str) -> RedisState:
    return RedisState(
        redis_url, clock=SystemClock(), prefix="p", hold_timeout_s=NEVER_S, offer_s=NEVER_S
    )


def edit_for_ever(sql_url: str, redis_url: str) -> None:
    """Attaches by turns one of two policies and edits it, printing each version."""
    with opened(sql_url) as store:
        office = Office(store, connected(redis_url))
        for number in itertools.count():
            policy_id = office.desk.library.policy_called(("one", "two")[number % 2]).document.id
            fields = {"description": f"edit {number}"}
            made = office.change(policy_id, **fields)
            office.desk.attachments.attach("east", ANNA, policy=policy_id)
            print(made.document.version, flush=True)


def test_after_a_kill_sql_and_the_shared_state_agree(redis_url, tmp_path):
    sql_url = f"sqlite:///{tmp_path / 'policies.sqlite'}"
    with opened(sql_url) as store:
        PolicySchema(store.database).upgrade()
        state = connected(redis_url)
        office = Office(store, state)
        for name in ("one", "two"):
            office.made(name)
        for _ in range(3):
            program = f"from {__name__} import *; edit_for_ever({sql_url!r}, {redis_url!r})"
            process = subprocess.Popen(
                [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            assert len(list(itertools.islice(process.stdout, EDITS))) == EDITS
            process.kill()
            process.communicate()
            Reconciler(office.desk, report=print).reconcile()
            attachment = store.attachment("east")
            assert attachment is not None
            stored = store.policy(attachment.policy_id)
            assert stored is not None
            assert office.in_force.in_force("east") == stored.document
            done = [each for each in store.audit(limit=1000) if each.subject == stored.document.id]
            assert len(done) == stored.document.version
        with redis.Redis.from_url(redis_url) as client:
            client.flushall()
        assert Reconciler(office.desk, report=print).reconcile() == ["east"]
        assert Reconciler(office.desk, report=print).reconcile() == []
        state.close()
