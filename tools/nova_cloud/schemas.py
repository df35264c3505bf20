"""The databases of Nova and Placement with their schemas and one cell.

Making them takes Nova's tools minutes, so the result is kept as SQL beside the environment. The
cell is mapped by templates, which Nova fills in from its own configuration: the SQL names no port.
"""

import os
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from nova_cloud.configuration import Files
from nova_cloud.errors import CloudFailed
from nova_cloud.installation import REQUIREMENTS, Installation
from tests.support.databases import PASSWORD, MariaServer
from tests.support.servers import LOOPBACK, program

DATABASES = ("nova_api", "nova_cell0", "nova", "placement")
_SERVER = "{scheme}://{username}:{password}@{hostname}:{port}"
_NOVA = (
    ("api_db", "sync"),
    ("cell_v2", "map_cell0", "--database_connection", f"{_SERVER}/nova_cell0?charset=utf8"),
    ("db", "sync"),
    (
        *("cell_v2", "create_cell", "--name", "cell1"),
        *("--database_connection", f"{_SERVER}/nova?charset=utf8"),
        *("--transport-url", f"{_SERVER}/{{path}}"),
    ),
)


def create(database: MariaServer, installation: Installation, files: Files) -> None:
    """Make and fill the databases, from what was kept if there is any. Raises CloudFailed."""
    for name in DATABASES:
        database.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb3")
    kept = _kept(installation)
    if kept.exists():
        with kept.open("rb") as sql:
            _run([program("mariadb"), *_client(database)], stdin=sql)
        return
    _make(installation, files)
    draft = kept.with_name(f"{kept.name}.{os.getpid()}")
    with draft.open("wb") as sql:
        dump = [program("mariadb-dump"), *_client(database), "--single-transaction"]
        _run([*dump, "--databases", *DATABASES], stdout=sql)
    draft.replace(kept)


def nova_manage(installation: Installation, files: Files, *words: str) -> str:
    """The output of ``nova-manage``. Raises CloudFailed."""
    return _run([installation.program("nova-manage"), "--config-file", files.nova, *words])


def _make(installation: Installation, files: Files) -> None:
    for words in _NOVA:
        nova_manage(installation, files, *words)
    manage = installation.program("placement-manage")
    _run([manage, "--config-file", files.placement, "db", "sync"])


def _kept(installation: Installation) -> Path:
    recipe = zlib.crc32(repr((REQUIREMENTS, _NOVA)).encode())
    return installation.venv / f"schemas-{recipe:08x}.sql"


def _client(database: MariaServer) -> list[str]:
    return ["--no-defaults", f"--host={LOOPBACK}", f"--port={database.port}", "--user=tester"]


def _run(
    command: Sequence[str | Path],
    stdin: BinaryIO | int = subprocess.DEVNULL,
    stdout: BinaryIO | int = subprocess.PIPE,
) -> str:
    environment = {**os.environ, "MYSQL_PWD": PASSWORD}
    done = subprocess.run(
        command, env=environment, stdin=stdin, stdout=stdout,
        stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    if done.returncode:
        output = (done.stdout or b"") + done.stderr
        raise CloudFailed(f"{command[0]} failed: {output.decode(errors='replace')[-2000:]}")
    return (done.stdout or b"").decode()
