"""Reads and writes resources as oVirt's XML and JSON, guided by ``resource_types``.

Both readers make the same plain values of a text, from which one conversion makes the resource.
Texts are limited in size, depth and number of elements, and an XML text must not have a document
type, so it cannot declare entities. A field that a type does not have is refused: the answer would
say that it was done. It is ignored if oVirt has it and it means nothing here, or if another engine
sent it.
"""

import functools
import json
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

import msgspec
from msgspec import Meta

from scheduler_worker.api.resource_types import Resource
from scheduler_worker.codec.typed import check_characters, explained
from scheduler_worker.conversion import convert
from scheduler_worker.errors import RequestError
from scheduler_worker.wording import cut

MAX_DEPTH = 16
"""Upper bound of nested elements, objects and arrays."""
MAX_ELEMENTS = 10_000
"""Upper bound of elements, or of values in JSON."""

AnyResource = TypeVar("AnyResource", bound=Resource)
Plain = dict[str, Any]

XML_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_TOO_DEEP = f"the text is nested more than {MAX_DEPTH} deep"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class MalformedBody(ValueError):
    """Raised for a text that is not a resource of the wanted type; says where and why."""


class Form(StrEnum):
    """How a resource is written."""

    XML = "application/xml"
    JSON = "application/json"


class _Place(StrEnum):
    CHILD = "child"
    ATTRIBUTE = "attribute"
    BOTH = "attribute and child"
    REPEATED = "repeated"
    LIST = "list"


class _Field(NamedTuple):
    name: str
    place: _Place
    resource: type[Resource] | None
    """The type of a nested resource, or of the members of a list."""


@functools.cache
def _fields(kind: type[Resource]) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_field(name, hints[name]) for name in kind.__struct_fields__)


def _field(name: str, hint: Any) -> _Field:
    place = _Place.CHILD
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
        place = next(_Place(m.extra["xml"]) for m in metadata if isinstance(m, Meta) and m.extra)
    nested = None
    for option in get_args(hint):
        if get_origin(option) is tuple:
            nested = get_args(option)[0]
            place = _Place.LIST if place is _Place.CHILD else place
        elif isinstance(option, type) and issubclass(option, Resource):
            nested = option
    return _Field(name, place, nested)


# Reading


def read(kind: type[AnyResource], text: bytes, form: Form) -> AnyResource:
    """The resource in a text. Raises MalformedBody."""
    plain = _plain_of_json(kind, text) if form is Form.JSON else _plain_of_xml(kind, text)
    try:
        check_characters(plain)
        return convert(plain, kind, strict=False)
    except msgspec.ValidationError as error:
        problem = explained(error, plain, kind)
    except RequestError as error:
        problem = error
    raise MalformedBody(f"{kind.element}{problem.field}: {problem.problem}")


def read_collection(kind: type[AnyResource], text: bytes) -> list[AnyResource]:
    """The members of a collection in XML, with any number of elements. Raises MalformedBody."""
    root = _parse(text, max_elements=None)
    if root.tag != kind.elements():
        raise MalformedBody(f"the text is a <{root.tag}>, not a <{kind.elements()}>")
    members = [_plain_of_element(kind, child, strict=False) for child in root.findall(kind.element)]
    try:
        return convert(members, list[kind], strict=False)  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise MalformedBody(f"{kind.elements()}: {error}") from None


class _Tree(ElementTree.TreeBuilder):
    """Builds the elements of an XML text, and stops as soon as a limit is exceeded."""

    def __init__(self, max_elements: int | None) -> None:
        super().__init__()
        self._max_elements = max_elements
        self._count = self._depth = 0

    def start(self, tag: str, attrs: dict[str, str]) -> Element:
        self._count += 1
        self._depth += 1
        _check_limits(self._depth, self._count, self._max_elements)
        return super().start(tag.rpartition("}")[2], attrs)  # without a namespace

    def end(self, tag: str) -> Element:
        self._depth -= 1
        return super().end(tag.rpartition("}")[2])

    def doctype(self, *_: object) -> None:
        raise MalformedBody("a document type is not accepted; leave out <!DOCTYPE ...>")


