"""Lowering rules for complex numbers from their parts, and for the parts."""

from __future__ import annotations

from rlx import mlir
from rlx.ir.shape import Shape
from rlx.numerics.scalars import storage_type
from rlx.targets.linalg.loops import LoopEmitter
from rlx.targets.linalg.rules import Lowered, lowers


@lowers("complex")
def complex_(low: LoopEmitter, results: list[Shape], real: Lowered, imag: Lowered) -> mlir.Value:
    element, dialect = storage_type(results[0].dtype), mlir.dialect("complex")
    return low.map(results[0].dims, element, [real, imag], lambda re, im: dialect.create_(element, re, im))


@lowers("real")
def real(low: LoopEmitter, results: list[Shape], x: Lowered) -> mlir.Value:
    return low.map(results[0].dims, storage_type(results[0].dtype), [x], mlir.dialect("complex").re)


@lowers("imag")
def imag(low: LoopEmitter, results: list[Shape], x: Lowered) -> mlir.Value:
    return low.map(results[0].dims, storage_type(results[0].dtype), [x], mlir.dialect("complex").im)
