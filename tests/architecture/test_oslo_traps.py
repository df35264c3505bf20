"""Pitfalls of oslo.messaging that ``rpc/transport.py`` works around."""

import subprocess
import sys

import pytest

from tests.support.patience import PROCESS_S


def run(program: str, *, strictly: bool = False) -> str:
    """What a fresh interpreter prints; ``strictly`` fails if it writes anything to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (strictly and done.stderr), done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["transport", "local"])
def test_the_threading_backend_is_selected(module: str) -> None:
    printed = run(
        f"import scheduler_worker.rpc.{module}\n"
        "from oslo_service import backend\n"
        "print(backend.get_backend_type().value)"
    )
    assert printed.strip() == "threading"


def test_importing_patches_nothing_and_imports_no_eventlet() -> None:
    printed = run(
        "import scheduler_worker.rpc.transport\n"
        "from oslo_utils import eventletutils\n"
        "patched = eventletutils.is_monkey_patched\n"
        "import sys\n"
        "print(patched('thread'), patched('socket'), 'eventlet' in sys.modules)",
        strictly=True,
    )
    assert printed == "False False False\n"


def test_the_global_configuration_is_not_used() -> None:
    """Reading any option of it raises: it was never set up."""
    printed = run(
        "from oslo_config import cfg\n"
        "from scheduler_worker.rpc import transport\n"
        "from scheduler_worker.rpc.dispatcher import Endpoint\n"
        "def forbidden(*_): raise AssertionError('cfg.CONF was read')\n"
        "class Locked(cfg.ConfigOpts):\n"
        "    __getattr__ = __getitem__ = __call__ = register_opts = forbidden\n"
        "cfg.CONF.__class__ = Locked\n"
        "conf = cfg.ConfigOpts()\n"
        "conf([])\n"
        "bus = transport.Bus(conf, url='local:/')\n"
        "endpoint = Endpoint(None, '1.0', {'m': lambda _context: 'answer'})\n"
        "server = bus.server('t', 's', [endpoint])\n"
        "server.start()\n"
        "print(bus.client('t').call('m', {}))\n"
        "server.stop(5)\n"
    )
    assert printed == "answer\n"


def test_calls_and_stops_return_while_the_broker_is_unreachable() -> None:
    printed = run(
        "import logging, os, socket, threading\n"
        "from oslo_config import cfg\n"
        "from scheduler_worker.rpc import transport\n"
        "logging.disable()\n"
        "with socket.create_server(('127.0.0.1', 0)) as taken:\n"
        "    port = taken.getsockname()[1]\n"
        "conf = cfg.ConfigOpts()\n"
        "conf([])\n"
        "bus = transport.Bus(conf, url=f'rabbit://guest:guest@127.0.0.1:{port}/')\n"
        "try:\n"
        "    bus.client('t', timeout_s=0.3).call('m', {})\n"
        "except transport.BusUnavailable:\n"
        "    print('call')\n"
        "server = bus.server('t', 's', [])\n"
        "threading.Thread(target=server.start, daemon=True).start()\n"
        "print(server.stop(0.3), flush=True)\n"
        "bus.close()\n"
        "os._exit(0)\n"
    )
    assert printed.split() in (["call", "False"], ["call", "True"])
