"""Secrets are masked; the rest of the line is unchanged."""

import pytest

from scheduler_worker.redaction import redacted


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("redis://u:hush@h:1/0 failed", "redis://***@h:1/0 failed"),
        ("redis://:hush/and/more@h:1/0", "redis://***@h:1/0"),
        ("rabbit://a:hush@h1:1,c:hush@h2/v is away", "rabbit://***@h2/v is away"),
        ("auth_token=hush next=1", "auth_token=*** next=1"),
        ("X-Auth-Token: hush, next", "X-Auth-Token: ***, next"),
        ("Authorization_token: Bearer hush, next", "Authorization_token: ***, next"),
        ("{'auth_token': 'hush hush', 'x': 1}", "{'auth_token': ***, 'x': 1}"),
        ('{"adminPass": "hush\\"hush", "x": 1}', '{"adminPass": ***, "x": 1}'),
        (r'"{\"password\": \"hush\", \"x\": 1}"', r'"{\"password\": ***, \"x\": 1}"'),
        ("service_catalog=[{'url': 'hush'}] and", "service_catalog=***"),
        ("(secret = b'hush')", "(secret = ***)"),
        ("user_data='hush without an end", "user_data=***"),
        ("transport_url = hush", "transport_url = ***"),
        ("transport_url: hush", "transport_url: ***"),
        ("[DEFAULT] transport_url = hush", "[DEFAULT] transport_url = ***"),
        ("İ password=hush end", "İ password=*** end"),
        ("password=hush\npassword='hush\nnext", "password=***\npassword=***\nnext"),
    ],
)
def test_a_secret_is_masked(line, shown):
    assert redacted(line) == shown


@pytest.mark.parametrize(
    "line",
    [
        "token=17 attempts=2",
        "commit under token 1234: refused",
        "password=None",
        "the password is wrong",
        "http://host:80/path is fine",
        "somebody@somewhere",
        "auth_token=***",
        "[DEFAULT] transport_url: No scheme specified in ***",
        "",
    ],
)
def test_other_text_is_unchanged(line):
    assert redacted(line) == line
