"""What is cast to whoever migrates VMs and switches hosts."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_worker.errors import PowerRefused, Undeliverable
from scheduler_worker.model.cluster_load import PowerAction
from scheduler_worker.model.ledgers import AskedPower, MigrationLimits, PowerLedger
from scheduler_worker.service.balancing.agent import AgentTarget


class NotingPublisher:
    def __init__(self, failure: Exception | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.failure = failure

    def cast(self, **message: Any) -> None:
        self.sent.append(message)
        if self.failure is not None:
            raise self.failure


def asked() -> AskedPower:
    action = PowerAction(host="h1", to="down", reason="it is empty")
    limits = MigrationLimits(begin_within_s=60)
    found = PowerLedger().ask(action, action_id="x", policy="save@1", now_s=100.0, limits=limits)
    assert found.under_way is not None
    return found.under_way


def test_a_power_action_is_cast_with_all_that_an_agent_needs():
    publisher = NotingPublisher()
    AgentTarget(publisher, "agents").set_power("east", asked())
    assert publisher.sent == [
        {
            "topic": "agents",
            "method": "set_host_power",
            "arguments": {
                "action": "x",
                "cluster": "east",
                "host": "h1",
                "to": "down",
                "reason": "it is empty",
                "policy": "save@1",
                "begin_by_s": 160.0,
            },
        }
    ]


def test_it_is_refused_where_nobody_listens():
    publisher = NotingPublisher(Undeliverable("no queue"))
    with pytest.raises(PowerRefused, match="no queue"):
        AgentTarget(publisher, "agents").set_power("east", asked())
