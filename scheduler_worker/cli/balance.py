"""``scheduler-workerctl balance``: switches the balances of clusters, and shows what they do."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import Any

from scheduler_worker.cli.commands import add_command
from scheduler_worker.cli.connection import add_connection, connected
from scheduler_worker.model.power_ledger import phrase
from scheduler_worker.wording import listed

_ON = """\
Let the balance of a cluster's policy act: its proposals are asked for, as `show` and the workers'
logs show them in a dry run. This holds for the policy that is in force now, in whatever version:
under another policy the workers' default applies again.
"""
_OFF = """\
Stop the balance of a cluster. Once this returns nothing more is asked for; migrations that are
under way go on. It holds until it is changed, under whatever policy.
"""
_DRY_RUN = """\
Let the balance of a cluster say what it would do, in the workers' logs and in `show`, and do
nothing. It holds until it is changed, under whatever policy.
"""
_DEFAULT = """\
Withdraw the mode that was set for a cluster: the workers' own applies again, [balancing] mode,
which is dry_run unless their configuration says otherwise.
"""
_SHOW = """\
Show for each cluster, or for one, what its balance does: the mode, what the last round proposed and
why, or why nothing; the migrations and the power action under way; the VMs and hosts that wait
after a failure; and the hosts whose highly available VMs would find no room if they failed.

  east: spread@3, EvenLoad, on
    last round: nothing, because no host has had too much load for long enough
    under way: web7 from h1 to h4: h1 has a load of 93 %, 80 % and more is too much
"""
_MODES = {
    "on": (_ON, "on", "let a cluster's balance act"),
    "off": (_OFF, "off", "stop a cluster's balance"),
    "dry-run": (_DRY_RUN, "dry_run", "let a cluster's balance only say what it would do"),
    "default": (_DEFAULT, None, "return a cluster to the workers' default"),
}


def add_to(groups: Any) -> None:
    """Add the group to the parsers of all groups."""
    group = groups.add_parser("balance", help="the balances of clusters; asks the workers")
    commands = group.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, (text, mode, brief) in _MODES.items():
        command = add_command(commands, name, text, brief)
        command.add_argument("cluster", metavar="CLUSTER")
        add_connection(command)
        command.set_defaults(run=partial(_switch, mode))
    show = add_command(commands, "show", _SHOW, "show what balances do")
    show.add_argument("cluster", metavar="CLUSTER", nargs="?", help="default: all")
    show.add_argument("--json", action="store_true", help="print all that is known, as JSON")
    add_connection(show)
    show.set_defaults(run=_show)


def _switch(mode: str | None, arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        client.set_balancing(arguments.cluster, mode)
        shown = client.get_balancing(arguments.cluster)
    sys.stdout.write(text_of(shown))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        found = client.get_balancing(arguments.cluster)
    text = f"{json.dumps(found, indent=2)}\n" if arguments.json else text_of(found)
    sys.stdout.write(text)
    return 0


def text_of(found: dict[str, Any]) -> str:
    """The answer of ``get_balancing`` for a terminal."""
    lines = []
    for cluster, each in found.items():
        if each["balance"] is None:
            lines.append(f"{cluster}: {each['policy']} has no balance")
            continue
        default = " (default)" if each["is_default"] else ""
        lines.append(f"{cluster}: {each['policy']}, {each['balance']}, {each['mode']}{default}")
        lines += _of_round(each["last_round"])
        for asked in each["under_way"]:
            to = asked["destination"] or listed(asked["candidates"][:-1])
            lines.append(
                f"  under way: {asked['vm']} from {asked['source']} to {to}: {asked['reason']}"
            )
        lines += [
            f"  waits after {setback['failures']} failed migrations: {vm}: {setback['why']}"
            for vm, setback in each["waiting"].items()
        ]
        lines += _of_power(each)
    return "".join(f"{line}\n" for line in lines)


def _of_power(found: dict[str, Any]) -> list[str]:
    lines = []
    if asked := found["power_under_way"]:
        lines.append(f"  under way: {asked['host']} {phrase(asked['to'])}: {asked['reason']}")
    lines += [
        f"  waits after {setback['failures']} failed power actions: {host}: {setback['why']}"
        for host, setback in found["power_waiting"].items()
    ]
    if unprotected := (found["last_round"] or {}).get("unprotected_hosts"):
        lines.append(f"  no room for the highly available VMs of: {listed(unprotected)}")
    return lines


def _of_round(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["  there was no round yet"]
    lines = [
        f"  last round: {each['vm']} from {each['source']} to {_destinations(each)}: "
        f"{each['reason']}; {each['outcome']}"
        for each in found["considered"]
    ]
    lines += [
        f"  last round: {each['host']} {phrase(each['to'])}: {each['reason']}; {each['outcome']}"
        for each in found.get("power", ())
    ]
    if found["nothing_because"]:
        lines.append(f"  last round: nothing, because {found['nothing_because']}")
    return lines


def _destinations(considered: dict[str, Any]) -> str:
    names, more = considered["destinations"], considered.get("more_destinations", 0)
    return listed(names, more=more)
