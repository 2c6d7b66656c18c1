"""Lowering rules for complex numbers from their parts, and for the parts."""

from __future__ import annotations

from rlx.ir.shape import Shape
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers


@lowers("complex")
def complex_(emit: HloEmitter, results: list[Shape], real: Lowered, imag: Lowered) -> Lowered:
    parts = (emit.broadcast(part, results[0].static) for part in (real, imag))
    return emit.elementwise("complex", *parts, kind=results[0].dtype)


@lowers("real")
def real(emit: HloEmitter, results: list[Shape], x: Lowered) -> Lowered:
    return emit.elementwise("real", x, kind=x.dtype.part)


@lowers("imag")
def imag(emit: HloEmitter, results: list[Shape], x: Lowered) -> Lowered:
    return emit.elementwise("imag", x, kind=x.dtype.part)
