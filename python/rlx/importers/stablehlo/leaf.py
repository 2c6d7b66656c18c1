"""Constants, positions, and ops that compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.stablehlo.rules import imports
from rlx.importers.table import constant as literal_or_weight
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.shape import Shape
from rlx.support.errors import UnsupportedError
from rlx.weights.weight import Weight


@imports("constant")
def constant(g: Graph, *, value: Any, largest_literal: float) -> Tensor:
    if not isinstance(value, (np.ndarray, Weight)):
        raise UnsupportedError(
            "whose elements are not written as dense<…> cannot be imported",
            hint="write resources and sparse elements as dense ones",
        )
    return literal_or_weight(g, value, largest_literal)


@imports("iota", "dynamic_iota")
def iota(g: Graph, sizes: Tensor | None = None, *, iota_dimension: int, results: list[Shape]) -> Tensor:
    return g.iota(results[0].dims, iota_dimension, results[0].dtype)


@imports("optimization_barrier")
def optimization_barrier(g: Graph, *xs: Tensor) -> tuple[Tensor, ...]:
    return xs  # a barrier restricts compilers, and does not change the numbers


# Annotations for compilers and devices. The result is the operand.
_NOTES = ("Sharding", "annotate_device_placement", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint")


@dataclass(frozen=True, kw_only=True)
class CallNotes(ArgumentGroup):
    """The attributes of a custom call that do not change its results, with StableHLO's names."""

    backend_config: Any = None
    api_version: Any = None
    has_side_effect: bool = False
    called_computations: Any = None
    operand_layouts: Any = None
    result_layouts: Any = None
    output_operand_aliases: Any = None


@imports("custom_call")
def custom_call(
    g: Graph,
    *xs: Tensor,
    call_target_name: str,
    notes: CallNotes,
    config: dict[str, Any] | None = None,
    compares: str | None = None,
    results: Sequence[Shape] = (),
) -> Sequence[Tensor]:
    if call_target_name == "ApproxTopK" and len(xs) == 4:
        return _largest(g, xs[0], compares, config or {}, results)
    if call_target_name not in _NOTES or len(xs) != 1:
        raise UnsupportedError(f"of '{call_target_name}' cannot be imported", hint="it is code of another compiler")
    return xs


def _largest(
    g: Graph, x: Tensor, compares: str | None, config: dict[str, Any], results: Sequence[Shape]
) -> list[Tensor]:
    """The largest elements by GT, or the smallest by LT; RLX finds all of them, with any recall.

    Raises:
        UnsupportedError: The op returns more than `top_k` candidates, or the comparison is not GT or LT.
    """
    axis, k = config.get("reduction_dim"), config.get("top_k")
    if not isinstance(axis, int) or not isinstance(k, int) or results[0].dims[axis] != k:
        raise UnsupportedError("of 'ApproxTopK' that leaves the last step to others cannot be imported")
    if compares not in ("GT", "LT"):
        raise UnsupportedError("of 'ApproxTopK' by a function that is not GT or LT of elements cannot be imported")
    return list(g.topk(x, k, axis=axis, largest=compares == "GT"))
