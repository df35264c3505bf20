"""``cluster list`` and ``cluster show``."""

from __future__ import annotations

import argparse
from functools import partial

from scheduler_worker.cli.fleet.commands import (
    FleetCommand,
    FleetLister,
    FleetShow,
    Listed,
    Optional,
    Row,
    Table,
    add_paging,
    pages,
    the_one,
)
from scheduler_worker.client import SchedulerClient


class ListClusters(FleetLister):
    """List the clusters with their hosts and live reservations.

    The version of a cluster grows with each change of its hosts, reservations or policy.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_paging(parser, "a cluster's name")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Table:
        rows = pages(client.list_clusters, "clusters", arguments)
        columns = ("Cluster", "Hosts", "Reservations", "Version")
        return columns, [tuple(each[key.lower()] for key in columns) for each in rows]


class ShowCluster(FleetShow):
    """Show a cluster: its hosts by state, reservations, policy and balance.

    Resources are those of its hosts: in all, used by their own reports, and reserved beside that.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Table:
        name = arguments.cluster
        everything = argparse.Namespace(marker=None, limit=None)
        listed = pages(client.list_clusters, "clusters", everything)
        found = the_one("cluster", name, [each for each in listed if each["cluster"] == name])
        hosts = [*pages(partial(client.list_hosts, name), "hosts", everything)]
        policy = client.get_cluster_policy(name)
        balancing = client.get_balancing(name)[name]
        fields = {
            "Cluster": name,
            "Version": found["version"],
            "Hosts": len(hosts),
            **{
                f"Hosts {state.title()}": sum(each.get("state") == state for each in hosts)
                for state in ("up", "down", "disabled")
            },
            "VCPUs": _sum(hosts, "vcpus"),
            "VCPUs Used": _sum(hosts, "vcpus_used"),
            "VCPUs Reserved": sum(each["promised"]["vcpus"] for each in hosts),
            "Memory MB": _sum(hosts, "memory_mb"),
            "Memory MB Used": _sum(hosts, "memory_mb_used"),
            "Memory MB Reserved": sum(each["promised"]["memory_mb"] for each in hosts),
            "Reservations": found["reservations"],
            "Policy": policy["name"],
            "Policy Version": policy["version"],
            "Filters": Listed([each["unit"] for each in policy.get("filters", ())]),
            "Weights": Listed([each["unit"] for each in policy.get("weights", ())]),
            "Balance": Optional(balancing["balance"]),
            "Balance Mode": balancing["mode"],
        }
        return tuple(fields), tuple(fields.values())


def _sum(hosts: list[Row], field: str) -> int:
    return sum(each[field] for each in hosts)


COMMANDS: dict[str, type[FleetCommand]] = {
    "cluster list": ListClusters,
    "cluster show": ShowCluster,
}
