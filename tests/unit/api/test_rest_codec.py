"""Resources as XML and JSON: what is written is read again, and bad texts are refused."""

import json
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.api import resource_types as types
from scheduler_worker.api.codec import (
    MAX_DEPTH,
    MAX_ELEMENTS,
    Collection,
    Form,
    MalformedBody,
    read,
    read_collection,
    write,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\t\n\r"))
PROPERTIES = st.none() | st.lists(
    st.builds(types.Property, name=TEXTS, value=TEXTS), max_size=3
).map(tuple)
UNITS = st.builds(
    types.Unit,
    id=TEXTS,
    name=st.none() | TEXTS,
    enabled=st.none() | st.booleans(),
    properties=PROPERTIES,
    type=st.sampled_from([None, "filter", "weight"]),
)
POLICIES = st.builds(
    types.Policy,
    id=st.none() | TEXTS,
    name=st.none() | TEXTS,
    locked=st.none() | st.booleans(),
    properties=PROPERTIES,
    link=st.none() | st.lists(st.builds(types.Link, href=TEXTS), min_size=1, max_size=3).map(tuple),
    thresholds=st.none() | st.builds(types.Thresholds, high=st.integers(), low=st.none()),
    filters=st.none()
    | st.lists(
        st.builds(
            types.Filter,
            position=st.none() | st.integers(-(2**60), 2**60),
            scheduling_policy_unit=st.none() | UNITS,
        ),
        max_size=3,
    ).map(tuple),
    weights=st.none()
    | st.lists(
        st.builds(types.Weight, factor=st.floats(allow_nan=False, allow_infinity=False)),
        max_size=3,
    ).map(tuple),
)


@pytest.mark.parametrize("form", Form)
@given(policy=POLICIES)
def test_what_is_written_is_read_again(form, policy):
    assert read(types.Policy, write(policy, form), form) == policy


@given(policy=POLICIES)
def test_xml_is_what_another_parser_reads(policy):
    root = ET.fromstring(write(policy, Form.XML))
    assert root.tag == "scheduling_policy"
    assert root.get("id") == policy.id
    found = root.find("name")
    assert (found.text or "" if found is not None else None) == policy.name


@given(st.text())
def test_any_text_can_be_written_in_xml(text):
    written = write(types.Fault(detail=text, reason=text), Form.XML)
    assert read(types.Fault, written, Form.XML).detail is not None


@pytest.mark.parametrize("form", Form)
@given(text=st.binary(max_size=200))
def test_bytes_are_read_or_refused(form, text):
    try:
        read(types.Policy, text, form)
    except MalformedBody as error:
        assert str(error)


def test_the_form_of_a_unit_in_xml():
    unit = types.Unit(
        id="6d",
        href="/u/6d",
        name="CPU",
        enabled=True,
        type="filter",
        properties=(types.Property(name="Ratio", value="^[0-2]$"),),
    )
    assert write(unit, Form.XML).decode() == (
        '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
        '<scheduling_policy_unit href="/u/6d" id="6d" type="filter"><name>CPU</name>'
        "<enabled>true</enabled><properties><property><name>Ratio</name>"
        "<value>^[0-2]$</value></property></properties>"
        "<type>filter</type></scheduling_policy_unit>"
    )


def test_the_form_of_resources_in_json():
    weight = types.Weight(id="w", factor=3.0, scheduling_policy_unit=types.Unit(internal=True))
    assert json.loads(write(weight, Form.JSON)) == {
        "id": "w",
        "factor": "3",
        "scheduling_policy_unit": {"internal": "true"},
    }
    policy = types.Policy(
        link=(types.Link(rel="filters"),), properties=(types.Property(name="a", value="b"),)
    )
    members = {
        "link": [{"rel": "filters"}],
        "properties": {"property": [{"name": "a", "value": "b"}]},
    }
    written = write(Collection(types.Policy, [policy]), Form.JSON)
    assert json.loads(written) == {"scheduling_policy": [members]}


def test_json_may_have_numbers_booleans_arrays_and_its_element_around_it():
    assert read(types.Filter, b'{"filter": {"position": -1}}', Form.JSON).position == -1
    unit = read(types.Unit, b'{"enabled": true, "properties": [{"name": "n"}]}', Form.JSON)
    assert unit == types.Unit(enabled=True, properties=(types.Property(name="n"),))
    assert read(types.Policy, b'{"properties": {}}', Form.JSON).properties == ()


@pytest.mark.parametrize("name", ["comment", "ha_reservation"])
def test_a_field_of_ovirt_that_means_nothing_here_is_accepted(name):
    text = f"<cluster><{name}>x</{name}><name>east</name></cluster>"
    assert read(types.Cluster, text.encode(), Form.XML) == types.Cluster(name="east")
    text = json.dumps({name: {"x": 1}, "name": "east"})
    assert read(types.Cluster, text.encode(), Form.JSON) == types.Cluster(name="east")


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (b"<filter><colour>c</colour><position>1</position></filter>", Form.XML),
        (b'{"position": 1, "colour": "c"}', Form.JSON),
    ],
)
def test_a_field_that_is_not_known_is_refused_and_an_attribute_ignored(text, form):
    with pytest.raises(MalformedBody, match="no field 'colour'"):
        read(types.Filter, text, form)
    text = b'<filter new="1"><position>1</position></filter>'
    assert read(types.Filter, text, Form.XML) == types.Filter(position=1)


