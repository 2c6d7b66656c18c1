"""Lowering rules for Fourier transforms. StableHLO transforms the last axes, and divides inverse transforms by the length."""

from __future__ import annotations

from typing import Any

from rlx.ir.shape import Shape
from rlx.targets.stablehlo.attributes import attribute, sizes
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers


@lowers("fft")
def fft(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, inverse: bool, norm: str) -> Lowered:
    return _transformed(emit, x, results[0], "IFFT" if inverse else "FFT", axis, norm)


@lowers("rfft")
def rfft(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, norm: str) -> Lowered:
    return _transformed(emit, x, results[0], "RFFT", axis, norm)


@lowers("irfft")
def irfft(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, norm: str, **_: Any) -> Lowered:
    return _transformed(emit, x, results[0], "IRFFT", axis, norm)


def _transformed(emit: HloEmitter, x: Lowered, result: Shape, kind: str, axis: int, norm: str) -> Lowered:
    last = x.rank - 1
    size = result.static[axis]
    length = size if kind == "IRFFT" else x.dims[axis]
    others = [i for i in range(x.rank) if i != axis]
    moved = emit.transpose(x, [*others, axis])
    attributes = {"fft_type": attribute(f"#stablehlo<fft_type {kind}>"), "fft_length": sizes([length])}
    transform = emit.one("fft", [moved], (*moved.dims[:-1], size), result.dtype, attributes)
    factor = _factor(length, norm, kind.startswith("I"))
    transform = transform if factor == 1 else emit.mul(transform, factor)
    return emit.transpose(transform, [*range(axis), last, *range(axis, last)])


def _factor(length: int, norm: str, inverse: bool) -> float:
    """The factor for the result of StableHLO's transform."""
    if norm == "ortho":
        return length**0.5 if inverse else length**-0.5
    if norm == "forward":
        return length if inverse else 1 / length
    return 1
