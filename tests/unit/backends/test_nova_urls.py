"""URLs of cell mappings that are templates."""

import pytest

from scheduler_worker.backends.nova.source import filled
from scheduler_worker.errors import ConfigError

LOCAL = "mysql+pymysql://nova:p%40ss@db1:3306/nova_cell1?charset=utf8&ssl_ca=/ca.pem#f"
WHOLE = "{scheme}://{username}:{password}@{hostname}:{port}/{path}?{query}#{fragment}"
SEVERAL = "mysql://u1:p1@h1:1,u2:p2@[::1]:2,h3/db"


@pytest.mark.parametrize(
    ("template", "local", "url"),
    [
        ("mysql://a:b@h/x", None, "mysql://a:b@h/x"),
        (WHOLE, LOCAL, LOCAL),
        (
            "{scheme}://{username}:{password}@far/nova_cell2?{query}",
            LOCAL,
            "mysql+pymysql://nova:p%40ss@far/nova_cell2?charset=utf8&ssl_ca=/ca.pem",
        ),
        ("{scheme}://{username}@{hostname}/{path}?{query}", SEVERAL, "mysql://u1@h1/db?"),
        ("x://{username2}:{password2}@{hostname2}:{port2}/", SEVERAL, "x://u2:p2@[::1]:2/"),
        ("x://{username3}@{hostname3}/", SEVERAL, "x://u2@h3/"),
    ],
)  # fmt: skip
def test_a_template_is_filled(template, local, url):
    assert filled(template, local) == url


@pytest.mark.parametrize(
    ("template", "local", "missing"),
    [
        ("{scheme}://h/x", None, "is not set"),
        ("{scheme}://h/x", "", "is not set"),
        ("{scheme}://{hostname}:{port}/x", "mysql://u:secret@h/x", "{port}"),
        ("{scheme}://{hostname4}/x", SEVERAL, "{hostname4}"),
        ("{scheme}://{nonsense}/x", LOCAL, "{nonsense}"),
        ("{scheme}://h/x", "mysql://[::1/x", "no URL"),
    ],
)
def test_what_cannot_be_filled_is_named_without_values(template, local, missing):
    with pytest.raises(ConfigError) as caught:
        filled(template, local)
    assert missing in str(caught.value)
    assert "secret" not in str(caught.value)