def test_what_another_engine_tells_beside_is_ignored():
    text = b"<filters><filter><colour>c</colour><position>1</position></filter></filters>"
    assert read_collection(types.Filter, text) == [types.Filter(position=1)]


def test_a_kind_is_read_from_an_attribute_or_a_child():
    as_attribute = read(types.Unit, b'<scheduling_policy_unit type="filter"/>', Form.XML)
    text = b"<scheduling_policy_unit><type>filter</type></scheduling_policy_unit>"
    assert as_attribute == read(types.Unit, text, Form.XML) == types.Unit(type="filter")


DEEP = b"<a>" * (MAX_DEPTH + 1) + b"</a>" * (MAX_DEPTH + 1)
BOMB = (
    b'<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    b"<scheduling_policy><name>&b;</name></scheduling_policy>"
)
REFUSED_XML = {
    "no text": (b"", "no element found"),
    "no XML": (b"{}", "not well-formed XML"),
    "not closed": (b"<scheduling_policy>", "not well-formed XML"),
    "another element": (b"<filter/>", "is a <filter>, not a <scheduling_policy>"),
    "entities": (BOMB, "document type is not accepted"),
    "external entity": (
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><scheduling_policy/>',
        "document type is not accepted",
    ),
    "an unknown entity": (b"<scheduling_policy>&x;</scheduling_policy>", "not well-formed"),
    "an unknown encoding": (
        b'<?xml version="1.0" encoding="utf-99"?><scheduling_policy/>',
        "not well-formed",
    ),
    "deep": (DEEP, f"more than {MAX_DEPTH} deep"),
    "many": (
        b"<scheduling_policy>" + b"<a/>" * MAX_ELEMENTS + b"</scheduling_policy>",
        f"more than {MAX_ELEMENTS} elements",
    ),
    "no boolean": (
        b"<scheduling_policy><locked>perhaps</locked></scheduling_policy>",
        "scheduling_policy.locked: expected a boolean",
    ),
}


@pytest.mark.parametrize(("text", "why"), REFUSED_XML.values(), ids=REFUSED_XML)
def test_refused_xml(text, why):
    with pytest.raises(MalformedBody, match=re.escape(why)):
        read(types.Policy, text, Form.XML)


REFUSED_JSON = {
    "no text": (b"", "not well-formed JSON"),
    "no JSON": (b"<a/>", "not well-formed JSON"),
    "an array": (b"[]", "expected an object"),
    "deep": (b'{"properties": ' + b"[" * 100_000, f"more than {MAX_DEPTH} deep"),
    "many": (b'{"x": [%b1]}' % (b"1," * MAX_ELEMENTS), f"more than {MAX_ELEMENTS} elements"),
    "no list": (b'{"properties": 7}', "scheduling_policy.properties: expected a list"),
    "no object": (b'{"properties": [7]}', "expected an object"),
    "no boolean": (b'{"locked": "perhaps"}', "scheduling_policy.locked: expected a boolean"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED_JSON.values(), ids=REFUSED_JSON)
def test_refused_json(text, why):
    with pytest.raises(MalformedBody, match=re.escape(why)):
        read(types.Policy, text, Form.JSON)


def test_brackets_in_strings_are_no_nesting():
    text = json.dumps({"name": '\\"[' * 100}).encode()
    assert read(types.Policy, text, Form.JSON).name == '\\"[' * 100


def test_names_that_look_like_other_values_stay_texts():
    for name in ("null", "true", "1", "1e3"):
        text = f"<scheduling_policy><name>{name}</name></scheduling_policy>".encode()
        assert read(types.Policy, text, Form.XML).name == name
