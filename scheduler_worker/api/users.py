"""The users of the REST API: a YAML file with hashed passwords and granted roles.

::

    admin@internal:
      password: scrypt:16384:8:1$<salt>$<hash>
      roles:
      - role: administrator
    anna:
      password: scrypt:16384:8:1$<salt>$<hash>
      roles:
      - role: policy_editor
        cluster: rack-1

A role without a cluster holds for the whole system. ``scheduler-worker-manage user`` edits the
file; it is read again when it has changed.
"""

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta
from werkzeug.security import check_password_hash, generate_password_hash

from scheduler_worker.conversion import convert
from scheduler_worker.errors import ConfigError, RequestError
from scheduler_worker.operations.callers import ROLES, Grant

UserName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@+-]{1,128}\Z")]

_METHOD = "scrypt:16384:8:1"
MIN_PASSWORD = 8
MAX_PASSWORD = 1024
"""Bounds of a password's length, in characters."""


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file has of a user."""

    password: str
    """The hash."""
    roles: tuple[Grant, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Changes with the password; tokens that were given for another one are invalid."""
        return hashlib.sha256(self.password.encode()).hexdigest()[:16]


Users = Mapping[str, User]
_UserTable = dict[UserName, User]


def hashed(password: str) -> str:
    """The salted hash of a password, as in the file."""
    return generate_password_hash(password, _METHOD)


def is_password(password: str, stored_hash: str) -> bool:
    """Whether a password has this hash; False for a hash that cannot be read."""
    try:
        return len(password) <= MAX_PASSWORD and check_password_hash(stored_hash, password)
    except (ValueError, MemoryError):
        return False


def new_user(name: str, password: str, roles: tuple[Grant, ...]) -> User:
    """A user for the file. Raises RequestError for a bad name or password, or without a role."""
    try:
        convert(name, UserName)
    except msgspec.ValidationError:
        raise RequestError(
            "name", f"{name!r} is no user name; use up to 128 letters, digits and _ . @ + -"
        ) from None
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        problem = f"must have {MIN_PASSWORD} to {MAX_PASSWORD} characters; choose another"
        raise RequestError("password", problem)
    if not roles:
        raise RequestError("role", f"a user needs a role: {', '.join(ROLES)}")
    return User(hashed(password), roles)


def read_users(text: str, place: str) -> Users:
    """The users in the text of a file. Raises ConfigError, which names the place and the field."""
    try:
        return convert({} if (table := yaml.safe_load(text)) is None else table, _UserTable)
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(f"[api] users_file: {place}: {' '.join(str(error).split())}") from None


def users_of(path: Path) -> Users:
    """The users in a file. Raises ConfigError where it cannot be read."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"[api] users_file: {path}: {reason}; `scheduler-worker-manage user add` makes it"
        ) from None
    return read_users(text, str(path))


@contextlib.contextmanager
def edited(path: Path) -> Iterator[dict[str, User]]:
    """The users of a file, to be changed; written at the end, whole or not at all.

    A missing file is made, readable by its owner only. Raises ConfigError as :func:`users_of`.
    """
    with _locked(path):
        users = dict(users_of(path)) if path.exists() else {}
        yield users
        _replace(path, yaml.safe_dump(msgspec.to_builtins(users), sort_keys=True))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One editor at a time."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        opened = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"[api] users_file: {lock}: {error.strerror}") from None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _replace(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as written:
        try:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
            if path.exists():
                kept = path.stat()
                os.fchmod(written.fileno(), kept.st_mode & 0o777)
                with contextlib.suppress(PermissionError):
                    os.fchown(written.fileno(), kept.st_uid, kept.st_gid)
            Path(written.name).replace(path)
        except BaseException:
            Path(written.name).unlink(missing_ok=True)
            raise
