"""Runs that people read: a few deeds each, with steady delays and no preemption.

Their transcripts are text files. A change of the protocol rewrites them, and its diff shows what
has changed: ``pytest tests/simulation --rewrite`` writes them anew.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from scheduler_worker.ports import Change
from tests.simulation import auditing, balancing, feeding, plan
from tests.simulation.history import Event
from tests.simulation.machine import Machine
from tests.simulation.plan import Ask, Crash, Deed, Down, Pause, Plan, Report
from tests.simulation.scenes import SCENES
from tests.simulation.stage import play

FOLDER = Path(__file__).with_name("stories")
LEFT_OUT = {"watches", "looks", "finds ended", "pings"}
"""Events that say nothing about the protocol, or that follow from another."""
_NUMBERS = re.compile(r"#\d+|\d{10}\.\d+")
"""Ids and times, which differ when something else takes longer."""


class Steady(random.Random):
    """Draws what is in the middle, and the first of what there is to choose from."""

    def random(self) -> float:
        return 0.5

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randrange(self, *_: Any) -> int:
        return 0


class Story(NamedTuple):
    """A run, and until when it is told."""

    scene: str
    setting: plan.Base
    deeds: tuple[Deed, ...]
    until_s: float


def _ask(name: str, at_s: float = 1.0, **facts: Any) -> Ask:
    return Ask(at_s=at_s, request=name, instances=(f"i-{name}",), tries=1, **facts)


_ONE = plan.Setting(clusters={"a": 1}, vcpus=1, slots=1)
_POLICY = balancing.Attach(at_s=0.7, policy="save")

STORIES: Mapping[str, Story] = {
    "two workers want the last place": Story(
        "placing", _ONE, (_ask("one"), _ask("two", then="forget")), 2.0
    ),
    "a worker dies between its commit and its answer": Story(
        "placing", _ONE, (_ask("one"), Crash(at_s=0.9, when="commits", worker=0, for_s=9.0)), 4.0
    ),
    "a worker stands still until its lease is over": Story(
        "placing",
        _ONE,
        (_ask("one"), Pause(at_s=0.9, when="leases", worker=0, for_s=1.5), _ask("two", 1.1)),
        4.0,
    ),
    "a report is stored while a request is decided": Story(
        "placing",
        _ONE,
        (_ask("one"), Report(at_s=0.9, when="leases", host="a1")),
        2.0,
    ),
    "the mode is switched off while a round runs": Story(
        "balancing",
        balancing.Setting(hosts=3, vms=0),
        (_POLICY, balancing.Switch(at_s=1.5, when="rounds", mode="off")),
        4.0,
    ),
    "a leader stands still while it reads": Story(
        "feeding",
        feeding.Setting(hosts=2),
        (
            feeding.Change(at_s=2.5, host="h1"),
            feeding.Refresh(at_s=2.6, name="r"),
            Pause(at_s=2.6, when="reads", worker=0, for_s=3.0),
        ),
        6.5,
    ),
    "sql is away between two writes": Story(
        "auditing",
        auditing.Setting(workers=3),
        (
            auditing.Set(at_s=1.1, name="p"),
            auditing.Away(at_s=1.2, for_s=1.5, stores=True),
            Down(at_s=3.5, for_s=0.1),
        ),
        5.0,
    ),
}


def told(story: Story) -> str:
    """The transcript of a run."""
    made = Plan(seed="steady", setting=story.setting, deeds=story.deeds)
    run = play(SCENES[story.scene].stage, made, Machine("steady", Steady))
    events = [event for event in run.history.events if event.time_s <= story.until_s]
    return "".join(f"{line.rstrip()}\n" for line in _lines(events))


def _lines(events: Iterable[Event]) -> Iterator[str]:
    for event in events:
        is_ping = str(event.facts.get("message", "")).startswith("ping ")
        if event.what not in LEFT_OUT and not is_ping:
            yield f"{event.who:<8} {event.what:<12} {_said(event.facts)}"


def _said(facts: Mapping[str, Any]) -> str:
    """What does not differ when something else takes longer."""
    if "deed" in facts:
        return _deed(facts["of"])
    scope = facts.get("scope") or getattr(facts.get("grant"), "scope", "")
    words = [str(scope)] if scope else []
    words += [f"{name}={facts[name]}" for name in _PLAIN if facts.get(name) is not None]
    for name in ("asked", "entry"):
        if name in facts:
            words.append(_named(facts[name]))
    if "progress" in facts:
        words.append(facts["progress"].state)
    if "written" in facts and not all(facts["written"].applied):
        words.append("refused")
    words += map(_changed, facts.get("changed") or ())
    return _NUMBERS.sub("*", " ".join(words))


_PLAIN = ("request", "message", "answer", "error", "host", "vm", "mode", "rows", "outcome", "by_s")


def _deed(deed: Deed) -> str:
    """Its facts that are not the usual ones."""
    usual = {each.name: each.default for each in msgspec.structs.fields(type(deed))}
    facts = msgspec.structs.asdict(deed).items()
    return " ".join(
        f"{name}={value}" for name, value in facts if name != "at_s" and value != usual[name]
    )


def _changed(change: Change) -> str:
    return change.key if change.value is not None else f"-{change.key}"


def _named(asked: Any) -> str:
    facts = {name: getattr(asked, name, None) for name in ("vm", "host", "to", "action", "subject")}
    return " ".join(str(each) for each in facts.values() if each)
