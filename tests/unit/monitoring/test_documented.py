"""``docs/monitoring.md`` lists the metrics and fields of the code."""

import re
from pathlib import Path

from scheduler_worker.monitoring import journal
from tests.support.metrics import metrics

DOCUMENT = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text()


def test_every_metric_is_documented_with_its_type_and_labels():
    rows = re.findall(r"^\| `(scheduler_\w+)` \| (\w+) \|(.*?)\|", DOCUMENT, re.MULTILINE)
    documented = {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows}
    assert documented == metrics()


def test_every_field_of_the_journal_line_is_documented():
    table = DOCUMENT.partition("| field | meaning |")[2].partition("\n\n")[0]
    firsts = [row[: row.find("|", 2)] for row in table.splitlines()]
    named = [name for first in firsts for name in re.findall(r"`(\w+)`", first)]
    assert sorted(named) == sorted(journal.FIELDS)
    example = DOCUMENT.partition("    request_id=")[2].partition("\n\n")[0]
    assert re.findall(r"(\w+)=", f"request_id={example}") == list(journal.FIELDS)
