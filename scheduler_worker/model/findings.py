"""Findings: what was checked, how it is, and what to do."""

import enum
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
from msgspec import structs

from scheduler_worker.redaction import redacted


class Status(enum.StrEnum):
    """How something is."""

    OK = "ok"
    WARNING = "warning"
    """A worker serves, but not as it should."""
    FAILED = "failed"
    """A worker would not serve, or would do harm."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    status: Status
    check: str
    """What was looked at."""
    message: str
    fix: str = ""
    """What to do; empty where the message says it, or nothing is to be done."""

    def __str__(self) -> str:
        text = f"{self.status:<7} {self.check}: {self.message}"
        return redacted(f"{text}. {self.fix}" if self.fix else text)


ok = partial(Finding, Status.OK)
warning = partial(Finding, Status.WARNING)
failed = partial(Finding, Status.FAILED)


def summary(findings: Iterable[Finding]) -> str:
    """How many there are of each status."""
    counts = Counter(finding.status for finding in findings)
    failures, warnings = counts[Status.FAILED], counts[Status.WARNING]
    return f"{failures} failed, {warnings} warnings, {counts[Status.OK]} ok"


def document(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """The findings for a program."""
    return [
        {name: redacted(str(value)) for name, value in structs.asdict(finding).items()}
        for finding in findings
    ]
