"""Typical durations of the recent past."""

from scheduler_worker.service.placement.queue import RecentDurations


def test_an_outlier_does_not_count() -> None:
    durations = RecentDurations()
    assert durations.typical_s(0.0) == 0.0
    for at_s, took_s in enumerate((0.1, 0.2, 9.0, 0.1, 0.2)):
        durations.add(took_s, at_s)
    assert durations.typical_s(5.0) == 0.2


def test_old_durations_are_dropped() -> None:
    durations = RecentDurations()
    durations.add(9.0, 0.0)
    assert durations.typical_s(9.0) == 9.0
    durations.add(0.1, 9.0)
    assert durations.typical_s(11.0) == 0.1
    assert durations.typical_s(30.0) == 0.0
