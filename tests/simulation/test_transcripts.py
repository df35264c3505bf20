"""Runs whose transcripts people read: a change of the protocol shows in them."""

import pytest

from tests.simulation.transcripts import FOLDER, STORIES, told


@pytest.mark.parametrize("name", STORIES)
def test_a_run_goes_as_it_is_told(name, rewrites):
    path, now = FOLDER / f"{name.replace(' ', '-')}.txt", told(STORIES[name])
    if rewrites:
        path.write_text(now)
    assert now == path.read_text(), "if it is meant to change: pytest tests/simulation --rewrite"


def test_each_transcript_is_of_a_run():
    assert {path.stem for path in FOLDER.iterdir()} == {name.replace(" ", "-") for name in STORIES}
