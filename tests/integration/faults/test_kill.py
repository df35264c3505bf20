"""A killed worker loses nothing; its neighbour on oslo.messaging's server shows what would be."""

import pytest

from tests.integration.faults import kill

pytestmark = [pytest.mark.servers, pytest.mark.slow]


@pytest.mark.parametrize("kind", kill.KINDS)
def test_a_worker_is_killed_among_a_hundred_casts(
    kind, tmp_path, rabbit_vhost_url, redis_url, capsys
):
    toll = kill.run(kind, tmp_path, rabbit_vhost_url, redis_url)
    with capsys.disabled():
        print(f"\n  {toll}")
    assert toll.over_promised == []
    if kind == "amqp":
        assert toll.lost == 0
        assert toll.contradicted == 0
        assert toll.promised == toll.cast
