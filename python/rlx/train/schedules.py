"""Learning rates: numbers, or functions of a builder and the number of updates so far.

A schedule is `schedule(b, step)`, where `step` is a float scalar (0.0 at the first update). It returns a scalar tensor
or a number. It is part of the compiled program, so it consists of ops: `lambda b, step: 0.1 / (1.0 + step)` is a
schedule. The schedules below have the names and the meaning of those of optax.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.support.errors import Error
from rlx.support.short import short_repr

Schedule = Callable[[Any, Tensor], Any]


@with_call_errors
def constant(value: float) -> Schedule:
    """Return a constant learning rate."""
    check_number("value", value, least=0)
    return lambda b, step: value


@with_call_errors
def linear(init_value: float, end_value: float, transition_steps: int, *, transition_begin: int = 0) -> Schedule:
    """Return a schedule that changes linearly from one value to another and is then constant.

    Args:
        init_value: The learning rate up to `transition_begin`.
        end_value: The learning rate from `transition_begin + transition_steps` on.
        transition_steps: The number of updates of the change.
        transition_begin: The update at which the change begins.
    """
    check_number("init_value", init_value, least=0)
    check_number("end_value", end_value, least=0)
    check_count("transition_steps", transition_steps)
    check_count("transition_begin", transition_begin, least=0)

    def schedule(b: Builder, step: Tensor) -> Tensor:
        return _between(b, init_value, end_value, b.clamp((step - transition_begin) / transition_steps, 0.0, 1.0))

    return schedule


@with_call_errors
def cosine(
    peak_value: float,
    decay_steps: int,
    *,
    warmup_steps: int = 0,
    init_value: float = 0.0,
    end_value: float = 0.0,
) -> Schedule:
    """Return half a period of a cosine, after a linear warmup (I. Loshchilov, F. Hutter, SGDR, 2017, without restarts).

    Args:
        peak_value: The learning rate at the end of the warmup.
        decay_steps: The update at which `end_value` is reached, including the warmup.
        warmup_steps: The number of updates from `init_value` to `peak_value`.
        init_value: The learning rate at the first update, if there is a warmup.
        end_value: The learning rate from `decay_steps` on.
    """
    for name, value in (("peak_value", peak_value), ("init_value", init_value), ("end_value", end_value)):
        check_number(name, value, least=0)
    check_count("decay_steps", decay_steps)
    check_count("warmup_steps", warmup_steps, least=0)
    if warmup_steps >= decay_steps:
        raise Error(f"warmup_steps ({warmup_steps}) must be less than decay_steps ({decay_steps}), which include them")

    def schedule(b: Builder, step: Tensor) -> Tensor:
        done = b.clamp((step - warmup_steps) / (decay_steps - warmup_steps), 0.0, 1.0)
        decayed = end_value + (peak_value - end_value) * (0.5 + 0.5 * b.cos(math.pi * done))
        if not warmup_steps:
            return decayed
        return b.where(step < warmup_steps, _between(b, init_value, peak_value, step / warmup_steps), decayed)

    return schedule


@with_call_errors
def exponential(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    *,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """Return the schedule `init_value · decay_rate^((step - transition_begin) / transition_steps)`.

    Args:
        init_value: The learning rate up to `transition_begin`.
        transition_steps: The number of updates for one multiplication by `decay_rate`.
        decay_rate: The factor, positive.
        transition_begin: The update at which the change begins.
        staircase: Change the rate only once every `transition_steps`.
        end_value: The limit of the learning rate; None means that there is no limit.
    """
    check_number("init_value", init_value, least=0)
    check_count("transition_steps", transition_steps)
    check_count("transition_begin", transition_begin, least=0)
    check_number("decay_rate", decay_rate, above=0)
    if end_value is not None:
        check_number("end_value", end_value, least=0)

    def schedule(b: Builder, step: Tensor) -> Tensor:
        passed = b.maximum(step - transition_begin, 0.0)
        periods = passed / transition_steps
        if staircase:
            periods = b.cast(b.cast(periods, "i32"), step.dtype)
        value = init_value * b.exp(math.log(decay_rate) * periods)
        if end_value is None:
            return value
        return b.maximum(value, end_value) if decay_rate < 1 else b.minimum(value, end_value)

    return schedule


def _between(b: Builder, first: float, last: float, share: Tensor) -> Tensor:
    return first + (last - first) * share


def learning_rate_at(b: Builder, rate: float | Schedule, step: Tensor) -> Tensor:
    """Return the learning rate at a step, as a scalar of the step's dtype.

    Args:
        b: The builder that emits the ops.
        rate: A number or a schedule.
        step: The number of updates so far, a float scalar.

    Raises:
        Error: The schedule returns neither a scalar nor a number.
    """
    value = rate(b, step) if callable(rate) else rate
    if not isinstance(value, Tensor):
        return b.constant(check_number("the learning rate", value, least=0), step.dtype)
    if value.rank or not value.dtype.is_float:
        raise Error(f"a schedule must give a scalar of floats, got {value.shape}")
    return b.cast(value, step.dtype)


# --- checking -------------------------------------------------------------------------------------


def check_number(name: str, value: Any, *, least: float = -math.inf, above: float = -math.inf) -> float:
    """Check for a number that is finite in f32, at least `least`, and greater than `above`. Return it as a float.

    Raises:
        Error: The value is not such a number.
    """
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= f32.max:
        raise Error(f"{name} must be a finite number, got {short_repr(value)}")
    if number < least:
        raise Error(f"{name} must not be less than {least}, got {short_repr(value)}")
    if number <= above:
        raise Error(f"{name} must be greater than {above}, got {short_repr(value)}")
    return number


def check_share(name: str, value: Any) -> float:
    """Check for a number that is at least 0 and less than 1. Return it as a float.

    Raises:
        Error: The value is not in this range.
    """
    if not 0 <= check_number(name, value) < 1:
        raise Error(f"{name} must be at least 0 and less than 1, got {short_repr(value)}")
    return float(value)


def check_flag(name: str, value: Any) -> None:
    """Check for True or False.

    Raises:
        Error: The value is something else.
    """
    if not isinstance(value, bool):
        raise Error(f"{name} must be True or False, got {short_repr(value)}")


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Check for an integer that is at least `least`. Return it as an int.

    Raises:
        Error: The value is not an integer of this size.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise Error(f"{name} must be an integer of at least {least}, got {short_repr(value)}")
    return int(value)
