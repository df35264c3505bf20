"""The exchanges of oVirt's Python SDK with a server of oVirt's form, recorded once, played again.

``tests/samples/ovirt_sdk`` has the requests of one session of ovirt-engine-sdk-python 4.6.3, in
order, with the answers that it accepted. Ids and tokens that this server makes take the place of
the recorded ones; statuses must be the same, and each answer has at least the recorded elements.
"""

import re
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from scheduler_worker.api.presentation import cluster_id
from scheduler_worker.service.documents.audit import Actor
from tests.support.rest import Rest
from tests.support.web import PASSWORD

SAMPLES = sorted((Path(__file__).parents[2] / "samples" / "ovirt_sdk").glob("*.txt"))
CLUSTER = "00000001-0001-0001-0001-000000000086"
OURS = {"full_version", "name", "vendor", "build", "revision", "time", "description", "detail"}
"""Elements whose texts are each server's own."""


class Exchange(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: str
    status: int
    answer: str


def recorded(text):
    asked, _, answered = text.partition("### RESPONSE\n")
    head, _, body = asked.removeprefix("### REQUEST\n").partition("\n\n")
    first, *lines = head.splitlines()
    method, path, _ = first.split()
    headers = dict(line.split(": ", 1) for line in lines)
    head, _, answer = answered.partition("\n\n")
    status = int(head.split()[1])
    return Exchange(method, path, headers, body.strip(), status, answer.strip())


EXCHANGES = [recorded(path.read_text()) for path in SAMPLES]


def missing(wanted: ET.Element, found: ET.Element, path: str = "") -> list[str]:
    """The elements, attributes and texts of one tree that another does not have."""
    path = f"{path}/{wanted.tag}"
    if wanted.tag != found.tag:
        return [f"{path}: {found.tag}"]
    lacking = [f"{path}@{name}" for name, value in wanted.items() if found.get(name) != value]
    if wanted.tag not in OURS and (wanted.text or "") != (found.text or ""):
        lacking.append(f"{path}: {found.text!r} instead of {wanted.text!r}")
    for child in wanted:
        same = [each for each in found if each.tag == child.tag]
        found_in = [missing(child, each, path) for each in same]
        if not found_in:
            lacking.append(f"{path}/{child.tag}")
        elif all(found_in):
            fewest: list[str] = min(found_in, key=len)
            lacking += fewest
    return lacking


@pytest.fixture(scope="module")
def played():
    """Every exchange with the answer of this server."""
    rest = Rest("Default")
    rest.administration.attach("Default", Actor("setup"), policy="none")
    names = {CLUSTER: cluster_id("Default"), "password=secret": f"password={PASSWORD}"}
    found = []
    for exchange in EXCHANGES:

        def ours(text):
            for old, new in names.items():
                text = text.replace(old, new)
            return text

        headers = {name: ours(value) for name, value in exchange.headers.items()}
        headers.pop("Content-Length", None)
        response = rest.request(
            exchange.method, ours(exchange.path), ours(exchange.body), user=None, headers=headers
        )
        made = response.headers.get("Location", "")
        if made:
            [old] = re.findall(r'scheduling_policy href="\S*/(\S+)" id', exchange.answer)
            names[old] = made.rpartition("/")[2]
        if exchange.path.endswith("/token"):
            [old] = re.findall(r'"access_token": "(\w+)"', exchange.answer)
            names[old] = response.get_json()["access_token"]
        found.append((exchange, ours(exchange.answer), response))
    return found


@pytest.mark.parametrize("number", range(len(EXCHANGES)), ids=[path.stem for path in SAMPLES])
def test_the_answer_is_as_recorded(played, number):
    exchange, wanted, response = played[number]
    assert response.status_code == exchange.status, response.get_data(as_text=True)
    if not wanted.startswith("<?xml"):
        assert response.mimetype == "application/json"
        assert response.get_json().keys() >= ({"access_token"} if "token" in wanted else set())
        return
    assert response.mimetype == "application/xml"
    if "schedulingpolicyunits" in exchange.path and exchange.status == 200:
        assert ET.fromstring(response.data).tag == ET.fromstring(wanted).tag
        return
    lacking = missing(ET.fromstring(wanted), ET.fromstring(response.data))
    assert lacking == []


def test_all_of_them_are_here():
    assert len(EXCHANGES) == 47
