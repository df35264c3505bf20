"""Reads the files that people write for commands, and writes them.

In YAML plain decimal numbers, ``true``, ``false`` and null have their meaning; all other scalars
are texts, as in policies of the tuning language. JSON is YAML.
"""

import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import yaml

from scheduler_worker.errors import ConfigError
from scheduler_worker.wording import cut, lines

_INTEGER = r"[-+]?(0|[1-9][0-9]*)"
_IN_NUMBERS = "-+0123456789"


def read_text(path: Path) -> str:
    """The text of a file, or of the standard input for ``-``. Raises ConfigError."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None


def read_yaml(path: Path) -> Any:
    """The document of a file. Raises ConfigError, which names the place."""
    return parsed(read_text(path), str(path))


def parsed(text: str, name: str) -> Any:
    """The document of a text. Raises ConfigError, which names the place."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise ConfigError(f"{where}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: cannot be read as YAML: {error}") from None


def written(document: Any) -> str:
    """A document as YAML that :func:`parsed` reads as the same."""
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=None,
    )
    return lines(text)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping; refuses a key that is there twice, which YAML forbids."""
        names: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in names:
                problem = f"duplicate key {cut(key.value)!r}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            names |= {key.value} if isinstance(key, yaml.ScalarNode) else set()
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes texts with other line ends, or what steers a terminal, so that it can be escaped."""

    def represent_text(self, text: str) -> Any:
        style = None if text.replace("\n", "").isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)
for _tag, _pattern, _first in (
    ("null", "(~|null|)$", ["~", "n", ""]),
    ("bool", "(true|false)$", ["t", "f"]),
    ("int", rf"{_INTEGER}$", list(_IN_NUMBERS)),
    ("float", rf"{_INTEGER}(\.[0-9]*)?([eE][-+]?[0-9]+)?$", list(_IN_NUMBERS)),
    ("merge", "<<$", ["<"]),
):
    # The writer quotes texts by them too: by PyYAML's own resolvers 1e5 is no number.
    for _side in (_Loader, _Dumper):
        _side.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)