def _parse(text: bytes, max_elements: int | None = MAX_ELEMENTS) -> Element:
    # The tree refuses document types, so that no text declares entities.
    parser = ElementTree.XMLParser(target=_Tree(max_elements))  # noqa: S314
    try:
        parser.feed(text)
        root: Element = parser.close()
    except MalformedBody:
        raise
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise MalformedBody(f"this is not well-formed XML: {error}") from None
    return root


def _check_limits(depth: int, count: int, max_elements: int | None = MAX_ELEMENTS) -> None:
    if depth > MAX_DEPTH:
        raise MalformedBody(_TOO_DEEP)
    if max_elements is not None and count > max_elements:
        raise MalformedBody(f"the text has more than {max_elements} elements")


def _plain_of_xml(kind: type[Resource], text: bytes) -> Plain:
    root = _parse(text)
    if root.tag != kind.element:
        raise MalformedBody(f"the text is a <{root.tag}>, not a <{kind.element}>")
    return _plain_of_element(kind, root, strict=not kind.ignores_others)


def _plain_of_element(kind: type[Resource], element: Element, *, strict: bool) -> Plain:
    values: Plain = {}
    fields = {field.name: field for field in _fields(kind)}
    for name, value in element.attrib.items():
        if name in fields and fields[name].place in {_Place.ATTRIBUTE, _Place.BOTH}:
            values[name] = value
    for child in element:
        field = fields.get(child.tag)
        if field is None or field.place is _Place.ATTRIBUTE:
            _check_no_field(kind, child.tag, strict=strict)
            continue
        plain = _plain_of_child(field, child, strict=strict)
        if field.place is _Place.REPEATED:
            values.setdefault(field.name, []).append(plain)
        else:
            values[field.name] = plain
    return values


def _plain_of_child(field: _Field, child: Element, *, strict: bool) -> Any:
    if field.resource is None:
        return "".join(child.itertext())
    if field.place is _Place.LIST:
        return _plain_of_list(field.resource, child, strict=strict)
    return _plain_of_element(field.resource, child, strict=strict)


def _plain_of_list(kind: type[Resource], element: Element, *, strict: bool) -> list[Plain]:
    members = []
    for child in element:
        if child.tag == kind.element:
            members.append(_plain_of_element(kind, child, strict=strict))
        else:
            _check_no_field(kind, child.tag, strict=strict)
    return members


def _check_no_field(kind: type[Resource], name: str, *, strict: bool) -> None:
    if strict and name not in kind.ignored:
        raise MalformedBody(f"{kind.element}: there is no field {cut(name)!r}, so it cannot be set")


