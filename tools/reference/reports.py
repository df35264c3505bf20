"""The table of the fields of a host report."""

from collections.abc import Iterator

from scheduler_worker.model.host_reports import FACT_OF, HostReport


def fields_of_reports() -> str:
    """A row for each field with a text, and for the fields after it that have none."""
    lines = ["| fields | meaning |", "|---|---|"]
    lines += (f"| {', '.join(names)} | {text} |" for names, text in _rows())
    return "\n".join(lines)


def _rows() -> Iterator[tuple[list[str], str]]:
    names: list[str] = []
    text = ""
    for name in HostReport.__struct_fields__:
        if names and FACT_OF[name].text:
            yield names, text
            names = []
        names.append(f"`{name}`")
        text = FACT_OF[name].text or text
    yield names, text
