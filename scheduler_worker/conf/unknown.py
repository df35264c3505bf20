"""Finds options and groups that are set and that nothing reads, and suggests the nearest name.

A file may be shared with Nova, so Nova's own names (``nova_compat``) are ignored.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

from scheduler_worker.conf import nova_compat
from scheduler_worker.conf.declared import DEFAULT, Listed
from scheduler_worker.configuration import Configuration

_SURELY = 0.85
"""How similar to a known group a library's group must be to count as misspelled."""

_SHARED = " Nova reads this group, too: change it for all services at once"
"""A worker and its callers must declare the same kind of queue."""

_REMOVED = {("nova_feed", "placement_refresh"): "hosts are read when they change"}
"""Group and option that the worker had -> why there is none."""

Names = dict[str, set[str]]
"""Group -> the names of its options, present and former ones."""


def of_libraries(*libraries: str) -> Iterator[tuple[str | None, list[Any]]]:
    """The options that libraries list for ``oslo-config-generator``, by group."""
    for library in libraries:
        for entry in entry_points(group="oslo.config.opts", name=library):
            for listed, options in entry.load()():
                group = getattr(listed, "name", listed)
                if not str(group).startswith("sample_"):
                    yield group, list(options)


def unknown(conf: Configuration, ours: Listed, foreign: Listed) -> list[str]:
    """A sentence for each option and group in files and environment that neither the worker nor
    ``foreign`` have.
    """
    own, known = _names(ours), _names([*ours, *foreign])
    return [
        f"{path}: {sentence}"
        for path, sections in conf.sections()
        for section, options in sections.items()
        for sentence in _unknown(section, options, own, known)
    ]


def _names(read: Listed) -> Names:
    known: Names = {}
    for group, options in read:
        name = group or DEFAULT
        known.setdefault(name, set())
        for option in options:
            known[name].update((option.name, option.dest))
            for former in option.deprecated_opts:
                names = known.setdefault(former.group or name, set())
                names.add((former.name or option.name).replace("-", "_"))
    return known


def _unknown(section: str, options: Iterable[str], ours: Names, known: Names) -> Iterator[str]:
    group = section if section == DEFAULT else section.lower()
    is_of_library = group.startswith(nova_compat.PREFIXES)
    if group not in known:
        is_left_alone = group in nova_compat.GROUPS.split() or group in nova_compat.UNUSED
        if is_of_library and not get_close_matches(group, known, 1, _SURELY):
            is_left_alone = True
        if not is_left_alone:
            yield f"[{section}] is no group that is read{_hint(group, known, '[{}]')}"
        return
    novas = {*nova_compat.OPTIONS.get(group, "").split(), *nova_compat.UNUSED.get(group, ())}
    for option in options:
        if option not in known[group] and option not in novas:
            plain = option.lstrip("-").replace("-", "_")
            place = f"; it is {plain}" if plain in known[group] else _place(group, plain, ours)
            if not place and (place := _hint(option, known[group], "{}")) and is_of_library:
                place += _SHARED
            yield f"[{section}] {option} is no option that is read{place}"


def _place(group: str, option: str, ours: Names) -> str:
    """The option's new home, as the end of a sentence; empty if no group has such a name."""
    if option in nova_compat.FORMER:
        return f"; {nova_compat.FORMER[option]}"
    if (group, option) in _REMOVED:
        return f"; {_REMOVED[group, option]}"
    for name in (option, option.removeprefix("scheduler_"), option.removeprefix("metrics_")):
        if home := next((home for home, names in ours.items() if name in names), None):
            return (
                f"; it belongs to [{home}]" if name == option else f"; it is {name} in [{home}] now"
            )
    return ""


def _hint(name: str, known: Iterable[str], form: str) -> str:
    lowered = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(name.lower(), lowered, 1)
    return f"; did you mean {form.format(lowered[near[0]])}?" if near else ""
