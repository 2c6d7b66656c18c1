"""Loss scaling: it prevents underflow of small gradients in f16.

P. Micikevicius et al.: Mixed precision training, 2018, sections 3.2 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.calls import Answered
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.errors import Error
from rlx.train.schedules import check_count, check_number

# States of a training program.
SCALE, GOOD_STEPS = "train/loss_scale", "train/good_steps"
# In this range, a scale and its inverse are normal f32 numbers.
_LEAST, _GREATEST = 2.0**-126, 2.0**126


@dataclass(frozen=True)
class DynamicLossScale(Answered):
    """A scale that is divided by `factor` if gradients are not finite, and multiplied by it after a number of good updates.

    Attributes:
        initial: The initial scale.
        growth_interval: The number of consecutive updates with finite gradients after which the scale grows.
        factor: The factor. With a power of two, scaling does not round gradients.
    """

    initial: float = 65536.0
    growth_interval: int = 2000
    factor: float = 2.0

    def __post_init__(self) -> None:
        check_scale("initial", self.initial)
        check_count("growth_interval", self.growth_interval)
        check_number("factor", self.factor, above=1)

    def update(self, g: Graph, finite: Tensor, boundary: Tensor | None) -> None:
        """Emit the updates of the states of the scale.

        Args:
            g: The graph, which has the states.
            finite: Whether all gradients are finite.
            boundary: Whether this call updates parameters; None means always.
        """
        scale, good = g.argument(SCALE), g.argument(GOOD_STEPS)
        counted = g.where(finite, good + 1, 0)
        grows = counted >= self.growth_interval
        larger = g.where(grows, g.minimum(scale * self.factor, _GREATEST), scale)
        next_scale = g.where(finite, larger, g.maximum(scale / self.factor, _LEAST))
        next_good = g.where(grows, 0, counted)
        g.update(scale, next_scale if boundary is None else g.where(boundary, next_scale, scale))
        g.update(good, next_good if boundary is None else g.where(boundary, next_good, good))


def chosen(loss_scale: Any, *, by_default: bool) -> DynamicLossScale | float | None:
    """Return the scale for a user's option. The default is a dynamic scale if `by_default`, as for f16, else none.

    Raises:
        Error: It is neither a positive number nor a `DynamicLossScale`.
    """
    if loss_scale is None:
        return DynamicLossScale() if by_default else None
    return loss_scale if isinstance(loss_scale, DynamicLossScale) else check_scale("loss_scale", loss_scale)


def check_scale(name: str, value: Any) -> float:
    """Check a scale, and return it as a float.

    Raises:
        Error: The value is not a number, or out of range.
    """
    if not _LEAST <= check_number(name, value) <= _GREATEST:
        raise Error(f"{name} must be between 2⁻¹²⁶ and 2¹²⁶, got {value!r}")
    return float(value)


def add_scale(g: Graph, scale: DynamicLossScale | float) -> Tensor:
    """Return the scale in a graph: a constant, or a state."""
    if not isinstance(scale, DynamicLossScale):
        return g.constant(np.float32(scale))
    tensor = g.state(SCALE, (), init=scale.initial)
    g.state(GOOD_STEPS, (), "i32")
    return tensor


def all_finite(b: Builder, tensors: Sequence[Tensor]) -> Tensor:
    """Return whether no element is an infinity or NaN."""
    result: Any = None
    for x in tensors:
        if 0 in x.shape.dims:
            continue
        # NaN is propagated by max, and a comparison with NaN is false.
        finite = b.max(b.abs(x)) <= float(x.dtype.max)
        result = finite if result is None else result & finite
    return b.constant(np.bool_(True)) if result is None else result
