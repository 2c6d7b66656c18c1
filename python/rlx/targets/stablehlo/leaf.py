"""Lowering rules for constants, iota and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers


@lowers("constant")
def constant(emit: HloEmitter, results: list[Shape], *, value: np.ndarray) -> Lowered:
    return emit.constant(value)


@lowers("iota")
def iota(emit: HloEmitter, results: list[Shape], *, shape: tuple[int, ...], axis: int, dtype: DType) -> Lowered:
    return emit.iota(results[0].static, axis, dtype)


@lowers("dim_size")
def dim_size(emit: HloEmitter, results: list[Shape], *, size: Any) -> Lowered:
    return emit.full((), results[0].dtype, size[0])
