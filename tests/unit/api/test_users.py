"""Users: hashed passwords, and reading the text of a users file."""

import importlib.util
from typing import Any

import pytest

from scheduler_worker.api import users
from scheduler_worker.api.users import MAX_PASSWORD, hashed, is_password, new_user, read_users
from scheduler_worker.errors import ConfigError, RequestError
from scheduler_worker.operations.callers import Grant


def test_a_hash_fits_its_password_only():
    found = hashed("päßword 1")
    assert is_password("päßword 1", found)
    assert not is_password("password 1", found)
    assert hashed("päßword 1") != found


def test_a_hash_is_as_dear_as_the_format_of_the_file_says():
    """In a fresh copy of the module: other tests hash at a lower cost."""
    spec: Any = importlib.util.spec_from_file_location("fresh_users", users.__file__)
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    assert fresh.hashed("long enough").startswith("scrypt:16384:8:1$")
    assert "scrypt:16384:8:1$<salt>" in users.__doc__


@pytest.mark.parametrize(
    "stored",
    ["", "päßword", "md5$AA$AA", "scrypt:3:8:1$AA$AA", "scrypt:1073741824:8:1$AA$AA"],
)
def test_a_hash_that_cannot_be_used_fits_nothing(stored):
    assert not is_password("päßword", stored)


def test_a_password_of_any_length_is_not_hashed():
    assert not is_password("x" * (MAX_PASSWORD + 1), hashed("x" * (MAX_PASSWORD + 1)))


@pytest.mark.parametrize(
    ("name", "password", "roles", "field"),
    [
        ("a b", "long enough", (Grant("reader"),), "name"),
        ("", "long enough", (Grant("reader"),), "name"),
        ("anna", "short", (Grant("reader"),), "password"),
        ("anna", "long enough", (), "role"),
    ],
)
def test_a_user_who_cannot_be_added(name, password, roles, field):
    with pytest.raises(RequestError) as refused:
        new_user(name, password, roles)
    assert refused.value.field == field


def test_the_file_has_users_with_roles():
    text = (
        "anna:\n  password: x\n  roles:\n  - role: policy_editor\n    cluster: a\n"
        "  - role: reader\n"
    )
    assert read_users(text, "f")["anna"].roles == (
        Grant("policy_editor", "a"),
        Grant("reader"),
    )
    assert read_users("", "f") == {}


@pytest.mark.parametrize(
    "text",
    ["a: [", "[]", "anna: {}", "anna: {password: x, roles: [{role: king}]}", "a b: {password: x}"],
)
def test_a_bad_file_is_refused_by_its_name(text):
    with pytest.raises(ConfigError, match=r"\[api\] users_file: users.yaml: "):
        read_users(text, "users.yaml")
