"""URLs of cell mappings, which may be templates that are filled from the local configuration.

A template names parts of ``[database] connection`` in braces: ``{scheme} {username} {password}
{hostname} {port} {path} {query} {fragment}``, the path without its first slash. If that URL
names several hosts, ``{username1} {password1} {hostname1} {port1}`` are of the first host, and
so on; without a number, it is the first.
"""

import re
from urllib.parse import urlsplit

from scheduler_worker.errors import ConfigError

_VARIABLE = re.compile(r"\{(\w*)\}")


def filled(template: str, local: str | None) -> str:
    """The URL of a cell's database.

    Raises ConfigError: the template names a part that the local URL does not have; it names no
    value.
    """
    names = set(_VARIABLE.findall(template))
    if not names:
        return template
    if not local:
        raise ConfigError(
            "its database connection is a template, and [database] connection, which fills it, is "
            "not set"
        )
    parts = _parts(local)
    if missing := sorted(names - parts.keys()):
        raise ConfigError(
            f"its database connection is a template with {{{missing[0]}}}, which [database] "
            "connection does not have"
        )
    return _VARIABLE.sub(lambda match: parts[match[1]], template)


def _parts(url: str) -> dict[str, str]:
    """The parts of a URL that a template may name; empty ones, too, but for hosts and accounts."""
    try:
        split = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"[database] connection is no URL: {error}") from None
    parts = {
        "scheme": split.scheme,
        "path": split.path.removeprefix("/"),
        "query": split.query,
        "fragment": split.fragment,
    }
    account = ""
    for number, host in enumerate(split.netloc.split(","), 1):
        own, at, address = host.rpartition("@")
        account = own if at else account
        for name, value in _of_host(account, address).items():
            parts[f"{name}{number}"] = value
            if number == 1:
                parts[name] = value
    return parts


def _of_host(account: str, address: str) -> dict[str, str]:
    username, _, password = account.partition(":")
    matched = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d+))?", address)
    hostname, port = (matched[1], matched[2]) if matched else (address, None)
    values = {"username": username, "password": password, "hostname": hostname, "port": port}
    return {name: value for name, value in values.items() if value}
