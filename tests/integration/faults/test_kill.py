"""A killed worker loses nothing."""

import pytest

from tests.integration.faults import kill

pytestmark = pytest.mark.deep


def test_a_worker_is_killed_among_a_hundred_casts(tmp_path, rabbit_vhost_url, redis_url, capsys):
    toll = kill.run(tmp_path, rabbit_vhost_url, redis_url)
    with capsys.disabled():
        print(f"\n  {toll}")
    assert toll.violations == []
    assert toll.contradicted == 0
    assert toll.lost == 0
    assert toll.answered == toll.reserved == toll.cast
