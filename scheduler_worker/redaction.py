"""Redacts secrets in logs, errors and dumps: passwords, tokens, accounts in URLs."""

import re

MASK = "***"

_SECRETS = (
    "token|passw|adminpass|secret|credential|private_key|hmac_key|user_data|service_catalog"
    "|database_connection|transport_url"
)
_WORDS = _SECRETS.split("|")
SECRET_NAME = re.compile(_SECRETS, re.IGNORECASE)
"""Matches in the name of a field whose value is secret."""

_USER_INFO = re.compile(r"(?<=://)[^\s'\"]{0,1000}@")
_NAMED = re.compile(
    rf"""
    (?! (?<=\[default\]\ ) transport_url:\ )  # begins an error message, which quotes no value
    (?: {_SECRETS} ) [\w.-]{{0,64}}
    \\*['"]? \s{{0,4}} [=:] \s{{0,4}}
    (?P<value>
        [\[{{(] [^\n]*                                   # of a list, the rest of the line
      | b? (?P<quote> \\*['"] ) .*? (?: (?<!\\) (?P=quote) | $ )
      | (?: bearer | basic ) \s+ [^\s,;&]+
      | [^\s,;&'"]+
    )
    """,
    re.MULTILINE | re.VERBOSE,
)
_NO_SECRETS = {"none", "null", "true", "false", "-", MASK}


def without_user(text: str) -> str:
    """The text with ``***@`` in place of user and password, in every URL."""
    return _USER_INFO.sub(f"{MASK}@", text) if "://" in text else text


def redacted(text: str) -> str:
    """The text without values after the names of secrets, and without accounts in URLs.

    Numbers, such as a fencing ``token=17``, are shown.
    """
    text = without_user(text)
    lowered = _lowered(text)
    first = min((at for at in map(lowered.find, _WORDS) if at >= 0), default=len(text))
    parts, end = [], 0
    for match in _NAMED.finditer(lowered, first):
        value = match["value"]
        if not value.isdigit() and value not in _NO_SECRETS:
            parts += [text[end : match.start("value")], MASK]
            end = match.end()
    return "".join([*parts, text[end:]])


def _lowered(text: str) -> str:
    """The text in lower case, of the same length: faster to search than ignoring the case."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(character.lower() if character.isascii() else character for character in text)
