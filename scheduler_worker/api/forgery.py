"""Requests that a page of another origin sends through a browser, in its user's name.

A browser adds the name and password of Basic authentication to the requests of any page. It adds a
token to none, so these checks are for passwords only; sessions of the console have a token for
changes (``console/sessions.py``).
"""

from __future__ import annotations

from http import HTTPStatus

from werkzeug.wrappers import Request

from scheduler_worker.api.faults import Refusal

_TYPES_OF_FORMS = {"", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain"}
"""What a page sends to another origin without asking it first; empty: no type at all."""
_OWN_SITES = {"same-origin", "none"}
"""``none``: the user typed the address."""


def check_origin(request: Request) -> None:
    """Raises Refusal with 403 for a browser's request from another origin."""
    site = request.headers.get("Sec-Fetch-Site")
    # Browsers that are old, or ask over plain HTTP, send no site; a POST has its origin then.
    origin = request.headers.get("Origin")
    own = f"{request.scheme}://{request.host}"
    is_foreign = site not in _OWN_SITES if site else origin is not None and origin != own
    if is_foreign:
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            "[A page of another origin has sent this request; a password is accepted from this "
            "origin only, use a token]",
        )


def check_form(request: Request) -> None:
    """Raises Refusal with 415 for a POST that an HTML form could have sent.

    Of changes a form sends POST only; a browser asks first before any other method.
    """
    if request.method == "POST" and request.mimetype in _TYPES_OF_FORMS:
        raise Refusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "[A POST with a password needs the Content-Type of its body, application/json or "
            f"application/xml; it has {request.mimetype or 'none'}]",
        )
