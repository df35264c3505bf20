"""What must be true of messages: of what was sent, done, acknowledged and answered."""

from __future__ import annotations

from collections import Counter

from tests.simulation.books import NEVER_S, Blame, Books
from tests.simulation.history import Event
from tests.simulation.store import BEGINNING_S


class Post:
    """Messages and answers, as an outsider keeps account of them."""

    def __init__(self, books: Books, blame: Blame) -> None:
        self._books = books
        self._blame = blame
        self._now_s = 0.0
        self._sent: dict[str, Event] = {}
        self._first_sent_s: dict[str, float] = {}
        """When a request was made first."""
        self._instances: dict[str, tuple[str, ...]] = {}
        """Of a request, and of a message."""
        self._heard_s: dict[str, float] = {}
        """When a call (by its message) or a request by cast was answered last."""
        self._told: dict[str, str] = {}
        """Which host was told last for an instance."""
        self._told_to: dict[tuple[str, str], str] = {}
        """Which host was told last for it in answer to the same message."""
        self._not_wanted: set[str] = set()
        """Instances that somebody has released or deleted."""
        self._recounted: Counter[str] = Counter()
        self._buried: set[str] = set()
        self._rules = {
            "sends": self._was_sent,
            "hears": self._was_heard,
            "finds nobody": self._found_nobody,
            "counts": self._was_counted,
            "buries": self._was_buried,
            "is done with": self._was_settled,
        }

    def see(self, event: Event) -> None:
        self._now_s = event.time_s
        rule = self._rules.get(event.what)
        if rule is not None:
            rule(event)

    def see_the_end(self) -> None:
        for name, event in self._sent.items():
            if _is_request_by_cast(event) and not self._is_answered(name, event):
                self._blame(f"{name} was never answered")

    def _was_sent(self, event: Event) -> None:
        facts = event.facts
        self._sent[facts["message"]] = event
        if facts["method"] in {"release", "delete_instance_info"}:
            self._not_wanted.update(facts["instances"])
        elif "request" in facts:
            for name in (facts["message"], facts["request"]):
                self._first_sent_s.setdefault(name, event.time_s)
                self._instances[name] = facts["instances"]

    # Answers

    def _was_heard(self, event: Event) -> None:
        name = event.facts.get("message") or event.facts["request"]
        if event.facts["error"] == "InternalError":
            self._blame(f"{name} was answered with an InternalError")
        self._heard_s[name] = self._now_s
        hosts = event.facts["answer"]
        if hosts and name in self._instances:
            for instance, host in zip(self._instances[name], hosts, strict=True):
                if self._told_to.get((name, instance)) != host:  # else it is no news
                    self._check_answer(name, instance, host)
                    self._told[instance] = self._told_to[name, instance] = host

    def _check_answer(self, name: str, instance: str, host: str) -> None:
        asked_s = self._first_sent_s[name]
        if not any(life.ended_s >= asked_s for life in self._books.lives[instance, host]):
            self._blame(f"{name} was told {host} for {instance}, which was never promised")
        before = self._told.get(instance, host)
        if before != host and self._books.lost_s < asked_s and self._binds(instance, before):
            self._blame(f"{name} was told {host} for {instance} after {before}")

    def _binds(self, instance: str, host: str) -> bool:
        """Whether the host must be told again: its promise neither expired nor became use."""
        last = self._books.lives[instance, host][-1:]
        return instance not in self._not_wanted and any(
            life.end in {None, "given back"} for life in last
        )

    def _found_nobody(self, event: Event) -> None:
        self._heard_s[event.facts["queue"].removeprefix("reply ")] = self._now_s

    # Acknowledgements

    def _was_counted(self, event: Event) -> None:
        self._recounted[event.facts["message"]] += 1

    def _was_buried(self, event: Event) -> None:
        self._buried.add(event.facts["message"])
        self._blame(f"{event.facts['message']} was buried: {event.facts['why']}")

    def _was_settled(self, event: Event) -> None:
        """An acknowledged message has had its effect."""
        name = event.facts["message"]
        if self._recounted[name]:  # a copy of it waits in the queue
            self._recounted[name] -= 1
        elif name not in self._buried and not self._has_effect(name, self._sent[name]):
            self._blame(f"{event.who} acknowledged {name}, which had no effect")

    def _has_effect(self, name: str, sent: Event) -> bool:
        facts = sent.facts
        if facts["patience_s"] is not None or _is_request_by_cast(sent):
            return self._is_answered(name, sent)
        if self._books.lost_s >= sent.time_s:
            return True  # and lost again
        match facts["method"]:
            case "update_hosts":
                found = [self._books.hosts.get(f"uuid-{host}") for host in facts["used"]]
                return all(each and (each.updated_at or 0) >= facts["updated_at"] for each in found)
            case "release":
                return not any(
                    each.instance_uuid in facts["instances"]
                    and each.created_at_s < BEGINNING_S + sent.time_s
                    for each in self._books.living()
                )
        return True

    def _is_answered(self, name: str, sent: Event) -> bool:
        patience_s = sent.facts["patience_s"]
        if patience_s is not None:
            return name in self._heard_s or self._now_s >= sent.time_s + patience_s
        heard_s = self._heard_s.get(sent.facts["request"], -NEVER_S)
        return name in self._buried or heard_s >= sent.time_s


def _is_request_by_cast(sent: Event) -> bool:
    return bool(sent.facts["method"] == "request_destinations")
