"""Invariants of messages: sent, done, acknowledged and answered."""

from collections import Counter

from tests.simulation import plan as plans
from tests.simulation.books import NEVER_S, Books, reserved_by
from tests.simulation.history import Auditor, Blame, Event
from tests.simulation.plan import Plan
from tests.simulation.tenants import RENAMED

REFUSALS = {"NoValidHost", "ClusterLockTimeout", "Conflict", "RequestError"}
"""Errors after which no reservation may stay."""
LATE_S = 0.5
"""The latest time after a deadline at which its answer arrives."""
SLACK_S = 0.05
"""A thread may be preempted between a look at the clock and the action."""


class Post(Auditor):
    """Messages and answers."""

    def __init__(self, plan: Plan, books: Books, blame: Blame) -> None:
        super().__init__(blame)
        self._plan = plan
        self._books = books
        self._sent: dict[str, Event] = {}
        self._first_sent_s: dict[str, float] = {}
        """When a request was sent first."""
        self._instances: dict[str, tuple[str, ...]] = {}
        """Of a request, and of a message."""
        self._heard_s: dict[str, float] = {}
        """When a call (by its message) or a request by cast was answered last."""
        self._first_heard_s: dict[str, float] = {}
        self._answered: dict[str, str] = {}
        """The host in the last answer for an instance."""
        self._answered_to: dict[tuple[str, str], str] = {}
        """The host in the last answer for it to the same message."""
        self._not_wanted: set[str] = set()
        """Instances that were released or deleted."""
        self._copies: Counter[str] = Counter()
        """The copies of a message that are in a queue or in hand."""
        self._buried: set[str] = set()
        self._open: Counter[str] = Counter()
        """The messages of a request that are in flight or in hand."""
        self._may_have: set[str] = set()
        """Requests that may have a reservation, though the last answer was an error."""
        self._given: Counter[str] = Counter()
        self._patient_until_s: dict[tuple[str, str], float] = {}
        """Until when a worker may decide a request, by worker and request."""
        self._decided_s: dict[tuple[str, str], float] = {}
        self._dropped: set[str] = set()
        self._nacked_s: dict[str, float] = {}
        """When the broker nacked the answer to a message last."""
        self._removed: set[str] = set()
        """Hosts that were removed."""
        self._pings: set[str] = set()
        self._originals: set[tuple[str, str, int]] = set()
        """Deliveries that live on as copies."""
        self._given_up: Counter[str] = Counter()
        """How many calls a worker gave up, of which it is not known yet which they were."""
        self._rules = {
            "sends": self._was_sent,
            "pings": lambda event: self._pings.add(event.facts["message"]),
            "gives up": lambda event: self._given_up.update([event.who]),
            "gets": self._was_given,
            "decides": self._was_decided,
            "commits": self._was_committed,
            "drops": self._was_dropped,
            # The answer of the request may have arrived, so its reservation stays.
            "is unsure": lambda event: self._may_have.add(event.facts["request"]),
            "is stuck": self._was_stuck,
            "has stopped": self._has_stopped,
            "receives": self._was_heard,
            "is returned": self._found_nobody,
            "is nacked": self._was_nacked,
            "counts": self._was_counted,
            "dead-letters": self._was_buried,
            "acknowledges": self._was_settled,
        }

    def see_the_end(self) -> None:
        for name, event in self._sent.items():
            if self._plan.is_calm and not self._plan.setting.decides_in_s:
                self._check_promptness(name, event)
            if _is_request_by_cast(event) and not self._is_answered(name, event):
                self._blame(f"{name} was never answered")
        may_be_lost = self._plan.breaks() & {plans.Crash, plans.Drain}
        for name, nacked_s in self._nacked_s.items():
            if self._heard_s.get(name, -NEVER_S) < nacked_s and not may_be_lost:
                self._blame(f"{name} was answered, and nobody got the answer")

    def _check_promptness(self, name: str, sent: Event) -> None:
        """Without faults and slowness, a caller gets its answer before its timeout."""
        remaining_s = sent.facts["remaining_s"]
        late_s = 0.0
        if remaining_s is not None:
            late_s = self._first_heard_s.get(name, NEVER_S) - sent.time_s - remaining_s
        if late_s > LATE_S and name not in self._dropped:
            self._blame(f"{name} was answered {late_s:.3f} s after its caller had gone")

    def _was_sent(self, event: Event) -> None:
        facts = event.facts
        self._sent[facts["message"]] = event
        self._copies[facts["message"]] += 1 + facts["is_doubled"]
        if facts["method"] in {"release", "delete_instance_info"}:
            self._not_wanted.update(facts["instances"])
        elif facts["method"] == "remove_hosts":
            self._removed.update(facts["hosts"])
        elif "request" in facts:
            if facts["is_doubled"]:
                self._may_have.add(facts["request"])  # the other copy may be answered otherwise
            self._open[facts["request"]] += 1
            for name in (facts["message"], facts["request"]):
                self._first_sent_s.setdefault(name, event.time_s)
                self._instances[name] = facts["instances"]

    # Answers

    def _was_heard(self, event: Event) -> None:
        name = event.facts.get("message") or event.facts["request"]
        if event.facts["error"] == "InternalError":
            self._blame(f"{name} was answered with an InternalError")
        # A worker that is cut off leaves requests to another one.
        if event.facts["error"] == "StateUnavailable" and self._has_whole_worker():
            self._blame(f"{name} was not left to a worker that reaches the state")
        if event.facts["error"] == "StateUnavailable" and self._has_time(name):
            self._blame(f"{name} was refused while its caller had time to wait for the state")
        self._hear(name)
        self._check_refusal(name, event.facts["error"])
        hosts = event.facts["answer"]
        if hosts and name in self._instances:
            for instance, host in zip(self._instances[name], hosts, strict=True):
                if self._answered_to.get((name, instance)) != host:  # else it is a repetition
                    self._check_answer(name, instance, host)
                    self._answered[instance] = self._answered_to[name, instance] = host

    def _has_whole_worker(self) -> bool:
        """Whether some worker reaches the state at any time."""
        cut = {each.worker for each in self._plan.deeds if isinstance(each, plans.Cut)}
        is_cut_alone = self._plan.breaks() <= {plans.Cut}
        return is_cut_alone and len(cut) < self._plan.setting.workers

    def _has_time(self, name: str) -> bool:
        """Whether a caller for hosts waits for a good while yet, and the state may come back."""
        sent = self._sent.get(name)
        if sent is None or sent.facts["method"] != "select_destinations":
            return False
        is_down_alone = self._plan.breaks() <= {plans.Down, plans.Failover}
        remaining_s = sent.facts["remaining_s"] or 0.0
        return is_down_alone and self._now_s < sent.time_s + 0.85 * remaining_s

    def _hear(self, name: str) -> None:
        self._heard_s[name] = self._now_s
        self._first_heard_s.setdefault(name, self._now_s)

    def _check_refusal(self, name: str, error: str | None) -> None:
        """A refused request has no reservation."""
        request = self._request_of(name)
        if request is None:
            return
        if error not in REFUSALS or self._given[request] > 1 or self._open[request] > 1:
            self._may_have.add(request)
        left = [
            each.id
            for each in self._books.living()
            # A node created anew takes along what was about to be taken back under its old uuid;
            # what another request got as its answer, too, stays.
            if each.request_id == request
            and not each.host_uuid.endswith(RENAMED)
            and not each.repeated_for
        ]
        if left and request not in self._may_have:
            self._blame(f"{request} was answered {error}, and {left} is reserved for it")

    def _request_of(self, name: str) -> str | None:
        sent = self._sent.get(name)
        request: str | None = sent.facts.get("request") if sent else name
        return request

    def _check_answer(self, name: str, instance: str, host: str) -> None:
        asked_s = self._first_sent_s[name]
        # A repeated request gets its earlier answer.
        first_asked_s = self._first_sent_s.get(self._request_of(name) or name, asked_s)
        if not any(life.ended_s >= first_asked_s for life in self._books.lives[instance, host]):
            self._blame(f"{name} was answered {host} for {instance}, which was never reserved")
        before = self._answered.get(instance, host)
        is_contradiction = self._binds(instance, before) and self._binds(instance, host)
        is_contradiction &= not self._books.is_outside(self._request_of(name) or name, before)
        if before != host and self._books.lost_s < asked_s and is_contradiction:
            self._blame(f"{name} was answered {host} for {instance} after {before}")

    def _binds(self, instance: str, host: str) -> bool:
        """Whether the answer had to stay true: its reservation did not end in between as it may.

        Those that expire, become use or go with their host do; answers may overtake each other.
        """
        last = self._books.lives[instance, host][-1:]
        return instance not in self._not_wanted and any(
            life.end in {None, "given back"} for life in last
        )

    def _found_nobody(self, event: Event) -> None:
        name = event.facts["queue"].removeprefix("reply ")
        self._hear(name)
        self._may_have.add(str(self._request_of(name)))

    def _was_nacked(self, event: Event) -> None:
        self._nacked_s[event.facts["queue"].removeprefix("reply ")] = self._now_s

    # Workers

    def _was_given(self, event: Event) -> None:
        name = event.facts["message"]
        facts = self._sent[name].facts if name in self._sent else {}  # else it is a ping
        if "request" in facts:
            request = facts["request"]
            self._given[request] += 1
            remaining_s = facts["remaining_s"]
            key = event.who, request
            until_s = NEVER_S if remaining_s is None else self._now_s + remaining_s
            self._patient_until_s[key] = max(until_s, self._patient_until_s.get(key, 0.0))

    def _was_decided(self, event: Event) -> None:
        self._decided_s[event.who, event.facts["request"]] = self._now_s

    def _was_committed(self, event: Event) -> None:
        """No request is decided after its caller has given up."""
        if plans.Pause in self._plan.breaks():
            return
        # One that was repeated for another request may be renewed for that one.
        for request in {each.request_id for each in reserved_by(event) if not each.repeated_for}:
            key = event.who, request
            late_s = self._decided_s.get(key, 0.0) - self._patient_until_s.get(key, NEVER_S)
            if late_s > SLACK_S:
                self._blame(f"{request} was decided {late_s:.3f} s after its caller had gone")

    def _was_stuck(self, event: Event) -> None:
        self._blame(f"{event.who} published to a blocked broker")

    def _has_stopped(self, event: Event) -> None:
        setting = self._plan.setting
        is_easy = self._plan.breaks() == {plans.Drain} and not setting.decides_in_s
        if is_easy and not setting.slowness and not event.facts["finished"]:
            self._blame(f"{event.who} did not finish its work when it stopped")

    def _was_dropped(self, event: Event) -> None:
        self._dropped.add(event.facts["message"])
        self._count(event.facts["message"], -1)

    def _count(self, name: str, copies: int) -> None:
        self._copies[name] += copies
        request = self._request_of(name)
        if request is not None:
            self._open[request] += copies

    # Acknowledgements

    def _was_counted(self, event: Event) -> None:
        """A copy goes to another worker, and its original is acknowledged."""
        self._count(event.facts["message"], 1)
        self._originals.add(_delivery(event))

    def _was_buried(self, event: Event) -> None:
        self._buried.add(event.facts["message"])
        self._blame(f"{event.facts['message']} was buried: {event.facts['why']}")

    def _was_settled(self, event: Event) -> None:
        """The last copy of a message is acknowledged only after its effect."""
        name = event.facts["message"]
        if name in self._pings:
            return
        self._count(name, -1)
        if _delivery(event) in self._originals:
            self._originals.discard(_delivery(event))
            return
        sent = self._sent[name]
        # A call that its worker has given up is acknowledged without an answer. The worker joins
        # copies that it has at the same time, so it gives all of them up once.
        is_call = sent.facts["remaining_s"] is not None
        has_ended = self._has_answer(name) or name in self._dropped
        if is_call and not has_ended and self._given_up[event.who]:
            self._given_up[event.who] -= 1
            self._dropped.add(name)
        if self._copies[name] > 0 or name in self._buried | self._dropped:
            return
        if not self._has_effect(name, sent):
            self._blame(f"{event.who} acknowledged {name}, which had no effect")

    def _has_effect(self, name: str, sent: Event) -> bool:
        facts = sent.facts
        if facts["remaining_s"] is not None or _is_request_by_cast(sent):
            return self._is_answered(name, sent)
        if self._books.lost_s >= sent.time_s:
            return True  # and lost again
        match facts["method"]:
            case "update_hosts":
                return all(
                    host in self._removed
                    or any(
                        (each.updated_at or 0) >= facts["updated_at"]
                        for each in self._books.hosts_named(host)
                    )
                    for host in facts["used"]
                )
            case "release":
                return not any(
                    each.instance_uuid in facts["instances"]
                    and self._books.lives[each.instance_uuid, each.host][-1].began_s < sent.time_s
                    for each in self._books.living()
                )
        return True

    def _is_answered(self, name: str, sent: Event) -> bool:
        remaining_s = sent.facts["remaining_s"]
        if remaining_s is not None:
            return self._has_answer(name) or self._now_s >= sent.time_s + remaining_s
        heard_s = self._heard_s.get(sent.facts["request"], -NEVER_S)
        return name in self._buried or heard_s >= sent.time_s

    def _has_answer(self, name: str) -> bool:
        """Whether a call was answered; a nacked answer is sent again."""
        return name in self._heard_s or name in self._nacked_s


def _delivery(event: Event) -> tuple[str, str, int]:
    return event.who, event.facts["message"], event.facts["tag"]


def _is_request_by_cast(sent: Event) -> bool:
    return bool(sent.facts["method"] == "request_destinations")
