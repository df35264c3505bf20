"""Which form of an answer a client wants."""

from collections.abc import Sequence

from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header, parse_options_header


def preferred(accept: str, offers: Sequence[str]) -> str | None:
    """The media type of ``offers`` that a header ``Accept`` prefers; None: it wants none of them.

    Of equals it is the client's first, and without a header the first offer. Parameters other than
    ``q`` do not count: each form has one charset.
    """
    ranges = parse_accept_header(accept, MIMEAccept)
    wanted = MIMEAccept([(parse_options_header(kind)[0], q) for kind, q in ranges])
    if not wanted:
        return offers[0]
    best = max(offers, key=lambda offer: (wanted.quality(offer), -wanted.find(offer)))
    return best if wanted.quality(best) else None
