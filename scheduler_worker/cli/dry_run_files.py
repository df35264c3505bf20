"""Reads the inputs of a dry run: a file of samples, and one of parameters."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from scheduler_worker.cli.files import read_yaml
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.service.tuning.statistics import sample_of
from scheduler_worker.tuning.samples import Sample, Value

HOST = "host"
"""The name of the sampled host."""
_KEYS = {"load": 1, "vms": 2, "cycles": 0}
"""Key of a sample -> the levels of mappings that its value must have."""


def read_parameters(path: Path) -> dict[str, Value]:
    """Return the parameters that rules see under ``policy``, by name. Raises ConfigError."""
    parameters = read_yaml(path)
    if parameters is None:
        return {}
    _expect_mapping(parameters, f"{path}: ", "names and values, such as 'io_threshold: 500'")
    for name, value in parameters.items():
        if not isinstance(value, bool | int | float | str | None):
            raise ConfigError(
                f"{path}: {name}: write a number, true, false or a text, not {_shown(value)}"
            )
    return {name: value for name, value in parameters.items() if value is not None}


def read_samples(path: Path, parameters: Mapping[str, Value], *, at_most: int) -> list[Sample]:
    """Return a sample for each cycle that a file describes, ``at_most`` this many.

    Raises ConfigError, which names the entry.
    """
    document = read_yaml(path)
    _expect_mapping(document, f"{path}: ", "'samples:' and a list")
    entries = document.pop("samples", None)
    if document:
        raise ConfigError(f"{path}: {_unknown(next(iter(document)), ['samples'])}")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{path}: samples: write a list with an entry for each change")
    samples: list[Sample] = []
    report: Any = {}
    for number, entry in enumerate(entries, 1):
        where = f"{path}: sample {number}"
        cycles = _check_entry(entry, where)
        if len(samples) + cycles > at_most:
            raise ConfigError(f"{where}.cycles: the file has more than {at_most} cycles")
        try:
            report = _patched(report, entry)
        except RecursionError as error:
            raise ConfigError(f"{where}: is nested too deeply, or contains itself") from error
        samples += [_sample(report, parameters)] * cycles
    return samples


def _sample(report: Mapping[str, Any], parameters: Mapping[str, Value]) -> Sample:
    record = HostRecord(
        uuid=HOST,
        host=HOST,
        nodename=HOST,
        cluster="",
        reported_at_s=0.0,
        vcpus=0,
        memory_mb=0,
        local_gb=0,
        load=report.get("load", {}),
        vms={name: {"name": name} | vm for name, vm in report.get("vms", {}).items()},
    )
    return sample_of(record, parameters, record.vms)


def _patched(before: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396): mappings are merged, null deletes."""
    if not isinstance(patch, dict):
        return patch
    patched = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            patched.pop(key, None)
        else:
            patched[key] = _patched(patched.get(key), value)
    return patched


# Shapes


def _check_entry(entry: Any, where: str) -> int:
    """Check that an entry has the shape of a report; return its number of cycles."""
    _expect_mapping(entry, f"{where}: ", "'load:', 'vms:' and 'cycles:', as far as they change")
    for key, value in entry.items():
        if key not in _KEYS:
            raise ConfigError(f"{where}: {_unknown(key, _KEYS)}")
        _check_levels(value, f"{where}.{key}", _KEYS[key])
    for name, vm in (entry.get("vms") or {}).items():
        _check_levels((vm or {}).get("disks"), f"{where}.vms.{name}.disks", 2)
    cycles = entry.get("cycles", 1)
    if type(cycles) is not int or cycles < 1:
        raise ConfigError(f"{where}.cycles: write a whole number above 0, not {cycles!r}")
    return cycles


def _check_levels(value: Any, where: str, levels: int) -> None:
    if value is None or not levels:
        return
    _expect_mapping(value, f"{where}: ", "names and their values")
    for name, inner in value.items():
        _check_levels(inner, f"{where}.{name}", levels - 1)


def _expect_mapping(value: Any, where: str, what: str) -> None:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}write a mapping of {what}, not {_shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(f"{where}write the name {key!r} in quotes; names are texts")


def _unknown(key: str, known: Any) -> str:
    close = get_close_matches(key, known, 1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
    return f"{key!r} is not known here; {hint}"


def _shown(value: Any) -> str:
    shown = repr(value)
    return "nothing" if value is None else shown if len(shown) <= 60 else f"{shown[:57]}..."
