"""axe finds nothing serious on any page, in light and dark; narrow screens do not scroll aside."""

PAGES = {
    "fleet": ("/fleet", "#heat-map"),
    "host": ("/hosts/uuid-a1", "#reservations table"),
    "host-down": ("/hosts/uuid-b2", "#facts dl"),
    "decisions": ("/decisions", "table"),
    "policies": ("/policies", "table"),
    "cluster": ("/clusters/east", "table"),
    "policy": ("/policies/new", "form.policy"),
    "rehearsals": ("/rehearsals", "form.rehearse"),
    "capacity": ("/capacity", "fieldset.flavor"),
    "tuning": ("/tuning", "#found"),
    "tuning-policy": ("/tuning/new", "textarea"),
    "health": ("/health", "#workers table"),
    "audit": ("/audit", "#found"),
    "nothing": ("/nothing", "h1"),
}
PICTURES = {"host", "decisions", "policies"}


def test_every_page_can_be_used(console):
    console.entered()
    for name, (path, selector) in PAGES.items():
        console.open(path).locator(selector).first.wait_for()
        console.check(name if name in PICTURES else "")