def _plain_of_json(kind: type[Resource], text: bytes) -> Plain:
    try:
        document = msgspec.json.decode(text)
    except RecursionError:
        raise MalformedBody(_TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody(f"this is not well-formed JSON: {error}") from None
    _check_limits(0, _count(document))
    if isinstance(document, dict) and list(document) == [kind.element]:
        document = document[kind.element]
    return _plain_of_object(kind, document, kind.element)


def _count(value: Any, depth: int = 0) -> int:
    """How many values are in a value of JSON. Raises MalformedBody where it is too deep."""
    if not isinstance(value, (dict, list)):
        return 1
    _check_limits(depth + 1, 0)
    members = value.values() if isinstance(value, dict) else value
    return 1 + sum(_count(member, depth + 1) for member in members)


def _plain_of_object(kind: type[Resource], value: Any, path: str) -> Plain:
    if not isinstance(value, dict):
        raise MalformedBody(f"{path}: expected an object")
    values: Plain = {}
    for name in value.keys() - {field.name for field in _fields(kind)}:
        _check_no_field(kind, name, strict=not kind.ignores_others)
    for field in _fields(kind):
        field_value = value.get(field.name)
        if field_value is None:
            continue
        where = f"{path}.{field.name}"
        if field.resource is None:
            values[field.name] = field_value
        elif field.place in {_Place.LIST, _Place.REPEATED}:
            values[field.name] = _plain_members(field, field_value, where)
        else:
            values[field.name] = _plain_of_object(field.resource, field_value, where)
    return values


def _plain_members(field: _Field, value: Any, path: str) -> list[Plain]:
    """A list is written as ``{"property": [...]}``; the array alone is accepted too."""
    assert field.resource is not None  # noqa: S101
    members = value
    if isinstance(value, dict):
        for name in value.keys() - {field.resource.element}:
            raise MalformedBody(f"{path}: there is no {cut(name)!r} in it")
        members = value.get(field.resource.element, [])
        members = [members] if isinstance(members, dict) else members
    if not isinstance(members, list):
        raise MalformedBody(f"{path}: expected a list")
    return [_plain_of_object(field.resource, member, path) for member in members]


# Writing


class Collection(NamedTuple):
    """The members of a collection, which are all of one type."""

    kind: type[Resource]
    members: Sequence[Resource]


def write(what: Resource | Collection, form: Form) -> bytes:
    """The text of a resource or a collection, in UTF-8."""
    if form is Form.JSON:
        if isinstance(what, Collection):
            document = {what.kind.element: [_to_json(member) for member in what.members]}
        else:
            document = _to_json(what)
        return json.dumps(document, ensure_ascii=False).encode(errors="replace")
    parts = [XML_HEAD]
    if isinstance(what, Collection):
        _list_to_xml(parts, what.kind.elements(), what.members)
    else:
        _to_xml(parts, what.element, what)
    return "".join(parts).encode()


def _to_json(resource: Resource) -> Plain:
    values: Plain = {}
    for field, value in _present(resource):
        if field.resource is None:
            values[field.name] = _text(value)
        elif field.place is _Place.LIST:
            values[field.name] = {field.resource.element: [_to_json(member) for member in value]}
        elif field.place is _Place.REPEATED:
            values[field.name] = [_to_json(member) for member in value]
        else:
            values[field.name] = _to_json(value)
    return values


def _present(resource: Resource) -> Iterable[tuple[_Field, Any]]:
    for field in _fields(type(resource)):
        value = getattr(resource, field.name)
        if value is not None:
            yield field, value


def _text(value: str | bool | int | float) -> str:
    """A value as text, also in JSON, as oVirt writes it; whole numbers without a fraction."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _to_xml(parts: list[str], name: str, resource: Resource) -> None:
    present = list(_present(resource))
    parts.append(f"<{name}")
    for field, value in present:
        if field.place in {_Place.ATTRIBUTE, _Place.BOTH}:
            parts.append(f" {field.name}={quoteattr(_valid(_text(value)))}")
    parts.append(">")
    for field, value in present:
        if field.place is not _Place.ATTRIBUTE:
            _child_to_xml(parts, field, value)
    parts.append(f"</{name}>")


def _child_to_xml(parts: list[str], field: _Field, value: Any) -> None:
    if field.resource is None:
        # A reader makes a bare carriage return a line feed.
        text = escape(_valid(_text(value)), {"\r": "&#13;"})
        parts.append(f"<{field.name}>{text}</{field.name}>")
    elif field.place is _Place.LIST:
        _list_to_xml(parts, field.name, value)
    elif field.place is _Place.REPEATED:
        for member in value:
            _to_xml(parts, field.resource.element, member)
    else:
        _to_xml(parts, field.name, value)


def _list_to_xml(parts: list[str], name: str, members: Iterable[Resource]) -> None:
    parts.append(f"<{name}>")
    for member in members:
        _to_xml(parts, member.element, member)
    parts.append(f"</{name}>")


def _valid(text: str) -> str:
    """The text without the characters that XML cannot express, which are replaced."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
