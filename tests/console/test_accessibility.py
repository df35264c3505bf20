"""axe finds nothing serious on any page, in light and dark; narrow screens do not scroll aside."""

import pytest

from tests.support.consoles import take_picture

PAGES = {
    "fleet": ("/fleet", "#heat-map"),
    "host": ("/hosts/uuid-a1", "#reservations table"),
    "host-down": ("/hosts/uuid-b2", "#facts dl"),
    "decisions": ("/decisions", "table"),
    "policies": ("/policies", "table"),
    "policy": ("/policies/new", "form.policy"),
    "rehearsals": ("/rehearsals", "form.rehearse"),
    "capacity": ("/capacity", "fieldset.flavor"),
    "tuning": ("/tuning", "#found"),
    "tuning-policy": ("/tuning/new", "textarea"),
    "health": ("/health", "#workers table"),
    "nothing": ("/nothing", "h1"),
}
PICTURES = {"host", "decisions", "policies"}
each_scheme = pytest.mark.parametrize(
    "scheme", ["light", pytest.param("dark", marks=pytest.mark.deep)]
)


def shown(console):
    """Show each page in turn; gives its name and the page."""
    console.entered()
    for name, (path, selector) in PAGES.items():
        page = console.open(path)
        page.locator(selector).first.wait_for()
        yield name, page


@each_scheme
def test_nothing_serious_is_found(api, make_console, pytestconfig, scheme):
    console = make_console(api, color_scheme=scheme, viewport={"width": 1280, "height": 900})
    for name, page in shown(console):
        if name in PICTURES and scheme == "light":
            take_picture(pytestconfig, page, name)
        assert console.serious() == [], name


@each_scheme
def test_nothing_serious_is_found_on_the_way_in(api, make_console, scheme):
    console = make_console(api, color_scheme=scheme)
    console.open().get_by_role("heading", name="Log in").wait_for()
    assert console.serious() == []
    console.log_in(password="wrong password")
    console.page.get_by_text("not correct").wait_for()
    assert console.serious() == []


def test_nothing_serious_is_found_in_a_question(console):
    page = console.entered("/hosts/uuid-a1")
    page.get_by_role("button", name="Release").click()
    page.get_by_role("dialog").wait_for()
    assert console.serious() == []


def test_a_narrow_screen_does_not_scroll_aside(api, make_console):
    console = make_console(api, viewport={"width": 360, "height": 740})
    width = "document.documentElement.scrollWidth"
    wide = [name for name, page in shown(console) if page.evaluate(width) > 360]
    assert wide == []
