"""Finds options, metrics, commands and make targets that documents name and that do not exist."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from words.rules import Violation

_OPTION = re.compile(r"`\[(\w+)\]\s+(\w+)")
_SECTION = re.compile(r"^\s*\[(\w+)\]\s*$")
_SETTING = re.compile(r"^\s*#?\s*(\w+)\s*=")
_METRIC = re.compile(r"(?<![\w/.-])scheduler_[a-z_]+\b(?![/.(-])")
_SUFFIX = re.compile(r"_(?:bucket|count|sum)$")
_COMMAND = re.compile(r"(scheduler-workerctl|scheduler-worker-manage)((?: +[^\s`|;&)]+)+)")
_TARGET = re.compile(r"(?:`|\$ |# )make ([a-z][\w-]*)")
_CODE = re.compile(r"`[^`]+`")
_WORD = re.compile(r"[a-z][a-z-]*$")
_FENCE = re.compile(r"^ *```\s*(\w*)")
_OF_MESSAGING = ("transport_url", "control_exchange", "rpc_response_timeout")


class Names(NamedTuple):
    """What exists."""

    options: Mapping[str, Collection[str]]
    """Names by group."""
    libraries: Collection[str]
    """Groups whose options are not checked."""
    metrics: Collection[str]
    no_metrics: Collection[str]
    """Names that begin like a metric's."""
    commands: Mapping[str, Collection[str]]
    """By program."""
    targets: Collection[str]


def known(root: Path, no_metrics: Collection[str], libraries: Collection[str]) -> Names:
    """What exists in the package and its Makefile."""
    from scheduler_worker.cli.ctl import Ctl
    from scheduler_worker.cli.manage import Manage
    from scheduler_worker.conf import nova_compat
    from scheduler_worker.events import EVENTS

    programs = (Ctl, Manage)
    return Names(
        _options(),
        {*libraries, *nova_compat.GROUPS.split()},
        {each.metric for each in EVENTS},
        no_metrics,
        {each.NAME: {name for name, _ in each().command_manager} for each in programs},
        set(re.findall(r"^([a-z][\w-]*):", (root / "Makefile").read_text(), re.MULTILINE)),
    )


def _options() -> dict[str, set[str]]:
    """The options of the worker, of its libraries, and of a shared nova.conf."""
    from scheduler_worker import conf
    from scheduler_worker.conf import nova_compat, unknown

    found: dict[str, set[str]] = {}
    for group, options in conf.list_opts():
        found.setdefault(group or "DEFAULT", set()).update(_names(options))
    for group, options in unknown.of_libraries("oslo.config", "oslo.log"):
        if (group or "DEFAULT") in found:
            found[group or "DEFAULT"].update(_names(options))
    found["DEFAULT"].update(_OF_MESSAGING)
    for group, names in found.items():
        names.update(nova_compat.OPTIONS.get(group, "").split(), nova_compat.UNUSED.get(group, ()))
    return found


def _names(options: Collection[Any]) -> Iterator[str]:
    for option in options:
        yield from (option.name, option.dest)


def unknown_names(text: str, names: Names) -> Iterator[Violation]:
    """Each name in a document's code that nothing has."""
    group, language, is_fence = "", "", False
    for number, line in enumerate(text.splitlines(), 1):
        if mark := _FENCE.match(line):
            is_fence, language, group = not is_fence, mark[1], ""
            continue
        if is_fence and language == "ini":
            section = _SECTION.match(line)
            group = section[1] if section else group
            setting = _SETTING.match(line)
            if setting and group in names.options and setting[1] not in names.options[group]:
                yield Violation(number, f"there is no option [{group}] {setting[1]}")
        code = line if is_fence else " ".join(_CODE.findall(line))
        yield from (Violation(number, each) for each in _of_line(code, names))


def _of_line(code: str, names: Names) -> Iterator[str]:
    yield from _unknown_options(code, names)
    for metric in _METRIC.findall(code):
        exists = {metric, _SUFFIX.sub("", metric)} & {*names.metrics, *names.no_metrics}
        if not exists and not metric.endswith("_"):
            yield f"there is no metric {metric}"
    for program, rest in _COMMAND.findall(code):
        words = _command_words(rest.split())
        if words and not _is_command(words, names.commands[program]):
            yield f"there is no command {program} {' '.join(words[:2])}"
    unknown = [each for each in _TARGET.findall(code) if each not in names.targets]
    yield from (f"there is no make {target}" for target in unknown)


def _unknown_options(code: str, names: Names) -> Iterator[str]:
    for group, option in _OPTION.findall(code):
        if group not in names.options and group not in names.libraries:
            yield f"there is no group [{group}]"
        elif option not in names.options.get(group, {option}):
            yield f"there is no option [{group}] {option}"


def _command_words(arguments: list[str]) -> list[str]:
    """The words that name the command, without options before it and arguments after it."""
    while arguments and arguments[0].startswith("-"):
        has_value = len(arguments) > 1 and not _WORD.match(arguments[1])
        arguments = arguments[2 if has_value else 1 :]
    words: list[str] = []
    for each in arguments[:3]:
        if not _WORD.match(each):
            break
        words.append(each)
    return words[1:] if words[:1] == ["help"] else words


def _is_command(words: list[str], commands: Collection[str]) -> bool:
    """Whether they begin with a command, or are the beginning of one."""
    text = f"{' '.join(words)} "
    return words[0] == "complete" or any(
        text.startswith(f"{name} ") or f"{name} ".startswith(text) for name in commands
    )
