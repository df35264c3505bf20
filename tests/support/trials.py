"""How many examples Hypothesis tries; no example fails because the machine is busy."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "gate", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("deep", settings.get_profile("gate"), max_examples=1000)
settings.load_profile("gate")


def examples(count: int) -> settings:
    """Let a test try so many examples, and ten times as many with ``--hypothesis-profile=deep``."""
    return settings(max_examples=count * settings.default.max_examples // 100)
