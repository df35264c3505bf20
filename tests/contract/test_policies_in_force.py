"""Processes that are killed in the middle of their edits: book, archive and clusters agree."""

import itertools
import subprocess
import sys
from pathlib import Path

import redis

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.backends.sql.migrate import PolicySchema
from tests.support.office import ANNA, Office
from tests.support.patience import NEVER_S

from .archives import opened

EDITS = 12
"""How many edits a process makes before it is killed in the middle of the next ones."""


def connected(redis_url: str) -> RedisState:
    return RedisState(
        redis_url, clock=SystemClock(), prefix="p", hold_timeout_s=NEVER_S, offer_s=NEVER_S
    )


def edit_for_ever(sql_url: str, redis_url: str) -> None:
    """Attaches by turns one of two policies and edits it, printing each version."""
    with opened(sql_url) as archive:
        office = Office(archive, connected(redis_url))
        for number in itertools.count():
            policy_id = office.desk.library().policy_called(("one", "two")[number % 2]).document.id
            made = office.change(policy_id, description=f"edit {number}")
            office.desk.attach("east", ANNA, policy=policy_id)
            print(made.document.version, flush=True)


def test_after_a_kill_book_archive_and_clusters_agree(redis_url: str, tmp_path: Path) -> None:
    sql_url = f"sqlite:///{tmp_path / 'policies.sqlite'}"
    with opened(sql_url) as archive:
        PolicySchema(archive.database).upgrade()
        state = connected(redis_url)
        office = Office(archive, state)
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
            office.parts.upkeep().keep_up()
            documents = office.book.documents()
            stored = documents.policies[documents.attachments["east"].policy_id].document
            assert office.in_force.in_force("east") == stored
            assert archive.documents() == documents
            done = [each for each in archive.audit(limit=1000) if each.subject == stored.id]
            assert len(done) == stored.version
        with redis.Redis.from_url(redis_url) as client:
            client.flushall()
        assert office.book.documents() == documents
        office.parts.said.clear()
        office.parts.upkeep().keep_up()
        assert office.parts.said == [
            f"{what} was put in force as the book has it"
            for what in ("Which units are enabled", "The policy of cluster east")
        ]
        assert office.in_force.settle("east", lambda _: stored) is False
        state.close()
