"""Running products and maxima."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, sample
from rlx.ir.shape import Shape
from rlx.ops.lift import axis_of, check_axis
from rlx.ops.reduce import REAL, running


class Cumprod(Card, op="cumprod"):
    def infer(self, x: Shape, *, axis: int, exclusive: bool) -> Shape:
        check_axis(axis, x.rank)
        return x

    def evaluate(self, x: np.ndarray, *, axis: int, exclusive: bool) -> np.ndarray:
        return running(np.multiply, x, axis, exclusive)

    def build(self, b: Builder, x: Tensor, axis: int, exclusive: bool = False) -> Tensor:
        return b.emit("cumprod", (x,), axis=axis_of(axis, x.rank), exclusive=exclusive)

    def samples(self) -> Any:
        yield sample((3, 5), axis=1, dtypes=(*REAL, "c64"))
        yield sample((5, 3), axis=0, exclusive=True, dtypes=("f32", "i32"))
        yield sample((2, 33), axis=1, dtypes=("f32",))
        yield sample((2, 0), axis=1, exclusive=True, dtypes=("f32",))
        yield sample((2, "n"), axis=1, dtypes=("f32",))


class Cummax(Card, op="cummax"):
    def infer(self, x: Shape, *, axis: int) -> Shape:
        check_axis(axis, x.rank)
        return x

    def evaluate(self, x: np.ndarray, *, axis: int) -> np.ndarray:
        return np.maximum.accumulate(x, axis)

    def build(self, b: Builder, x: Tensor, axis: int) -> Tensor:
        return b.emit("cummax", (x,), axis=axis_of(axis, x.rank))

    def samples(self) -> Any:
        yield sample((3, 5), axis=1, dtypes=REAL)
        yield sample((2, 33, 2), axis=1, dtypes=("f32",))
        yield sample((2, 0), axis=1, dtypes=("f32",))
        yield sample((2, "n"), axis=1, dtypes=("f32",))
