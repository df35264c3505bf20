"""What tests of the REST API send in oVirt's form, and how they read the answers."""

from xml.etree import ElementTree as ET

from scheduler_worker.api.presentation import cluster_id
from tests.support.rest import BALANCE

JSON = {"Accept": "application/json", "Content-Type": "application/json"}
V3 = {"Version": "3"}


def xml(response, status=200):
    assert response.status_code == status, response.get_data(as_text=True)
    return ET.fromstring(response.data)


def fault(response, status, reason="Operation Failed"):
    root = xml(response, status)
    assert root.tag == "fault"
    assert root.findtext("reason") == reason
    return root.findtext("detail")


def made(rest, name="packing", **options):
    text = f"<scheduling_policy><name>{name}</name></scheduling_policy>"
    return xml(rest.request("POST", "/schedulingpolicies", text, **options), 201).get("id")


def add(rest, policy, kind, unit, more="", **options):
    element = kind.removesuffix("s")
    text = f'<{element}>{more}<scheduling_policy_unit id="{unit}"/></{element}>'
    return rest.request("POST", f"/schedulingpolicies/{policy}/{kind}", text, **options)


def update(rest, policy, text, **options):
    text = f"<scheduling_policy>{text}</scheduling_policy>"
    return rest.request("PUT", f"/schedulingpolicies/{policy}", text, **options)


def properties(**values):
    listed = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in values.items()
    )
    return f"<properties>{listed}</properties>"


def own_properties(**values):
    return properties(**values).replace("properties>", "custom_scheduling_policy_properties>")


def attach(rest, cluster, policy, more="", **options):
    text = f'<cluster>{more}<scheduling_policy id="{policy}"/></cluster>'
    return rest.request("PUT", f"/clusters/{cluster_id(cluster)}", text, **options)


def balanced(rest, name="balanced"):
    """A policy with the unit that declares HighUtilization."""
    policy = made(rest, name)
    xml(add(rest, policy, "balances", BALANCE))
    return policy
