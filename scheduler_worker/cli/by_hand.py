"""Requests and flavors from files and options, for the commands ``explain`` and ``capacity``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from scheduler_worker.errors import ConfigError

_FLAVOR = ("vcpus", "ram", "disk", "ephemeral", "swap")
_OPENSTACK = {
    "Name": "name",
    "VCPUs": "vcpus",
    "RAM": "ram",
    "Disk": "disk",
    "Ephemeral": "ephemeral",
    "Swap": "swap",
    "Properties": "extra_specs",
}
"""Column of ``openstack flavor list --long -f json`` -> field of a flavor."""

Plain = dict[str, Any]


def add_setting(command: argparse.ArgumentParser) -> None:
    """Add the options for a flavor's figures, and for what narrows the hosts."""
    figures = command.add_argument_group("one flavor, in place of a file")
    figures.add_argument("--vcpus", type=int, metavar="N")
    figures.add_argument("--ram", type=int, metavar="MIB")
    for name, unit in ("disk", "GIB"), ("ephemeral", "GIB"), ("swap", "MIB"):
        figures.add_argument(f"--{name}", type=int, metavar=unit, help="default: 0")
    figures.add_argument(
        "--property",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="an extra spec, such as trait:HW_CPU_X86_AVX2=required; may be repeated",
    )
    setting = command.add_argument_group("what narrows the hosts; goes before the file")
    setting.add_argument("--cluster", metavar="NAME")
    setting.add_argument("--zone", metavar="NAME")
    setting.add_argument("--project", metavar="ID")
    for name, text in ("image-property", "a property of the image"), ("hint", "a scheduler hint"):
        setting.add_argument(
            f"--{name}",
            action="append",
            default=[],
            type=_pair,
            metavar="KEY=VALUE",
            help=f"{text}; may be repeated",
        )


def flavor_of(arguments: argparse.Namespace) -> Plain | None:
    """The flavor that the options describe; None: they name no figures."""
    found = {name: getattr(arguments, name) for name in _FLAVOR}
    found = {name: value for name, value in found.items() if value is not None}
    if arguments.property:
        found["extra_specs"] = dict(arguments.property)
    return found or None


def setting_of(arguments: argparse.Namespace, of_file: Mapping[str, Any]) -> Plain:
    """What narrows the hosts: that of the file, and of the options, which go before it."""
    found = dict(of_file)
    for name in ("cluster", "zone", "project"):
        if getattr(arguments, name) is not None:
            found[name] = getattr(arguments, name)
    for name, pairs in (
        ("image_properties", arguments.image_property),
        ("hints", arguments.hint),
    ):
        if pairs:
            found[name] = {**(found.get(name) or {}), **dict(pairs)}
    return found


def read(path: Path) -> Any:
    """A document in YAML or JSON; ``-`` is the standard input. Raises ConfigError."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: is no YAML: {' '.join(str(error).split())}") from None


def read_request(path: Path) -> Plain:
    """A request by hand. Raises ConfigError."""
    found = read(path)
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected a request, such as `flavor: {{vcpus: 2, ram: 4096}}`")
    return found


def read_flavors(path: Path) -> tuple[list[Plain], Plain]:
    """Flavors and their setting: a list, or fields ``flavors`` and ``setting``.

    The list may be what ``openstack flavor list --long -f json`` prints. Raises ConfigError.
    """
    found = read(path)
    setting: Any = {}
    if isinstance(found, dict) and found.keys() <= {"flavors", "setting"}:
        setting = found.get("setting") or {}
        found = found.get("flavors")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ConfigError(
            f"{path}: expected a list of flavors, such as `- {{name: m1, vcpus: 2, ram: 4096}}`"
        )
    if not isinstance(setting, dict):
        raise ConfigError(f"{path}: setting: expected fields, such as `zone: az1`")
    return [_from_openstack(each) if "VCPUs" in each else each for each in found], setting


def _from_openstack(columns: Plain) -> Plain:
    """An empty column, as that of a flavor without swap, is left out."""
    return {
        name: columns[column]
        for column, name in _OPENSTACK.items()
        if columns.get(column) not in (None, "")
    }


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, value
