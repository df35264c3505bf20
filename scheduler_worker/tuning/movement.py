"""How far an output moves towards its target in some time, for many entities at once.

All functions have the *semigroup* property: moving for a seconds and then for b more equals moving
for a + b seconds, so results do not depend on how often a policy is evaluated. None overshoots its
target.
"""

import numpy as np

from scheduler_worker.tuning.columns import Floats


def linear(current: Floats, target: Floats, change: Floats, periods: Floats) -> Floats:
    """Move by the absolute change in each period; the target gives the direction."""
    step = np.abs(change) * periods
    arrived = np.abs(target - current) <= step
    return np.where(arrived, target, current + np.copysign(step, target - current))


def exponential(current: Floats, target: Floats, factor: Floats, periods: Floats) -> Floats:
    """Move by the factor or its inverse in each period; 0 stays 0, and no sign changes."""
    growth = power(np.maximum(factor, 1 / factor), periods)
    same_sign = np.sign(current) == np.sign(target)
    grows = same_sign & (np.abs(target) > np.abs(current))
    moved = np.where(grows, current * growth, current / growth)
    beyond = np.where(grows, np.abs(moved) >= np.abs(target), np.abs(moved) <= np.abs(target))
    return np.where(current == 0, 0.0, np.where(same_sign & beyond, target, moved))


def within_amount(value: Floats, current: Floats, amount: Floats, periods: Floats) -> Floats:
    """Limit the value to the amount in each period around the current one."""
    room = amount * periods
    return np.clip(value, current - room, current + room)


def within_fraction(value: Floats, current: Floats, rate: Floats, periods: Floats) -> Floats:
    """Limit the value to the current one shrunk or grown by the rate in each period."""
    shrunk = power(np.maximum(1 - rate, 0), periods)
    return _within(value, current, np.abs(current) * shrunk, power(1 + rate, periods))


def within_factor(value: Floats, current: Floats, factor: Floats, periods: Floats) -> Floats:
    """Limit the value to the current one divided or multiplied by the factor in each period."""
    growth = power(np.maximum(factor, 1 / factor), periods)
    return _within(value, current, np.abs(current) / growth, growth)


def _within(value: Floats, current: Floats, least: Floats, growth: Floats) -> Floats:
    # Bounds are on the new value: current * 0.95 is not always current - current * 0.05, and an
    # actuator's truncation makes a whole unit of the difference.
    sign = np.sign(current)
    size = np.clip(value * sign, least, np.abs(current) * growth)
    return np.where(current == 0, 0.0, size * sign)


def power(base: Floats, exponent: Floats) -> Floats:
    """Return ``base ** exponent``, and exactly the base for one period."""
    once = exponent == 1
    return base if once.all() else np.where(once, base, np.power(base, exponent))
