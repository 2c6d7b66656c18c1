"""Constants, positions, and ops that compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.importers.stablehlo.rules import imports
from rlx.importers.stablehlo.values import scalar_of
from rlx.importers.table import constant as literal_or_weight
from rlx.ir.builder import Tensor
from rlx.ir.errors import UnsupportedError
from rlx.ir.shape import Shape
from rlx.weights.weight import Weight


@imports("constant")
def constant(g: Any, *, value: Any, largest_literal: float) -> Tensor:
    if not isinstance(value, (np.ndarray, Weight)):
        raise UnsupportedError(
            "whose elements are not written as dense<…> cannot be imported",
            hint="write resources and sparse elements as dense ones",
        )
    return literal_or_weight(g, value, largest_literal)


@imports("iota", "dynamic_iota")
def iota(g: Any, sizes: Tensor | None = None, *, iota_dimension: int, results: list[Shape]) -> Tensor:
    return g.iota(results[0].dims, iota_dimension, results[0].dtype)


@imports("optimization_barrier")
def optimization_barrier(g: Any, *xs: Tensor) -> tuple[Tensor, ...]:
    return xs  # a barrier restricts compilers, and does not change the numbers


# Notes for compilers and devices, whose result is their operand.
_NOTES = ("Sharding", "annotate_device_placement", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint")


@imports("custom_call")
def custom_call(
    g: Any,
    *xs: Tensor,
    call_target_name: str,
    backend_config: Any = None,
    api_version: Any = None,
    has_side_effect: bool = False,
    called_computations: Any = None,
    operand_layouts: Any = None,
    result_layouts: Any = None,
    output_operand_aliases: Any = None,
    config: dict[str, Any] | None = None,
    results: Sequence[Shape] = (),
) -> Sequence[Tensor]:
    if call_target_name == "ApproxTopK" and len(xs) == 4:
        return _largest(g, xs[0], scalar_of(xs[2]), config or {}, results)
    if call_target_name not in _NOTES or len(xs) != 1:
        raise UnsupportedError(f"of '{call_target_name}' cannot be imported", hint="it is code of another compiler")
    return xs


def _largest(g: Any, x: Tensor, start: Any, config: dict[str, Any], results: Sequence[Shape]) -> list[Tensor]:
    """The largest elements, or the smallest where the start is above all; RLX finds all of them, with any recall.

    Raises:
        UnsupportedError: More than these are asked for, among which they are.
    """
    axis, k = config.get("reduction_dim"), config.get("top_k")
    if not isinstance(axis, int) or not isinstance(k, int) or start is None or results[0].dims[axis] != k:
        raise UnsupportedError("of 'ApproxTopK' that leaves the last step to others cannot be imported")
    return list(g.topk(x, k, axis=axis, largest=start <= 0))
