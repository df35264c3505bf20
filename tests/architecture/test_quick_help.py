"""``--help`` is quick: it imports nothing that only work needs."""

import contextlib
import io
import json
import subprocess
import sys

from scheduler_worker.cli import api, bind, ctl, manage, worker

HEAVY = (
    *("alembic", "eventlet", "matplotlib", "numpy"),
    *("oslo_messaging", "oslo_policy", "sqlalchemy", "werkzeug"),
    "scheduler_worker.events",
)


def loaded() -> set[str]:
    """What is loaded of what help does not need."""
    return sys.modules.keys() & set(HEAVY)


def helped() -> dict[str, list[str]]:
    """What the help of each command of each program was the first to load, in this process."""
    generated = bind.commands()
    lines = [
        *((program, "") for program in (worker, api)),
        *((manage, each) for each in ("", *manage.Manage.COMMANDS, "help", "complete")),
        *((ctl, each) for each in ("", *ctl.Ctl.COMMANDS, *generated, "help", "complete")),
    ]
    found = {"to import the programs": sorted(loaded())}
    for program, command in lines:
        before = loaded()
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            program.main([*command.split(), "--help"])
        assert "usage: " in out.getvalue(), command
        found[f"{program.__name__} {command}"] = sorted(loaded() - before)
    return found


def test_help_loads_nothing_heavy() -> None:
    command = [sys.executable, __file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # It lists all commands; some of tuning count with it.
    expected = {"scheduler_worker.cli.ctl ": ["numpy"]}
    assert {name: heavy for name, heavy in found.items() if heavy} == expected
    assert len(found) > 50


if __name__ == "__main__":
    print(json.dumps(helped()))
