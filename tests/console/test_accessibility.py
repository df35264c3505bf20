"""axe finds nothing serious on any page, in light and dark; narrow screens do not scroll aside."""

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


def shown(console):
    """Show each page in turn; gives its name."""
    console.entered()
    for name, (path, selector) in PAGES.items():
        console.open(path).locator(selector).first.wait_for()
        yield name


def test_nothing_serious_is_found(api, schemed):
    console = schemed(api)
    for name in shown(console):
        console.check(name if name in PICTURES else "")


def test_nothing_serious_is_found_on_the_way_in(api, schemed):
    console = schemed(api)
    console.open().get_by_role("heading", name="Log in").wait_for()
    console.check()
    console.log_in(password="wrong password")
    console.page.get_by_text("not correct").wait_for()
    console.check()


def test_nothing_serious_is_found_in_a_question(console):
    page = console.entered("/hosts/uuid-a1")
    page.get_by_role("button", name="Release").click()
    page.get_by_role("dialog").wait_for()
    console.check()


def test_a_narrow_screen_does_not_scroll_aside(api, make_console):
    console = make_console(api, viewport={"width": 360, "height": 740})
    for _ in shown(console):
        console.check_narrow()
