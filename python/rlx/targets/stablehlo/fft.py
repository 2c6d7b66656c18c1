"""Fourier transforms: StableHLO has them, along the last axes, and divides the inverse ones by the length."""

from __future__ import annotations

from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.targets.stablehlo.attributes import attribute, sizes
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers


@lowers("fft")
def fft(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, inverse: bool, norm: str) -> Lowered:
    return _transformed(emit, x, "IFFT" if inverse else "FFT", axis, x.dims[axis], norm, results[0].dtype)


@lowers("rfft")
def rfft(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, norm: str) -> Lowered:
    return _transformed(emit, x, "RFFT", axis, x.dims[axis], norm, results[0].dtype)


@lowers("irfft")
def irfft(
    emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, length: tuple[int, ...], norm: str
) -> Lowered:
    return _transformed(emit, x, "IRFFT", axis, length[0], norm, results[0].dtype)


def _transformed(emit: HloEmitter, x: Lowered, kind: str, axis: int, length: int, norm: str, dtype: DType) -> Lowered:
    last = x.rank - 1
    others = [i for i in range(x.rank) if i != axis]
    moved = emit.transpose(x, [*others, axis])
    size = {"RFFT": length // 2 + 1}.get(kind, length)
    attributes = {"fft_type": attribute(f"#stablehlo<fft_type {kind}>"), "fft_length": sizes([length])}
    result = emit.one("fft", [moved], (*moved.dims[:-1], size), dtype, attributes)
    factor = _factor(length, norm, kind.startswith("I"))
    result = result if factor == 1 else emit.mul(result, factor)
    return emit.transpose(result, [*range(axis), last, *range(axis, last)])


def _factor(length: int, norm: str, inverse: bool) -> float:
    """What the transform as StableHLO has it is multiplied by."""
    if norm == "ortho":
        return length**0.5 if inverse else length**-0.5
    if norm == "forward":
        return length if inverse else 1 / length
    return 1
