"""Types of op arguments, used in the signatures of ops and of their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from rlx.ir.dims.expr import DimExpr
from rlx.ir.dtype import DType
from rlx.ir.graph.builder import Tensor
from rlx.ir.shape import Shape

# A tensor of the graph, an array (which becomes a constant), or a number (which takes its dtype from the tensors).
TensorLike: TypeAlias = Tensor | np.ndarray | np.generic | complex
# The operands and results of an op without optional and variadic operands.
Tensors: TypeAlias = Sequence[Tensor]
# Their tangents or cotangents; a zero is None.
Tangents: TypeAlias = Sequence[Tensor | None]
# Whether each of them has a property: is batched, needs a derivative.
Flags: TypeAlias = Sequence[bool]
# `rlx.f32`, `np.float32`, `"f32"` or `"float32"`.
DTypeLike: TypeAlias = DType | np.dtype[Any] | type | str
# The size of an axis: a number, the name of a symbol, or an expression of sizes.
Size: TypeAlias = int | str | DimExpr
# `(1, "seq", 64)`
ShapeLike: TypeAlias = Shape | Sequence[Size] | Size
# One axis, or several.
Axes: TypeAlias = int | Sequence[int]
# One number for all spatial axes, or one per axis.
Window: TypeAlias = int | Sequence[int]
# One number for all borders, one per spatial axis, (before, after) pairs, or `"same"`, `"valid"`.
Padding: TypeAlias = int | str | Sequence[int] | Sequence[tuple[Size, Size]]
