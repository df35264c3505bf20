"""``docs/monitoring.md`` lists the fields of the code."""

import re
from pathlib import Path

from scheduler_worker.monitoring import journal

DOCUMENT = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text()


def test_every_field_of_the_journal_line_is_documented():
    table = DOCUMENT.partition("| field | meaning |")[2].partition("\n\n")[0]
    firsts = [row[: row.find("|", 2)] for row in table.splitlines()]
    named = [name for first in firsts for name in re.findall(r"`(\w+)`", first)]
    assert sorted(named) == sorted(journal.FIELDS)
    example = DOCUMENT.partition("    request_id=")[2].partition("\n\n")[0]
    assert re.findall(r"(\w+)=", f"request_id={example}") == list(journal.FIELDS)
