"""The command line of the comparison of balances."""

import argparse
from collections.abc import Iterable, Sequence

from replay.balance.day import MINUTES, Day, drawn
from replay.balance.simulation import HOUR, Outcome, Simulation
from scheduler_worker.compose.packages import POLICY_UNITS, registered
from scheduler_worker.scheduling.catalogue import parameter_values
from scheduler_worker.scheduling.plugin import Balance, UnitContext

_NONE = "None"
_COMPARED = (_NONE, "OptimalForEvenDistribution", "EvenLoad")
_DESCRIPTION = """\
Compare balances in simulated days of a cluster: about 17 VMs for each host come and go, their
demand follows the hours and has bursts, a few hosts fail and return empty. Every balance gets the
same days. Each minute it makes a plan, of which one migration begins; the destination is the
candidate with the least load. The same options give the same table.
"""
_EPILOG = """\
  moves/h  migrations that began, and below `peak` the most within an hour
  undone   those that brought a VM back to a host that it had left within the hour
  above    minutes of hosts at or above the limit, added up
  full     those in which VMs wanted more than the host has

  .venv/bin/python tools/replay balance --days 7 --seed 10
"""


def main(argv: Sequence[str]) -> int:
    """Print the table that the arguments describe; the exit status."""
    balances = registered(POLICY_UNITS[2])
    options = argparse.ArgumentParser(
        prog="tools/replay balance",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--seed", type=int, default=0, help="of the first day (0)")
    options.add_argument("--days", type=_positive, default=1, help="with a seed each (1)")
    options.add_argument("--hosts", type=_positive, default=20, help="of 32 CPUs (20)")
    options.add_argument(
        "--high", type=int, default=75, help="the limit of a load, in percent (75)"
    )
    options.add_argument(
        "--balance",
        action="append",
        choices=sorted(balances),
        help=f"a balance to compare, repeatable ({', '.join(_COMPARED)})",
    )
    parsed = options.parse_args(argv)
    days = [drawn(parsed.seed + number, parsed.hosts) for number in range(parsed.days)]
    print(_title(days, parsed.seed, parsed.high))
    print(f"{'balance':<32} {'moves/h':>8} {'peak':>5} {'undone':>7} {'above':>8} {'full':>7}")
    for name in parsed.balance or _COMPARED:
        try:
            unit = _made(name, balances[name], parsed.high)
        except ValueError as error:
            options.error(str(error))
        found = _total(Simulation(day, unit, parsed.high).run() for day in days)
        print(
            f"{name:<32} {found.moves / len(days) / (MINUTES / HOUR):>8.1f} "
            f"{found.most_in_an_hour:>5} {found.undone:>7} "
            f"{found.minutes_above:>8,} {found.minutes_full:>7,}"
        )
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _title(days: Sequence[Day], seed: int, high: int) -> str:
    vms = sum(len(day.vms) for day in days)
    return (
        f"{len(days)} day(s) from seed {seed}: {days[0].hosts} hosts of {days[0].cpus} CPUs, "
        f"{vms:,} VMs, limit {high} %"
    )


def _made(name: str, unit: type[Balance], high: int) -> Balance:
    """The balance with its defaults, but this limit. Raises ValueError if it refuses the limit."""
    known = {"HighUtilization": str(high)}
    parameters = parameter_values(unit.parameters_type, (known,))
    return unit(UnitContext(name=name, parameters=parameters))


def _total(outcomes: Iterable[Outcome]) -> Outcome:
    """The sums over the days, and the highest peak."""
    found = list(outcomes)
    sums = Outcome(*(sum(each) for each in zip(*found, strict=True)))
    return sums._replace(most_in_an_hour=max(each.most_in_an_hour for each in found))
