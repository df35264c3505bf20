"""From release 0.1.0, which had policies in SQL and others in the shared state, to the one book.

``tests/samples/release_0_1_0`` has both, as that release wrote them: ``east`` and ``south`` were
attached over REST, ``west`` and ``north`` over RPC, to a policy whose name one in SQL has too.
"""

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.cli.manage import main
from scheduler_worker.compose.api import build_api
from scheduler_worker.compose.worker import Worker, build_worker
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.ports import Put, Transaction
from tests.support.office import ANNA
from tests.support.patience import NEVER_S
from tests.support.servers import free_port
from tests.support.web import users_file
from tests.support.workers import load_config, write_config

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "release_0_1_0"
CLUSTERS = ("east", "north", "south", "west")


@pytest.fixture
def settings(tmp_path: Path, redis_url: str) -> dict[str, Any]:
    """The options; the database and Redis have what the earlier release left there."""
    with sqlite3.connect(tmp_path / "policies.sqlite") as database:
        database.executescript((SAMPLE / "policies.sql").read_text())
    state = RedisState(
        redis_url, clock=SystemClock(), prefix="scheduler_worker", hold_timeout_s=NEVER_S,
        offer_s=NEVER_S,
    )  # fmt: skip
    for scope, records in json.loads((SAMPLE / "state.json").read_text()).items():
        puts = [Put(key, value.encode("latin-1")) for key, value in records.items()]
        state.write(scope, [Transaction(puts)])
    state.close()
    return {
        "state": {"url": redis_url},
        "policy_store": {"connection": f"sqlite:///{tmp_path / 'policies.sqlite'}"},
        "api": {"port": free_port(), "users_file": users_file(tmp_path, anna="administrator")},
        "monitoring": {"port": free_port(), "api_port": free_port()},
    }


def in_force(process: Worker) -> dict[str, ClusterPolicy]:
    policies = process.services.policies
    return {cluster: policies.in_force(cluster) for cluster in CLUSTERS}


def nameless(policies: Mapping[str, ClusterPolicy]) -> dict[str, ClusterPolicy]:
    """All that decides: of two equal names one is changed."""
    return {cluster: structs.replace(each, name="") for cluster, each in policies.items()}


@pytest.mark.parametrize("first", ["api", "worker"])
def test_policies_of_both_places_are_in_the_book(tmp_path, settings, capsys, first):
    worker = build_worker(load_config(tmp_path / "worker.conf", state=settings["state"]))
    had = in_force(worker)
    assert {cluster: policy.name for cluster, policy in had.items()} == {
        "east": "packing", "north": "Packing", "south": "none", "west": "Packing",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="run: scheduler-worker-manage db upgrade"):
        with build_api(load_config(tmp_path / "early.conf", **settings)).running():
            pass
    file = write_config(tmp_path / "manage.conf", policy_store=settings["policy_store"])
    assert main(["--config-file", str(file), "db", "upgrade"]) == 0
    assert capsys.readouterr().out == "The tables are from version 0002 to 0003.\n"
    if first == "worker":  # which has no archive
        worker.parts.upkeep.keep_up()
        assert nameless(in_force(worker)) == nameless(had)
    with build_api(load_config(tmp_path / "api.conf", **settings)).running() as api:
        library = api.administration.library()
        stored = {each.document.name: each for each in library.policies() if not each.is_locked}
        assert stored.keys() == {"packing", "spare", "Packing (north)"}
        assert (stored["packing"].changed_by, stored["packing"].document.version) == ("bert", 4)
        assert nameless(in_force(worker)) == nameless(had)
        archive = api._parts.copies.open()
        assert archive.documents() == library.documents
        history = [(entry.user, entry.action) for entry in archive.audit()]
        assert history[:2] == [("anna", "policy.create"), ("anna", "policy.update")]
        assert history.count(("carl", "policy.attach")) == 2
        assert api.administration.attach("west", ANNA, policy="packing").version == 2
    worker.stop()
