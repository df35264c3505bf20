"""How many examples Hypothesis tries; no example fails because the machine is busy."""

from hypothesis import HealthCheck, settings

GATE, DEEP = 50, 1000

settings.register_profile(
    "gate",
    max_examples=GATE,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("deep", settings.get_profile("gate"), max_examples=DEEP)
settings.load_profile("gate")


def examples(count: int) -> settings:
    """Let a test try so many examples, and more with ``--hypothesis-profile=deep``."""
    return settings(max_examples=times(count))


def times(count: int) -> int:
    """So many, and twenty times as many with ``--hypothesis-profile=deep``."""
    return count * settings.default.max_examples // GATE
