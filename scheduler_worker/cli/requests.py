"""Requests and flavors from files and options, for the commands ``explain`` and ``capacity``."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scheduler_worker.errors import ConfigError

_FIGURES = {
    "vcpus": "vcpus",
    "ram": "memory_mb",
    "disk": "root_gb",
    "ephemeral": "ephemeral_gb",
    "swap": "swap",
}
"""Option, as of ``openstack flavor create`` -> field of Nova's Flavor."""
_COLUMNS = {
    "Name": "name",
    "VCPUs": "vcpus",
    "RAM": "memory_mb",
    "Disk": "root_gb",
    "Ephemeral": "ephemeral_gb",
    "Swap": "swap",
    "Properties": "extra_specs",
}
"""Column of ``openstack flavor list --long -f json`` -> field of Nova's Flavor."""

Plain = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for a flavor's figures, and for what narrows the hosts."""
    figures = parser.add_argument_group("one flavor, in place of a file")
    figures.add_argument("--vcpus", type=int, metavar="N")
    figures.add_argument("--ram", type=int, metavar="MIB")
    for name, unit in ("disk", "GIB"), ("ephemeral", "GIB"), ("swap", "MIB"):
        figures.add_argument(f"--{name}", type=int, metavar=unit, help="default: 0")
    narrowing = parser.add_argument_group("what narrows the hosts; goes before the file")
    narrowing.add_argument("--cluster", metavar="NAME")
    narrowing.add_argument("--zone", metavar="NAME")
    narrowing.add_argument("--project", metavar="ID")
    for group, name, text in (
        (figures, "property", "an extra spec, such as trait:HW_CPU_X86_AVX2=required"),
        (narrowing, "image-property", "a property of the image"),
        (narrowing, "hint", "a scheduler hint"),
    ):
        group.add_argument(
            f"--{name}",
            action="append",
            default=[],
            type=_pair,
            metavar="KEY=VALUE",
            help=f"{text}; may be repeated",
        )


def flavor_of(arguments: argparse.Namespace) -> Plain | None:
    """The flavor that the options describe; None: they name no figures."""
    figures = {field: getattr(arguments, option) for option, field in _FIGURES.items()}
    figures = {name: value for name, value in figures.items() if value is not None}
    if arguments.property:
        figures["extra_specs"] = dict(arguments.property)
    return figures or None


def narrowed(spec: Mapping[str, Any], arguments: argparse.Namespace) -> Plain:
    """A request with what the options say, which goes before it."""
    request = dict(spec)
    if arguments.zone is not None:
        request["availability_zone"] = arguments.zone
    if arguments.project is not None:
        request["project_id"] = arguments.project
    hints = dict(arguments.hint)
    if arguments.cluster is not None:
        hints["cluster"] = arguments.cluster
    if hints:
        request["scheduler_hints"] = {**(request.get("scheduler_hints") or {}), **hints}
    if arguments.image_property:
        image = dict(request.get("image") or {})
        image["properties"] = {**(image.get("properties") or {}), **dict(arguments.image_property)}
        request["image"] = image
    return request


def read(path: Path) -> Any:
    """A document in YAML or JSON; ``-`` is the standard input. Raises ConfigError."""
    import yaml

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: is no YAML: {' '.join(str(error).split())}") from None


def read_request(path: Path) -> Plain:
    """A request. Raises ConfigError."""
    request = read(path)
    if not isinstance(request, dict):
        raise ConfigError(
            f"{path}: expected a request, such as `flavor: {{vcpus: 2, memory_mb: 4096}}`"
        )
    return request


def read_flavors(path: Path) -> tuple[list[Plain], Plain]:
    """Flavors and a request without one: a list, or fields ``flavors`` and ``spec_obj``.

    The list may be what ``openstack flavor list --long -f json`` prints. Raises ConfigError.
    """
    document = read(path)
    has_both = isinstance(document, dict) and document.keys() <= {"flavors", "spec_obj"}
    flavors = document.get("flavors") if has_both else document
    spec = document.get("spec_obj") or {} if has_both else {}
    if not isinstance(flavors, list) or not all(isinstance(flavor, dict) for flavor in flavors):
        raise ConfigError(
            f"{path}: expected a list of flavors, such as "
            "`- {name: m1, vcpus: 2, memory_mb: 4096}`"
        )
    if not isinstance(spec, dict):
        raise ConfigError(f"{path}: spec_obj: expected fields, such as `availability_zone: az1`")
    return [_from_openstack(flavor) if "VCPUs" in flavor else flavor for flavor in flavors], spec


def _from_openstack(columns: Plain) -> Plain:
    """An empty column, as that of a flavor without swap, is left out."""
    return {
        name: columns[column]
        for column, name in _COLUMNS.items()
        if columns.get(column) not in (None, "")
    }


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, value
