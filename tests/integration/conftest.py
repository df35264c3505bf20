"""Real servers, real workers, the real Nova."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.amqp import Stage
from tests.support.handlers import Gate
from tests.support.workers import write_config

ROOT = Path(__file__).resolve().parents[2]
NOVA = "nova==34.0.0"


@pytest.fixture
def config(tmp_path, rabbit_vhost_url, redis_url):
    """A worker's configuration on a virtual host and a key prefix of its own."""
    return write_config(
        tmp_path / "worker.conf",
        DEFAULT={
            "transport_url": rabbit_vhost_url,
            "host": f"worker-{uuid.uuid4().hex[:8]}",
            "service_down_time": 600,
        },
        state={"url": redis_url},
    )


@pytest.fixture(scope="session")
def nova_python() -> Path:
    """An interpreter with the real Nova, in an environment of its own beside ours."""
    python = Path(os.environ.get("NOVA_VENV", ROOT / ".venv-nova")) / "bin" / "python"
    probe = [str(python), "-c", "import nova.scheduler.rpcapi"]
    if not python.exists() or subprocess.run(probe, capture_output=True).returncode:
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, NOVA], check=True)
    return python


@pytest.fixture
def rabbit_vhost_url(rabbit_server) -> str:
    """A virtual host of the session's RabbitMQ that nobody else uses."""
    return rabbit_server.add_vhost(uuid.uuid4().hex)


@pytest.fixture
def stage(rabbit_server, tmp_path):
    """A topic of the session's RabbitMQ that nobody else uses, to put servers and clients on."""
    stage = Stage(rabbit_server, tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def gate():
    """A handler that waits; at the latest the test's end lets it pass."""
    gate = Gate()
    yield gate
    gate.opened.set()
