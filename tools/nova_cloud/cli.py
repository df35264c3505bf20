"""A Nova control plane on this machine: MariaDB, RabbitMQ, Placement, nova-api, nova-conductor and
several nova-computes with Nova's fake driver; then nova-scheduler or this project's worker on the
topic "scheduler". All are private processes on free ports of the loopback, under .run/nova-cloud.

    .venv/bin/python tools/nova_cloud install              install Nova, as "up" does, too
    .venv/bin/python tools/nova_cloud up                   bring it up, without a scheduler
    .venv/bin/python tools/nova_cloud scheduler nova       nova-scheduler serves it (or: ours, none)
    .venv/bin/python tools/nova_cloud dry-run start        a worker decides on copies beside it
    .venv/bin/python tools/nova_cloud boot vm1             boot a server, and see where it is
    .venv/bin/python tools/nova_cloud boot many --count 3 --flavor half
    .venv/bin/python tools/nova_cloud do vm1 migrate       resize, evacuate, shelve ...
    .venv/bin/python tools/nova_cloud status               what runs, and what is where
    .venv/bin/python tools/nova_cloud check                do Placement and Nova agree?
    .venv/bin/python tools/nova_cloud fault cmp1 fail      the next spawns on cmp1 fail
    .venv/bin/python tools/nova_cloud service cmp1 stop    end a process (start, restart, kill)
    .venv/bin/python tools/nova_cloud delete --all
    .venv/bin/python tools/nova_cloud down --wipe          end everything, and remove its data

Nova and Placement are installed into .venv-nova of the checkout (NOVA_VENV names another place).
There is no Keystone, and a stub for Glance and Neutron. Each process has a directory with its log.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from nova_cloud.client import OTHER_IMAGE, ComputeClient, Server
from nova_cloud.cloud import SCHEDULERS, Cloud
from nova_cloud.errors import CloudFailed
from nova_cloud.fleet import FLAVORS, Fleet
from nova_cloud.installation import PROJECT, default_installation
from nova_cloud.waiting import until
from tests.support.servers import ServerFailed, ServerMissing

Arguments = Callable[[ComputeClient, str | None], object]

ACTIONS: dict[str, tuple[str, str, Arguments]] = {
    "resize": ("resize", "VERIFY_RESIZE", lambda nova, word: resize_to(nova, word or "medium")),
    "migrate": ("migrate", "VERIFY_RESIZE", lambda _, word: {"host": word}),
    "confirm": ("confirmResize", "ACTIVE", lambda *_: None),
    "revert": ("revertResize", "ACTIVE", lambda *_: None),
    "live-migrate": ("os-migrateLive", "ACTIVE", lambda _, word: live_to(word)),
    "evacuate": ("evacuate", "ACTIVE", lambda _, word: {"host": word} if word else {}),
    "rebuild": ("rebuild", "ACTIVE", lambda _, word: {"imageRef": word or OTHER_IMAGE}),
    "shelve": ("shelve", "SHELVED_OFFLOADED", lambda *_: None),
    "unshelve": ("unshelve", "ACTIVE", lambda *_: None),
}
"""What ``do`` knows: the API's name, the status afterwards, its arguments of an optional word."""


def main(words: list[str] | None = None) -> int:
    options = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and so leave nothing half started
    try:
        options.run(options)
    except (CloudFailed, ServerFailed, ServerMissing) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/nova_cloud", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    default = PROJECT / ".run" / "nova-cloud"
    parser.add_argument("--directory", type=Path, default=default, help="of the cloud: its alone")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
        found.set_defaults(run=run)
        return found

    command("install", _install)
    fleet = command("up", _up)
    for name, value in vars(Fleet()).items():
        flag = f"--{name.replace('_', '-')}"
        fleet.add_argument(flag, type=int, help=f"default: {value}, or as it was")
    command("down", _down).add_argument("--wipe", action="store_true", help="remove all data")
    scheduler = command("scheduler", _scheduler)
    scheduler.add_argument("which", choices=SCHEDULERS)
    scheduler.add_argument("--replicas", type=int, default=1, help="how many workers of ours")
    dry_run = command("dry-run", _dry_run)
    dry_run.add_argument("change", choices=["start", "show", "stop"])
    command("status", _status)
    command("check", _check)
    boot = command("boot", _boot)
    boot.add_argument("name")
    boot.add_argument("--flavor", choices=FLAVORS, default="small")
    boot.add_argument("--count", type=int, default=1)
    boot.add_argument("--zone", help="ZONE or ZONE:HOST, which no scheduler doubts")
    boot.add_argument("--host", help="a host that the scheduler must choose")
    act = command("do", _do)
    act.add_argument("server", help="its name or id")
    act.add_argument("action", choices=ACTIONS)
    act.add_argument("word", nargs="?", help="a flavor, a host or an image, if the action has one")
    delete = command("delete", _delete)
    delete.add_argument("servers", nargs="*", metavar="SERVER")
    delete.add_argument("--all", action="store_true")
    fault = command("fault", _fault)
    fault.add_argument("host")
    fault.add_argument("fault", nargs="?", help="fail, abort or seconds; without: none any more")
    service = command("service", _service)
    service.add_argument("name", help="that of its directory, such as cmp1 or placement")
    service.add_argument("change", choices=["start", "stop", "restart", "kill"])
    return parser


