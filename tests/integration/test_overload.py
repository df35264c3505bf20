"""Ten times as many calls as two workers can decide, from callers with a timeout."""

import pytest

from scheduler_worker.scheduling.options import ALL_FILTERS
from tests.integration.overload import SLOW_S, Callers, decided
from tests.support.services import host
from tests.support.workers import WorkerProcess, connected, reserved

PATIENCE_S, LASTS_S = 4.0, 10.0
CAPACITY_HZ = 1 / SLOW_S


OPTIONS = {
    "pending": {"ttl": 600, "wait_timeout": 0},
    "filter_scheduler": {
        "available_filters": [ALL_FILTERS, "tests.integration.overload.CountingFilter"],
        "enabled_filters": "ComputeFilter,CoreFilter,CountingFilter",
    },
}


@pytest.mark.deep
def test_decisions_are_answered_in_time_and_nothing_is_reserved_for_callers_that_left(
    configure, tmp_path, rabbit_vhost_url, capsys
):
    count = tmp_path / "count"
    callers = Callers(rabbit_vhost_url, remaining_s=PATIENCE_S, hints={"count": str(count)})
    with (
        WorkerProcess(configure("one", **OPTIONS), name="one") as one,
        WorkerProcess(configure("two", **OPTIONS), name="two") as two,
    ):
        one.ready(), two.ready()
        with connected(rabbit_vhost_url) as client:
            client.update_hosts([host(f"h{n}", vcpus=1000, memory_mb=10**6) for n in range(20)])
            callers.send(rate_hz=10 * CAPACITY_HZ, duration_s=LASTS_S)
            held = set(reserved(client))
    with capsys.disabled():
        print(
            f"\n  overload: {len(callers.calls)} calls in {LASTS_S:g} s, {decided(count)} decided, "
            f"{len(callers.in_time)} answered in time, {len(held)} reserved"
        )
    assert len(callers.in_time) >= 0.8 * decided(count) > 0
    assert held <= {each.instance for each in callers.answered}
