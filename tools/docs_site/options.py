"""Writes the page of every option, from the options themselves."""

import re
from collections.abc import Iterator
from typing import Any

from docs_site.links import anchor
from scheduler_worker import conf

_INTRODUCTION = """\
# Options

For operators who look up one option of the worker. [Configure](configuration.md) lists the options
that matter. An environment variable `OS_<GROUP>__<OPTION>` takes precedence over the files. The
sample configuration also has the options of libraries: `[oslo_messaging_rabbit]`, logs and
`[keystone_authtoken]`.
"""


def names() -> set[tuple[str, str]]:
    """Group and name of each option on the page."""
    return {(group or "DEFAULT", opt.dest) for group, opts in conf.list_opts() for opt in opts}


def page() -> str:
    """The page, as Markdown."""
    parts = [_INTRODUCTION]
    for group, opts in sorted(conf.list_opts(), key=lambda each: each[0] or ""):
        name = group or "DEFAULT"
        parts.append(f"## [{name}] {{#{name.lower()}}}\n")
        parts += [_option(name, opt) for opt in sorted(opts, key=lambda each: str(each.dest))]
    return "\n".join(parts)


def _option(group: str, opt: Any) -> str:
    facts = "; ".join([opt.type.type_name, *_bounds(opt.type), f"default: {_default(opt)}"])
    if opt.mutable:
        facts += "; read again on SIGHUP"
    lines = [f"### `{opt.dest}` {{#{anchor(group, opt.dest)}}}", "", f"*{facts}*", ""]
    return "\n".join([*lines, _escaped(opt.help or ""), *_choices(opt.type), ""])


def _bounds(kind: Any) -> Iterator[str]:
    if getattr(kind, "min", None) is not None:
        yield f"at least {kind.min}"
    if getattr(kind, "max", None) is not None:
        yield f"at most {kind.max}"


def _default(opt: Any) -> str:
    value = opt.default if opt.sample_default is None else opt.sample_default
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, list):
        value = ",".join(str(each) for each in value)
    if isinstance(value, dict):
        value = ",".join(f"{key}:{each}" for key, each in value.items())
    return f"`{value}`"


def _choices(kind: Any) -> Iterator[str]:
    choices = getattr(kind, "choices", None) or {}
    if choices:
        yield ""
    for value, meaning in choices.items():
        yield f"* `{value}`" + (f": {_escaped(meaning)}" if meaning else "")


def _escaped(text: str) -> str:
    return re.sub(r"([<*_])", r"\\\1", text)
