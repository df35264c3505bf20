"""``/v1`` keeps to its own description: generated requests, valid and not, find no violation."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from scheduler_worker.api.sessions import Throttle
from scheduler_worker.model.worker_reports import (
    ClusterReport,
    Lately,
    LockTimes,
    PartReport,
    Spread,
    WorkerFacts,
    WorkerReport,
)
from scheduler_worker.operations.callers import Grant
from scheduler_worker.service.state.presence import Presence
from tests.support.edges import filled
from tests.support.web import basic

load_all_checks()
REST = filled()
REST.world.tuning_files.texts |= {"broken": "scope: VM\nrules: {a: {}}"}
REPORT = WorkerReport(
    clusters=(ClusterReport(name="east", times=LockTimes(wait=Spread({3: 1}))),),
    feed={"cell1": PartReport(lag_s=300.0)},
    lately=Lately(errors={"update_hosts: RequestError": 1}),
)
FACTS = WorkerFacts(name="w1", version="1", topic="scheduler")
Presence(REST.world.state, FACTS, lambda: REPORT).renew()
REST.add_user("reader", Grant("reader"))
REST.add_user("nobody")
ADMIN = basic("admin@internal")
SCHEMA = schemathesis.openapi.from_wsgi("/v1/openapi.json", REST.parts.application, headers=ADMIN)
SCHEMA.config.seed = 1
SCHEMA.config.generation.update(
    modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE], deterministic=True, max_examples=20
)
# Beside what it expects anyway: a body may be wrong and too large.
SCHEMA.config.checks.negative_data_rejection.expected_statuses.append("413")
SEMANTIC = {"positive_data_acceptance", "unsupported_method"}
"""A body of the right form may be refused for what it says: a text that is no tuning policy. And a
POST by password that a form could have sent is refused before its path is looked at."""
CHECKED = [check for check in CHECKS.get_all() if check.__name__ not in SEMANTIC]


@pytest.mark.deep
@SCHEMA.parametrize()
@settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_operation_keeps_to_its_description(case):
    REST.sessions._throttle = Throttle()  # generated log-ins fail more often than it allows
    before = REST.state()
    response = case.call_and_validate(headers=ADMIN, checks=CHECKED)
    if response.status_code >= 400:
        assert REST.state() == before
