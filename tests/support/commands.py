"""Commands: what they print, and an example of each, in an order in which each of them succeeds.

The examples are lines of a shell, without the program's name. They run beside a worker ``one`` that
knows ``examples/hosts.yaml``, has placed the instance ``{instance}`` and tunes the host ``tuned``
by the policy in the file ``balloon.yaml``, in a folder of their own, with the worker's file where
programs read it by default. ``{root}`` is the checkout, ``{engine}``
the API of an oVirt engine, whose password is in the file ``password``.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from scheduler_worker.cli.program import CommandProgram

CTL: Mapping[str, str] = {
    "complete": "",
    "help": "policy edit",
    "worker list": "",
    "worker show": "one",
    "worker drain": "one --last --wait 60",
    "worker resume": "one",
    "worker dismiss": "w0",
    "host report": "{root}/examples/hosts.yaml",
    "host list": "--long",
    "host show": "compute-1",
    "host remove": "compute-3",
    "cluster list": "",
    "cluster show": "east",
    "decision list": "--instance {instance}",
    "decision show": "{instance}",
    "decision tail": "--no-follow",
    "reservation list": "",
    "reservation show": "{instance}",
    "reservation release": "{instance}",
    "explain": "--vcpus 2 --ram 4096",
    "capacity": "--vcpus 2 --ram 4096",
    "rehearse": "--since 1h --drain compute-1",
    "policy show": "east",
    "policy export": "east > policies.yaml",
    "policy import": "policies.yaml --yes",
    "policy attach": "east east west",
    "policy edit": "east",
    "policy diff": "east west",
    "policy list": "",
    "policy history": "nova",
    "cluster history": "west",
    "audit list": "--since 1h",
    "unit list": "",
    "unit enable": "SpareHosts",
    "unit disable": "SpareHosts",
    "unit remove": "SpareHosts",
    "balance dry-run": "east",
    "balance on": "east",
    "balance off": "east",
    "balance default": "east",
    "balance show": "",
    "policy detach": "east west",
    "policy remove": "east",
    "tuned-host list": "",
    "tuned-host show": "tuned",
    "tuning-policy set": "balloon balloon.yaml",
    "tuning-policy list": "",
    "tuning-policy show": "balloon",
    "tuning-alarm list": "",
    "tuning-policy withdraw": "balloon",
    "tuning-policy reset": "",
    "tuning schema": "",
    "tuning check": "{root}/etc/scheduler_worker/tuning/ksm.yaml",
    "tuning run": "{balloon}",
    "tuning explain": "{balloon}",
    "doctor": "",
}
"""``scheduler-workerctl``."""

MANAGE: Mapping[str, str] = {
    "complete": "",
    "help": "policy import",
    "db upgrade": "",
    "db version": "",
    "db restore": "--yes",
    "policy import-ovirt": "--url {engine} --user {user} --password-file password "
    "--skip-unknown-units --yes",
    "policy list": "",
    "policy history": "nova",
    "cluster history": "east",
    "audit list": "--since 1h",
    "policy export": "> stored.yaml",
    "policy import": "stored.yaml --yes",
    "policy show": "nova",
    "policy diff": "nova none",
    "policy attach": "limited west",
    "policy edit": "limited",
    "policy detach": "west",
    "policy remove": "limited",
    "unit list": "",
    "unit enable": "SpareHosts",
    "unit disable": "SpareHosts",
    "unit remove": "SpareHosts",
    "user add": "anna --role administrator < password",
    "user list": "",
    "user remove": "anna",
    "db downgrade": "base --yes",
}
"""``scheduler-worker-manage``."""


def of(program: CommandProgram) -> set[str]:
    """The names of a program's commands, as it has them."""
    return {name for name, _ in program.command_manager}


def plain(run: Callable[..., tuple[int, str, str]], *words: str) -> Any:
    """What a command prints as JSON; it succeeds and complains of nothing."""
    status, out, err = run(*words, "-f", "json")
    assert (status, err) == (0, "")
    return json.loads(out)
