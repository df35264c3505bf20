"""Entries of the audit: what administrators changed, or tried to change."""

from typing import Literal

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.wording import cut

MAX_MARKER = 2**63 - 1
NAME = 255
"""Characters of a name, at most."""
MAX_PAGE = 1000
"""Upper bound of the entries that are read at once."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change, or one that was refused: who, from where, what, before and after."""

    at_s: float
    """Seconds since the epoch."""
    user: str
    origin: str = ""
    """From where, such as an address or the name of a command."""
    action: str
    """What was to be done, such as ``policy.update``."""
    subject: str
    """The id of a policy or unit, or the name of a cluster."""
    result: Literal["done", "refused"] = "done"
    reason: str = ""
    """Why it was refused."""
    before: str | None = None
    """JSON of what was stored before; None: there was nothing."""
    after: str | None = None
    id: str = ""
    """Its number among all, in the order of writing; the marker of the next page."""


_LONGEST = {"user": NAME, "origin": NAME, "action": 64, "subject": NAME, "reason": 4096}


def shortened(entry: AuditEntry) -> AuditEntry:
    """The entry with its long texts cut, so that it is stored whatever they are."""
    texts = ((name, getattr(entry, name), most) for name, most in _LONGEST.items())
    cuts = {name: cut(text, most) for name, text, most in texts if len(text) > most}
    return msgspec.structs.replace(entry, **cuts) if cuts else entry


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries of the audit are wanted; None: any."""

    user: str | None = None
    action: str | None = None
    subject: str | None = None
    result: Literal["done", "refused"] | None = None
    since_s: float | None = None
    """Entries of this time and later, in seconds since the epoch."""
    until_s: float | None = None
    """Entries before this time."""

    def admits(self, entry: AuditEntry) -> bool:
        """Whether an entry is wanted."""
        return (
            all(
                wanted is None or wanted == getattr(entry, name)
                for name in ("user", "action", "subject", "result")
                for wanted in [getattr(self, name)]
            )
            and (self.since_s is None or entry.at_s >= self.since_s)
            and (self.until_s is None or entry.at_s < self.until_s)
        )


EVERYTHING = AuditFilter()


def marker_number(marker: str) -> int:
    """The number of an audit entry's id. Raises RequestError for a text that is none."""
    if marker.isascii() and marker.isdigit() and len(marker) < 20 and int(marker) <= MAX_MARKER:
        return int(marker)
    raise RequestError("marker", f"{cut(marker)!r} is no marker; use the id of an audit entry")
