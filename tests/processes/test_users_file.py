"""The users file: edited by commands, read again by a process that uses it."""

import io
import stat

import pytest

from scheduler_worker.api.users import User, edited, is_password, read_users, users_of
from scheduler_worker.cli import manage
from scheduler_worker.errors import ConfigError
from scheduler_worker.operations.callers import Grant
from tests.support.threads import Threads
from tests.support.workers import write_config


@pytest.fixture
def path(tmp_path):
    return tmp_path / "users.yaml"


@pytest.fixture
def run(path, monkeypatch):
    """Run ``user ...`` with a password on the standard input."""

    def run(*arguments, password="long enough"):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\nnot this\n"))
        config = write_config(path.with_name("api.conf"), api={"users_file": path})
        return manage.main(["--config-file", str(config), "user", *arguments])

    return run


def test_a_user_is_added_listed_replaced_and_removed(run, path, capsys):
    assert run("add", "anna", "--role", "policy_editor", "--cluster", "a", "--cluster", "b") == 0
    run("add", "admin@internal", "--role", "administrator")
    run("list")
    run("add", "anna", "--role", "reader", password="another one")
    run("remove", "admin@internal")
    assert capsys.readouterr().out.splitlines() == [
        "Added anna",
        "Added admin@internal",
        "admin@internal: administrator in all clusters",
        "anna: policy_editor in a, policy_editor in b",
        "Replaced anna",
        "Removed admin@internal",
    ]
    [(name, user)] = read_users(path.read_text(), "").items()
    assert (name, user.roles) == ("anna", (Grant("reader"),))
    assert is_password("another one", user.password)
    assert "another one" not in path.read_text()


def test_only_the_owner_can_read_a_new_file(run, path):
    run("add", "anna", "--role", "reader")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    run("add", "bert", "--role", "reader")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_is_refused_changes_nothing(run, path, capsys):
    run("add", "anna", "--role", "reader")
    before = path.read_text()
    assert run("remove", "bert") == 1
    assert "no user 'bert'" in capsys.readouterr().err
    assert run("add", "bert", "--role", "reader", password="short") == 1
    assert "8 to 1024 characters" in capsys.readouterr().err
    assert path.read_text() == before
    assert list(path.parent.glob("tmp*")) == []


def test_many_editors_lose_nothing(path):
    def add(number):
        with edited(path) as users:
            users[f"user-{number}"] = User("x")

    with Threads(20) as threads:
        list(threads.map(add, range(20)))
    assert len(read_users(path.read_text(), "")) == 20


def test_a_file_that_is_missing_is_named_with_the_fix(path, run, capsys):
    with pytest.raises(ConfigError, match=r"users.yaml: No such file.*user add"):
        users_of(path)
    assert run("list") == 2
    assert "No such file" in capsys.readouterr().err
