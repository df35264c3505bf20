"""Any body, parameter and path gets an answer: never a defect, and nothing is half done."""

import json
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.api.presentation import cluster_id
from tests.support.rest import BALANCE, CPU, CPU_WEIGHT, MEMORY, NONE, Rest
from tests.support.trials import examples

REST = Rest("east")
POLICY = (
    REST.request(
        "POST", "/schedulingpolicies", "<scheduling_policy><name>some</name></scheduling_policy>"
    )
    .headers["Location"]
    .rpartition("/")[2]
)

NAMES = st.sampled_from(
    [
        *("name", "id", "description", "properties", "property", "value", "position", "factor"),
        *("scheduling_policy_unit", "scheduling_policy", "custom_scheduling_policy_properties"),
        *("thresholds", "high", "low", "duration", "locked", "policy", "filters", "filter", "link"),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=12)
    | st.sampled_from(
        [CPU, MEMORY, CPU_WEIGHT, BALANCE, NONE, "nova", "none", "HighUtilization", "70", "-1", ";"]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
ROUTES = [
    ("POST", "/schedulingpolicies"),
    ("PUT", f"/schedulingpolicies/{POLICY}"),
    ("POST", f"/schedulingpolicies/{POLICY}/clone"),
    ("POST", f"/schedulingpolicies/{POLICY}/filters"),
    ("POST", f"/schedulingpolicies/{POLICY}/weights"),
    ("POST", f"/schedulingpolicies/{POLICY}/balances"),
    ("PUT", f"/clusters/{cluster_id('east')}"),
    ("POST", "/clusters"),
]


# To draw a body costs more than to send it everywhere.


@examples(40)
@given(body=st.dictionaries(NAMES, VALUES, max_size=5) | VALUES)
def test_any_json_body_is_answered(body):
    text = json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    for method, path in ROUTES:
        before = REST.state()
        response = REST.request(method, path, text, headers=headers)
        answer = response.get_json()
        assert response.status_code in {200, 201, 400, 409}, (method, path, answer)
        if response.status_code >= 400:
            assert answer["reason"]
            assert answer["detail"]
            assert REST.state() == before, (method, path)


def refused_or_done(response, before):
    """Whether a request was refused, and then changed nothing, or was done; never a defect."""
    about = response.request.method, response.request.path, response.data
    assert response.status_code in {200, 201, 400, 409}, about
    if response.status_code >= 400:
        assert b"<fault>" in response.data, about
        assert REST.state() == before, about


XML_NAMES = NAMES | st.sampled_from(["cluster", "weight", "balance", "action", "thresholds", "x:y"])
XML_TEXTS = st.text(max_size=12) | SCALARS.filter(lambda value: value is not None).map(str)
ATTRIBUTES = st.dictionaries(st.sampled_from(["id", "href", "rel", "type"]), XML_TEXTS, max_size=2)


def element(name, attributes, content):
    listed = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    return f"<{name}{listed}>{content}</{name}>"


TREES = st.recursive(
    st.builds(element, XML_NAMES, ATTRIBUTES, XML_TEXTS.map(escape)),
    lambda inner: st.builds(
        element, XML_NAMES, ATTRIBUTES, st.lists(inner, max_size=4).map("".join)
    ),
    max_leaves=12,
)


@examples(40)
@given(root=XML_NAMES, attributes=ATTRIBUTES, content=st.lists(TREES, max_size=5).map("".join))
def test_any_xml_tree_is_answered(root, attributes, content):
    body = element(root, attributes, content).encode(errors="surrogatepass")
    for method, path in ROUTES:
        before = REST.state()
        refused_or_done(REST.request(method, path, body), before)


VALID = [
    (
        "PUT",
        f"/schedulingpolicies/{POLICY}",
        b"<scheduling_policy><name>some</name><description>a &amp; b</description><properties>"
        b"<property><name>HighUtilization</name><value>70</value></property></properties>"
        b"</scheduling_policy>",
    ),
    (
        "POST",
        f"/schedulingpolicies/{POLICY}/filters",
        f'<filter><position>1</position><scheduling_policy_unit id="{CPU}"/></filter>'.encode(),
    ),
    (
        "PUT",
        f"/clusters/{cluster_id('east')}",
        f'<cluster><scheduling_policy id="{NONE}"/><custom_scheduling_policy_properties><property>'
        "<name>HighUtilization</name><value>75</value></property>"
        "</custom_scheduling_policy_properties></cluster>".encode(),
    ),
]
INSERTED = st.binary(min_size=1, max_size=4) | st.sampled_from(
    [
        *(b"<", b">", b"&", b"]]>", b"<![CDATA[", b"<!--", b"<?x?>", b"&#0;", b"&#xD800;", b"&x;"),
        *(b'<!DOCTYPE a [<!ENTITY b "c">]>', b"\xff", b"\x00", b"</name>", b'"', b"xmlns='u'"),
    ]
)


@pytest.mark.parametrize(("method", "path", "body"), VALID, ids=[each[1] for each in VALID])
@given(edits=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 8), INSERTED), max_size=4))
def test_a_mutated_xml_body_is_answered(method, path, body, edits):
    before = REST.state()
    for at, removed, inserted in edits:
        at = min(at, len(body))
        body = body[:at] + inserted + body[at + removed :]
    refused_or_done(REST.request(method, path, body), before)


@pytest.mark.parametrize("query", ["max", "follow", "search", "correlation_id"])
@given(value=st.text(max_size=30))
def test_any_parameter_is_answered(query, value):
    for path in ("/schedulingpolicies", "/clusters", f"/schedulingpolicies/{POLICY}/filters"):
        response = REST.request("GET", path, query_string={query: value})
        assert response.status_code in {200, 400}


@given(
    path=st.text(max_size=40),
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]),
)
def test_any_path_is_answered(path, method):
    response = REST.request(method, f"/{path.lstrip('/')}")
    assert response.status_code < 500
