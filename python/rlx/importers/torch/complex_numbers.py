"""Complex numbers and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.importers.torch.rules import Results, as_tensor, aten, axis_of
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.errors import UnsupportedError

_NORMS = ("backward", "ortho", "forward")  # indexed by PyTorch's numbers, for a forward transform
_INVERSE_NORMS = ("forward", "ortho", "backward")


@aten("real")
def real(g: Graph, x: Tensor) -> Tensor:
    return g.real(x) if x.dtype.is_complex else x


@aten("imag")
def imag(g: Graph, x: Tensor) -> Tensor:
    return g.imag(x)


@aten("_conj", "conj", "conj_physical", "_conj_physical")
def conj(g: Graph, x: Tensor) -> Tensor:
    return g.conjugate(x) if x.dtype.is_complex else x


@aten("complex")
def complex_(g: Graph, real: Tensor, imag: Tensor) -> Tensor:
    return g.complex(real, imag)


@aten("polar")
def polar(g: Graph, size: Tensor, angle: Tensor) -> Tensor:
    return g.complex(g.mul(size, g.cos(angle)), g.mul(size, g.sin(angle)))


@aten("angle")
def angle(g: Graph, x: Tensor, *, results: Results) -> Tensor:
    if x.dtype.is_complex:
        return g.atan2(g.imag(x), g.real(x))
    x = as_tensor(g, x, results[0].dtype)
    turned = g.where(g.lt(x, 0.0), g.cast(3.141592653589793, x.dtype), g.cast(0.0, x.dtype))
    return g.where(g.isnan(x), x, turned)


@aten("view_as_real", "view_as_real_copy")
def view_as_real(g: Graph, x: Tensor) -> Tensor:
    return g.stack([g.real(x), g.imag(x)], axis=-1)


@aten("view_as_complex", "view_as_complex_copy")
def view_as_complex(g: Graph, x: Tensor) -> Tensor:
    if x.dtype != f32:
        raise UnsupportedError(f"of {x.dtype} cannot be imported: complex numbers have parts of f32")
    return g.complex(x[..., 0], x[..., 1])


@aten("_fft_c2c")
def fft_c2c(g: Graph, x: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    norm = (_NORMS if forward else _INVERSE_NORMS)[normalization]
    for axis in dim:
        x = g.fft(x, axis=axis_of(axis, x.rank), inverse=not forward, norm=norm)
    return x


@aten("_fft_r2c")
def fft_r2c(g: Graph, x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    *others, last = dim
    norm = _NORMS[normalization]
    made = (
        g.rfft(x, axis=axis_of(last, x.rank), norm=norm)
        if onesided
        else g.fft_real(x, axis_of(last, x.rank), norm=norm)
    )
    return fft_c2c(g, made, others, normalization, True)


@aten("_fft_c2r")
def fft_c2r(g: Graph, x: Tensor, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Tensor:
    *others, last = dim
    x = fft_c2c(g, x, others, normalization, False)
    return g.irfft(x, last_dim_size, axis_of(last, x.rank), norm=_INVERSE_NORMS[normalization])
