"""Checks of a configuration before a worker starts with it: ``--check-config`` and start-up."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from scheduler_worker import conf as configuration
from scheduler_worker import remedies
from scheduler_worker.compose import engines
from scheduler_worker.compose.packages import FILTERS, POLICY_UNITS, WEIGHERS, registered
from scheduler_worker.compose.parts import Parts
from scheduler_worker.conf import Configuration, NovaFeed, Settings
from scheduler_worker.errors import (
    BusUnavailable,
    ClusterPolicyError,
    ConfigError,
    StateUnavailable,
)
from scheduler_worker.observer import Observer
from scheduler_worker.rpc import transport
from scheduler_worker.rpc.dispatcher import Dispatcher
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.service.policies.units import nova_pipeline


def check_reachable(conf: Configuration, *, embedded: bool) -> None:
    """Raise ConfigError where no client could reach the worker, unless it is ``embedded``."""
    is_set = transport.is_named(conf)
    if not is_set and not embedded:
        raise ConfigError(
            "[DEFAULT] transport_url is not set, so that no client could reach this worker (read: "
            f"{', '.join(conf.files) or 'no file'}). Name the file that sets it with --config-file "
            "FILE, or use --embedded for a bus inside this process"
        )
    if is_set and embedded:
        raise ConfigError(
            "--embedded is for a worker without [DEFAULT] transport_url, which is set; leave out "
            "one of them"
        )


def check_processes(settings: Settings, processes: int) -> None:
    """Raise ConfigError where several processes cannot share the configured state."""
    with closing(Parts(settings)) as parts:
        # The state is opened in any case: its URL may be wrong.
        if not parts.state.characteristics.spans_processes and processes > 1:
            raise ConfigError(
                f"--workers {processes}: processes cannot share [state] url = "
                f"{settings.state.url}; use redis://, or run one worker"
            )


def refusals(conf: Configuration, *, embedded: bool) -> list[str]:
    """Every reason for which a worker would refuse to start. Connects to nothing.

    Replaces invalid values in ``conf``, which must not be used to start a worker afterwards.
    """
    settings, problems = configuration.inspected(conf)
    parts = Parts(settings, conf)
    processes = conf.of_command_line("workers", 1)
    number = conf.of_command_line("instance", None)
    for attempt in (
        lambda: check_reachable(conf, embedded=embedded),
        lambda: check_processes(settings, processes),
        lambda: _check_bus(conf, settings),
        lambda: _check_databases(settings.nova_feed),
        lambda: settings.attestation and engines.open_attestation(settings.attestation),
        lambda: settings.balancing.target == "nova" and engines.open_nova(conf),
        lambda: _check_placement(conf, settings),
        lambda: parts.sandboxes,
        lambda: engines.open_tracing(settings),
        lambda: settings.monitoring.port_of(processes - 1 if number is None else number),
        lambda: nova_pipeline(settings.options, registered(FILTERS), registered(WEIGHERS)),
    ):
        try:
            attempt()
        except (ClusterPolicyError, ConfigError, ValueError) as error:
            problems.append(str(error))
    parts.close()
    return problems


def unwritable_logs(conf: Configuration) -> Iterator[str]:
    """Why a worker of this process's account would refuse to start: it could not log."""
    directory = conf.log_dir or (conf.log_file and str(Path(conf.log_file).absolute().parent))
    if directory and not os.access(directory, os.W_OK):
        yield f"[DEFAULT] log_dir, log_file: nothing can be written into {directory}"
    if conf.log_config_append and not os.access(conf.log_config_append, os.R_OK):
        yield f"[DEFAULT] log_config_append: {conf.log_config_append} cannot be read"


def left_out(settings: Settings) -> list[str]:
    """What a worker would start without: plugins and tuning policies that cannot be loaded."""
    problems: list[str] = []
    for group in (FILTERS, WEIGHERS, *POLICY_UNITS):
        registered(group, problems.append)
    of_nobody = structs.replace(settings.state, url="memory://")
    with closing(Parts(structs.replace(settings, state=of_nobody))) as parts:
        parts.tuning.read_from(engines.policy_files(settings.tuning))
        return [*problems, *map(str, parts.tuning.alarms)]


class Connection(NamedTuple):
    """The result of an attempt to connect."""

    name: str
    problem: str | None
    """Why it would not serve a worker."""
    notes: Sequence[str] = ()
    """Advice to the operator about its settings."""
    fix: str = ""
    """What to check if there is a problem."""


def connections(conf: Configuration, settings: Settings) -> Iterator[Connection]:
    """Connect to each broker, the state, and Nova and Placement where used. Consumes nothing."""
    with Bus(conf, exchange=settings.rpc.exchange) as bus:
        for address, refusal in _refusals_of_bus(bus, settings):
            yield Connection(f"RabbitMQ at {address}", refusal, fix=remedies.BUS)
    if settings.balancing.target == "nova":
        yield Connection("Nova", engines.open_nova(conf).problem(), fix=remedies.NOVA)
    with closing(Parts(settings)) as parts:
        try:
            problem = parts.state.problem()
            notes = () if problem else parts.state.check()
        except StateUnavailable as error:
            problem, notes = str(error), ()
    yield Connection("the shared state", problem, notes, remedies.of_state(problem or ""))
    if settings.asks_placement:
        with closing(engines.open_placement_session(conf, connections=1)) as session:
            yield Connection("Placement", session.problem(), fix=remedies.PLACEMENT)
    if settings.nova_feed is not None:
        with closing(engines.open_nova_databases(settings.nova_feed.databases)) as databases:
            for name, problem in databases.check():
                yield Connection(name, problem, fix=remedies.NOVA_DATABASES)


def _refusals_of_bus(bus: Bus, settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Each broker's address, and why it would not serve a worker; None if it would."""
    if not settings.is_dry_run:
        yield from bus.refusals(settings.rpc.topic, settings.host)
        return
    try:  # a dry run declares nothing that others use
        if (use := bus.queue_use(settings.rpc.topic)) is not None:
            yield use.broker, None
    except (BusUnavailable, ConfigError) as error:
        yield bus.url, str(error)


def _check_databases(nova: NovaFeed | None) -> None:
    if nova is not None:
        engines.open_nova_databases(nova.databases).close()


def _check_placement(conf: Configuration, settings: Settings) -> None:
    if settings.asks_placement:
        engines.open_placement_session(conf, connections=1).close()


def _check_bus(conf: Configuration, settings: Settings) -> None:
    rpc = settings.rpc
    with Bus(conf, exchange=rpc.exchange) as bus:
        if settings.dry_run is not None:
            bus.copies(
                rpc.topic,
                settings.host,
                Dispatcher(()),
                max_messages=settings.dry_run.max_requests,
                limits=rpc.deliveries,
                observer=Observer(),
            )
        bus.server(rpc.topic, settings.host, ()).stop(0.0)
