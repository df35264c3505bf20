"""``scheduler-workerctl balance``: switches the balances of clusters, and shows what they do."""

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from scheduler_worker.cli.bind import FleetCommand, json_of
from scheduler_worker.model.cluster_load import Mode
from scheduler_worker.model.host_records import phrase
from scheduler_worker.operations.balancing import (
    Balancing,
    BalancingRound,
    NewMode,
    get_balancing,
    list_balancing,
    set_balancing_mode,
    withdraw_balancing_mode,
)
from scheduler_worker.operations.clusters import InCluster
from scheduler_worker.operations.operation import PageQuery
from scheduler_worker.wording import listed, one_line

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient


class _Switch(FleetCommand):
    mode: Mode | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")

    def ask(self, client: "SchedulerClient", arguments: argparse.Namespace) -> int:
        cluster = InCluster(arguments.cluster)
        if self.mode is None:
            client.call(withdraw_balancing_mode, cluster)
        else:
            client.call(set_balancing_mode, NewMode(arguments.cluster, self.mode))
        sys.stdout.write(text_of([client.call(get_balancing, cluster)]))
        return 0


class SwitchOn(_Switch):
    """Let the balance of a cluster's policy act.

    Its proposals are asked for, as `show` and the workers' logs show them in a dry run. This holds
    for the policy that is in force now, in whatever version: under another policy the workers'
    default applies again.
    """

    mode = "on"


class SwitchOff(_Switch):
    """Stop the balance of a cluster.

    Once this returns nothing more is asked for; migrations that are under way go on. It holds until
    it is changed, under whatever policy.
    """

    mode = "off"


class SwitchToDryRun(_Switch):
    """Let the balance of a cluster say what it would do, in the workers' logs and in `show`, and do
    nothing.

    It holds until it is changed, under whatever policy.
    """

    mode = "dry_run"


class WithdrawMode(_Switch):
    """Withdraw the mode that was set for a cluster.

    The workers' own applies again, [balancing] mode, which is dry_run unless their configuration
    says otherwise.
    """

    mode = None


class ShowBalances(FleetCommand):
    """Show for each cluster, or for one, what its balance does.

    It prints the mode, and what the last round proposed and why. It lists the migrations and the
    power action under way, and the VMs and hosts that wait after a failure. It names the hosts
    whose highly available VMs would find no room if they failed.

      east: spread@3, EvenLoad, on
        last round: nothing, because no host has had too much load for long enough
        under way: web7 from h1 to h4: h1 has a load of 93 %, 80 % and more is too much
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER", nargs="?", help="default: all")
        parser.add_argument("--json", action="store_true", help="print all that is known, as JSON")

    def ask(self, client: "SchedulerClient", arguments: argparse.Namespace) -> int:
        if arguments.cluster is None:
            statuses = list(client.every(list_balancing, PageQuery()))
        else:
            statuses = [client.call(get_balancing, InCluster(arguments.cluster))]
        by_cluster = {status.cluster: status for status in statuses}
        sys.stdout.write(json_of(by_cluster) if arguments.json else text_of(statuses))
        return 0


def text_of(statuses: Iterable[Balancing]) -> str:
    """What is known of balancing, for a terminal."""
    lines = []
    for status in statuses:
        cluster = status.cluster
        if status.balance is None:
            lines.append(f"{cluster}: {status.policy} has no balance")
            continue
        default = " (default)" if status.origin == "default" else ""
        lines.append(f"{cluster}: {status.policy}, {status.balance}, {status.mode}{default}")
        lines += _of_round(status.last_round)
        for asked in status.under_way:
            to = asked.destination or listed(asked.candidates[:-1])
            lines.append(f"  under way: {asked.vm} from {asked.source} to {to}: {asked.reason}")
        lines += [
            f"  waits after {setback.failures} failed migrations: {setback.vm}: {setback.why}"
            for setback in status.waiting
        ]
        lines += _of_power(status)
    return "".join(f"{one_line(line)}\n" for line in lines)


def _of_power(status: Balancing) -> list[str]:
    lines = []
    if asked := status.power_under_way:
        lines.append(f"  under way: {asked.host} {phrase(asked.to)}: {asked.reason}")
    lines += [
        f"  waits after {setback.failures} failed power actions: {setback.host}: {setback.why}"
        for setback in status.power_waiting
    ]
    if unprotected := status.last_round and status.last_round.unprotected_hosts:
        lines.append(f"  no room for the highly available VMs of: {listed(unprotected)}")
    return lines


def _of_round(last_round: BalancingRound | None) -> list[str]:
    if last_round is None:
        return ["  there was no round yet"]
    lines = [
        f"  last round: {considered.vm} from {considered.source} to "
        f"{listed(considered.destinations, more=considered.more_destinations)}: "
        f"{considered.reason}; {considered.outcome}"
        for considered in last_round.considered
    ]
    lines += [
        f"  last round: {action.host} {phrase(action.to)}: {action.reason}; {action.outcome}"
        for action in last_round.power
    ]
    if last_round.nothing_because:
        lines.append(f"  last round: nothing, because {last_round.nothing_because}")
    return lines