def _open(options: argparse.Namespace) -> Cloud:
    return Cloud.opened(options.directory, default_installation())


def _install(_: argparse.Namespace) -> None:
    """Install Nova and Placement, where that is yet to be done."""
    default_installation().ensure()


def _up(options: argparse.Namespace) -> None:
    """Bring the cloud up; what runs already stays."""
    saved = options.directory / "fleet.json"
    fleet = vars(Fleet.load(saved) if saved.exists() else Fleet())
    given = {name: getattr(options, name) for name in fleet if getattr(options, name) is not None}
    began_s = time.monotonic()
    cloud = Cloud(options.directory, default_installation(), Fleet(**{**fleet, **given}))
    cloud.up()
    print(f"up after {time.monotonic() - began_s:.0f} s: {cloud.api.url}")


def _down(options: argparse.Namespace) -> None:
    """End everything."""
    _open(options).down(wipe=options.wipe)


def _scheduler(options: argparse.Namespace) -> None:
    """Choose who serves the topic "scheduler"."""
    _open(options).schedule_with(options.which, replicas=options.replicas)


def _dry_run(options: argparse.Namespace) -> None:
    """A worker beside nova-scheduler; show waits until it has compared an instance."""
    found = _open(options).dry_run
    if options.change != "show":
        getattr(found, options.change)()
        return
    if not found.is_running:
        raise CloudFailed("There is no dry run: start one.")
    results = until(lambda: found.results() or None, "an instance was compared")
    for line in (*(f"{name}: {count}" for name, count in results.items()), *found.differences()):
        print(line)


def _status(options: argparse.Namespace) -> None:
    """Show what runs, and all servers."""
    cloud = _open(options)
    for service in cloud.services:
        where = f"pid {service.pid}" if service.is_running else "does not run"
        print(f"{service.name:<32} {where:<16} {service.log}")
    if cloud.api.is_running:
        for server in cloud.compute.servers():
            _show(server)


def _check(options: argparse.Namespace) -> None:
    """Compare Placement's usages and allocations with Nova's servers."""
    books = _open(options).books()
    for name, usages in books.usages.items():
        print(f"{name}: {usages or 'nothing'} used by {len(books.consumers[name])}")
    found = books.disagreements()
    if found:
        raise CloudFailed("\n".join(found))
    print("All agree.")


def _boot(options: argparse.Namespace) -> None:
    """Boot servers, and wait until they are active."""
    nova = _open(options).compute
    for server_id in nova.boot(
        options.name,
        flavor=options.flavor,
        count=options.count,
        zone=options.zone,
        host=options.host,
    ):
        _show(nova.settled(server_id, "ACTIVE"))


def _do(options: argparse.Namespace) -> None:
    """Resize, move or rebuild a server, and wait until that is done."""
    nova = _open(options).compute
    action, status, arguments = ACTIONS[options.action]
    server = _find(nova, options.server)
    nova.act(server.id, action, arguments(nova, options.word))
    is_evacuation = options.action == "evacuate"
    _show(nova.evacuated(server) if is_evacuation else nova.settled(server.id, status))


def _delete(options: argparse.Namespace) -> None:
    """Delete servers, and wait until they are gone."""
    nova = _open(options).compute
    servers = [_find(nova, server) for server in options.servers]
    nova.delete([each.id for each in (nova.servers() if options.all else servers)])


def _fault(options: argparse.Namespace) -> None:
    """Let the spawns of one host fail, abort or last; all others work again."""
    _open(options).set_faults({options.host: options.fault} if options.fault else {})


def _service(options: argparse.Namespace) -> None:
    """Start or end one process."""
    found = {service.directory.name: service for service in _open(options).services}
    if options.name not in found:
        raise CloudFailed(f"There is no {options.name}, but {', '.join(found)}.")
    getattr(found[options.name], options.change)()


def resize_to(nova: ComputeClient, flavor: str) -> dict[str, str]:
    """The arguments of ``resize``."""
    return {"flavorRef": nova.flavors()[flavor]}


def live_to(host: str | None) -> dict[str, str | None]:
    """The arguments of ``os-migrateLive``; None: wherever the scheduler says."""
    return {"host": host, "block_migration": "auto"}


def _find(nova: ComputeClient, name: str) -> Server:
    for server in nova.servers():
        if name in {server.id, server.name}:
            return server
    raise CloudFailed(f"There is no server {name}.")


def _show(server: Server) -> None:
    words = [server.id, server.name, server.status, server.host or "-", server.task or "-"]
    print(" ".join([*words, server.fault]).strip())
