"""A killed worker loses nothing; with oslo.messaging's server it does."""

import pytest

from tests.integration.faults import kill

pytestmark = pytest.mark.deep


@pytest.mark.parametrize("kind", kill.KINDS)
def test_a_worker_is_killed_among_a_hundred_casts(
    kind, tmp_path, rabbit_vhost_url, redis_url, capsys
):
    toll = kill.run(kind, tmp_path, rabbit_vhost_url, redis_url)
    with capsys.disabled():
        print(f"\n  {toll}")
    assert toll.violations == []
    assert toll.contradicted == 0
    assert toll.answered + toll.lost == toll.cast
    if kind == "amqp":
        assert toll.lost == 0
        assert toll.reserved == toll.cast
    else:
        assert toll.lost >= kill.SLOTS, "the requests in hand were acknowledged, and are lost"
        assert toll.answered <= toll.reserved < toll.cast
