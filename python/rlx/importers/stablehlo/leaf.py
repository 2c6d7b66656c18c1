"""Constants, positions, and ops that compute nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.importers.stablehlo.rules import imports
from rlx.importers.table import constant as literal_or_weight
from rlx.ir.builder import Tensor
from rlx.ir.errors import UnsupportedError
from rlx.ir.shape import Shape


@imports("constant")
def constant(g: Any, *, value: Any, largest_literal: float) -> Tensor:
    if not isinstance(value, np.ndarray):
        raise UnsupportedError(
            "whose elements are not written as dense<…> cannot be imported",
            hint="write resources and sparse elements as dense ones",
        )
    return literal_or_weight(g, value, largest_literal)


@imports("iota")
def iota(g: Any, *, iota_dimension: int, results: list[Shape]) -> Tensor:
    return g.iota(results[0].dims, iota_dimension, results[0].dtype)


@imports("optimization_barrier")
def optimization_barrier(g: Any, *xs: Tensor) -> tuple[Tensor, ...]:
    return xs  # a barrier restricts compilers, and does not change the numbers
