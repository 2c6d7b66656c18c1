"""Fourier transforms, and systems of equations with triangular matrices."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.functions.factorization.systems import cholesky_factor
from rlx.importers.stablehlo.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup


@imports("fft")
def fft(g: Graph, x: Tensor, *, fft_type: str, fft_length: tuple[int, ...]) -> Tensor:
    axes = list(range(x.rank - len(fft_length), x.rank))
    if fft_type in ("FFT", "IFFT"):
        for axis in axes:
            x = g.fft(x, axis=axis, inverse=fft_type == "IFFT")
        return x
    if fft_type == "RFFT":
        x = g.rfft(x, axis=-1)
        for axis in axes[:-1]:
            x = g.fft(x, axis=axis)
        return x
    for axis in axes[:-1]:
        x = g.fft(x, axis=axis, inverse=True)
    return g.irfft(x, length=fft_length[-1], axis=-1)


@dataclass(frozen=True, kw_only=True)
class SolveAttributes(ArgumentGroup):
    """The attributes of a triangular system, with StableHLO's names."""

    left_side: bool
    lower: bool
    unit_diagonal: bool
    transpose_a: str


@imports("triangular_solve")
def triangular_solve(g: Graph, a: Tensor, b: Tensor, *, system: SolveAttributes) -> Tensor:
    kind = {"TRANSPOSE": "T", "ADJOINT": "C"}.get(system.transpose_a, "N")
    return g.solve_triangular(a, b, kind, lower=system.lower, unit_diagonal=system.unit_diagonal, left=system.left_side)


@imports("cholesky")
def cholesky(g: Graph, a: Tensor, *, lower: bool = False) -> Tensor:
    """Return the Cholesky factor. The other triangle is zero. All elements are NaN if there is no factor."""
    if 0 in a.shape.dims:
        return a
    factor = cholesky_factor(g, a, not lower)
    last = factor[..., -1:, -1:]
    return g.where(last == last, factor, float("nan"))
