"""Contractions, linear algebra and Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.peers.vocabulary import at_least, axes_list, flat, moved, needs, says, sizes


def matmul(g: Any, x: Any, y: Any) -> Any:
    """Return the product as in NumPy and PyTorch, with vectors."""
    rows, columns = (g.reshape(x, (1, -1)) if x.rank == 1 else x), (g.reshape(y, (-1, 1)) if y.rank == 1 else y)
    made = g.matmul(rows, columns)
    gone = [i for i, t in ((made.rank - 2, x), (made.rank - 1, y)) if t.rank == 1]
    return g.reshape(made, [d for i, d in enumerate(sizes(made)) if i not in gone]) if gone else made


says("matmul")(matmul)
says("__rmatmul__")(lambda g, x, y: matmul(g, y, x))
says("mm", "bmm")(lambda g, x, y: g.matmul(x, y))
says("mv", "dot")(matmul)
says("vdot")(lambda g, x, y: matmul(g, _conj(g, x), y))
says("inner")(lambda g, x, y: x * y if not (x.rank and y.rank) else _tensordot(g, x, y, ([-1], [-1])))
says("linalg.multi_dot")(lambda g, xs: _chain(g, xs))
says("addmm", "addmm.decomposed")(lambda g, x, a, b, beta=1, alpha=1: _plus(g, x, g.matmul(a, b), beta, alpha))
says("addmv")(lambda g, x, a, b, beta=1, alpha=1: _plus(g, x, matmul(g, a, b), beta, alpha))
says("baddbmm")(lambda g, x, a, b, beta=1, alpha=1: _plus(g, x, g.matmul(a, b), beta, alpha))
says("addbmm")(lambda g, x, a, b, beta=1, alpha=1: _plus(g, x, g.sum(g.matmul(a, b), [0]), beta, alpha))
says("addr")(lambda g, x, a, b, beta=1, alpha=1: _plus(g, x, g.reshape(a, (-1, 1)) * b, beta, alpha))
says("tensordot")(lambda g, x, y, dims=2: _tensordot(g, x, y, dims))
says("linalg.vecdot")(lambda g, x, y, dim=-1: g.sum(_conj(g, x) * y, [dim]))
says("linalg.cross", "cross")(lambda g, x, y, dim=-1: _cross(g, x, y, dim))
says("linalg.matrix_power")(lambda g, x, n: _matrix_power(g, x, n))
says("linalg.solve", tolerance=4.0)(lambda g, a, b, left=True: _solve(g, a, b, left))
says("linalg.inv", tolerance=4.0)(lambda g, a: _inverse(g, a))
says("linalg.inv_ex", tolerance=4.0)(lambda g, a, check_errors=False: (_inverse(g, a), None))
says("linalg.solve_ex", tolerance=4.0)(lambda g, a, b, left=True, check_errors=False: (_solve(g, a, b, left), None))
says("linalg.vander")(lambda g, x, N=None: _vander(g, x, N))
says("cdist", finite=True, differentiable=False)(lambda g, x, y, p=2.0, *_, **__: _cdist(g, x, y, p))
says("cov")(lambda g, x, **k: _cov(g, x, **k))
says("corrcoef", finite=True)(lambda g, x: _corrcoef(g, x))
says("einsum")(lambda g, xs, equation: _einsum(g, xs, equation))
says("linalg.tensorsolve", "linalg.tensorinv")(lambda g, *_, **__: needs(False, "composition of reshape and solve"))


def _conj(g: Any, x: Any) -> Any:
    return g.conjugate(x) if x.dtype.is_complex else x


def _chain(g: Any, xs: Any) -> Any:
    made = xs[0]
    for x in xs[1:]:
        made = matmul(g, made, x)
    return made


def _plus(g: Any, x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    needs(x.dtype.is_inexact or all(isinstance(n, int) for n in (beta, alpha)), "integers stay integers")
    needs(not x.dtype.is_bool, "numbers")
    scaled = product if alpha == 1 else product * alpha
    return g.expand(scaled, scaled.shape.dims) if beta == 0 else (x if beta == 1 else x * beta) + scaled


def _tensordot(g: Any, x: Any, y: Any, dims: Any) -> Any:
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int):
        dims = list(range(x.rank - dims, x.rank)), list(range(dims))
    needs(all(sizes(x)[a] == sizes(y)[b] for a, b in zip(*dims, strict=True)), "sizes agree")
    ours, theirs = ([d % t.rank for d in axes] for axes, t in zip(dims, (x, y), strict=True))
    return g.dot_general(x, y, ours, theirs)


def _cross(g: Any, x: Any, y: Any, dim: Any) -> Any:
    if dim is None:
        dim = next(i for i, d in enumerate(sizes(x)) if d == 3)
    shape = np.broadcast_shapes(sizes(x), sizes(y))
    x, y = g.expand(x, shape), g.expand(y, shape)

    def turned(t: Any, by: int) -> Any:
        return g.concat([g.narrow(t, dim, by, 3 - by), g.narrow(t, dim, 0, by)], axis=dim)

    return turned(x, 1) * turned(y, 2) - turned(x, 2) * turned(y, 1)


def _batch(g: Any, x: Any, core: int) -> Any:
    dims = sizes(x)[: x.rank - core]
    return g.reshape(x, (math.prod(dims), *sizes(x)[x.rank - core :]))


def _solve(g: Any, a: Any, b: Any, left: bool) -> Any:
    needs(not a.dtype.is_complex, "RLX solves real systems")
    vector = b.rank == 1 or (sizes(b) == sizes(a)[:-1] and b.rank == a.rank - 1)
    if vector:
        b = g.reshape(b, (*sizes(b), 1))
    if not left:
        a, b = moved(g, a, -1, -2), moved(g, b, -1, -2)
    batch = np.broadcast_shapes(sizes(a)[:-2], sizes(b)[:-2])
    a, b = g.expand(a, (*batch, *sizes(a)[-2:])), g.expand(b, (*batch, *sizes(b)[-2:]))
    made = g.batched_dense_solve(_batch(g, a, 2), _batch(g, b, 2))
    made = g.reshape(made, sizes(b))
    if not left:
        made = moved(g, made, -1, -2)
    return g.reshape(made, sizes(made)[:-1]) if vector else made


def _inverse(g: Any, a: Any) -> Any:
    needs(not a.dtype.is_complex, "RLX solves real systems")
    n = sizes(a)[-1]
    eye = g.cast(g.iota((n, n), axis=0) == g.iota((n, n), axis=1), a.dtype)
    return _solve(g, a, g.expand(eye, sizes(a)), True)


def _matrix_power(g: Any, x: Any, n: int) -> Any:
    if n < 0:
        x, n = _inverse(g, x), -n
    size = sizes(x)[-1]
    if n == 0:
        eye = g.cast(g.iota((size, size), axis=0) == g.iota((size, size), axis=1), x.dtype)
        return g.expand(eye, sizes(x))
    made = x
    for _ in range(n - 1):
        made = g.matmul(made, x)
    return made


def _vander(g: Any, x: Any, number: Any) -> Any:
    x = at_least(g, x, 1)
    number = sizes(x)[-1] if number is None else number
    wide = g.expand(g.reshape(x, (*sizes(x), 1)), (*sizes(x), number))
    return g.concat(
        [g.expand(g.cast(g.constant(1), x.dtype), (*sizes(x), 1)), g.cumprod(wide, -1)[..., : number - 1]], -1
    )


def _cdist(g: Any, x: Any, y: Any, p: float) -> Any:
    from tests.peers.reductions import vector_norm

    difference = g.reshape(x, (*sizes(x)[:-1], 1, sizes(x)[-1])) - g.reshape(y, (*sizes(y)[:-2], 1, *sizes(y)[-2:]))
    return vector_norm(g, difference, p, [-1])


def _cov(g: Any, x: Any, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    needs(fweights is None and aweights is None, "weights are left out")
    x = at_least(g, x, 2) if x.dtype.is_inexact else at_least(g, g.cast(x, "f32"), 2)
    scalar = sizes(x)[0] == 1
    centred = x - g.mean(x, [1], keep_dims=True)
    rest = sizes(x)[1] - correction
    made = g.matmul(centred, _conj(g, centred.T)) / float(max(rest, 0))
    return g.reshape(made, ()) if scalar else made


def _corrcoef(g: Any, x: Any) -> Any:
    needs(x.rank == 2, "rows")
    made = _cov(g, x)
    if sizes(made) == ():
        return made / made
    from tests.peers.shapes import diagonal

    scale = g.sqrt(g.abs(diagonal(g, made)))
    return made / g.reshape(scale, (-1, 1)) / scale


def _einsum(g: Any, xs: Any, equation: str) -> Any:
    """Contract two operands without repeated letters."""
    needs("..." not in equation and "->" in equation and len(xs) == 2, "two operands, all axes named")
    inputs, output = equation.replace(" ", "").split("->")
    ours, theirs = inputs.split(",")
    needs(len(set(ours)) == len(ours) and len(set(theirs)) == len(theirs), "no diagonals")
    shared = [c for c in ours if c in theirs]
    batch, contracted = [c for c in shared if c in output], [c for c in shared if c not in output]
    needs(all(c in output or c in shared for c in ours + theirs), "no sums over one operand")
    made = g.dot_general(
        xs[0],
        xs[1],
        [ours.index(c) for c in contracted],
        [theirs.index(c) for c in contracted],
        [ours.index(c) for c in batch],
        [theirs.index(c) for c in batch],
    )
    order = batch + [c for c in ours if c not in shared] + [c for c in theirs if c not in shared]
    return g.transpose(made, [order.index(c) for c in output])


# Fourier transforms.


def _resized(g: Any, x: Any, n: Any, dim: int) -> Any:
    size = sizes(x)[dim]
    if n is None or n == size:
        return x
    if n < size:
        return g.narrow(x, dim, 0, n)
    return g.pad(x, [(0, n - size if i == dim % x.rank else 0) for i in range(x.rank)])


def _transform(function: str, inverse: bool) -> Any:
    def transform(g: Any, x: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
        norm = norm or "backward"
        if function == "irfft":
            length = 2 * (sizes(x)[dim] - 1) if n is None else n
            return g.irfft(_resized(g, _as_complex(g, x), length // 2 + 1, dim), length, dim, norm)
        x = _resized(g, _ready(g, x), n, dim)
        return g.rfft(x, dim, norm) if function == "rfft" else g.fft(x, dim, inverse, norm)

    return transform


def _ready(g: Any, x: Any) -> Any:
    needs(x.dtype.name not in ("f16", "bf16"), "PyTorch has c32 for f16")
    return x if x.dtype.is_inexact else g.cast(x, "f32")


def _as_complex(g: Any, x: Any) -> Any:
    x = _ready(g, x)
    return x if x.dtype.is_complex else g.complex(x, 0.0)


def _axes(x: Any, s: Any, dim: Any) -> tuple[list[int], list[Any]]:
    if dim is None:
        dim = list(range(x.rank)) if s is None else list(range(x.rank - len(s), x.rank))
    dim = [dim] if isinstance(dim, int) else dim
    s = [s] if isinstance(s, int) else s
    lengths = [None] * len(dim) if s is None else [None if v == -1 else v for v in s]
    return [d % x.rank for d in dim], lengths


def _many(function: str, inverse: bool, default: Any) -> Any:
    def transform(g: Any, x: Any, s: Any = None, dim: Any = default, norm: Any = None) -> Any:
        axes, lengths = _axes(x, s, dim)
        one = _transform("fft", inverse)
        if function == "irfft":
            x = _as_complex(g, x)
            for axis, n in list(zip(axes, lengths, strict=True))[:-1]:
                x = one(g, x, n, axis, norm)
            return _transform("irfft", True)(g, x, lengths[-1], axes[-1], norm)
        x = _transform(function, inverse)(g, x, lengths[-1], axes[-1], norm)
        for axis, n in list(zip(axes, lengths, strict=True))[:-1]:
            x = one(g, x, n, axis, norm)
        return x

    return transform


for _name, _function, _inverse_ in (
    ("fft", "fft", False),
    ("ifft", "fft", True),
    ("rfft", "rfft", False),
    ("irfft", "irfft", True),
):
    says(f"fft.{_name}", differentiable=False, mixes=True)(_transform(_function, _inverse_))
    says(f"fft.{_name}2", differentiable=False, mixes=True)(_many(_function, _inverse_, (-2, -1)))
    says(f"fft.{_name}n", differentiable=False, mixes=True)(_many(_function, _inverse_, None))
says("fft.fftshift")(lambda g, x, dim=None: g.fftshift(x, axes_list(x, dim)))
says("fft.ifftshift")(lambda g, x, dim=None: g.ifftshift(x, axes_list(x, dim)))


_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


@says("fft.hfft", differentiable=False, mixes=True)
def _hfft(g: Any, x: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
    return _transform("irfft", True)(g, _conj(g, _as_complex(g, x)), n, dim, _OPPOSITE[norm or "backward"])


@says("fft.ihfft", differentiable=False, mixes=True)
def _ihfft(g: Any, x: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
    return g.conjugate(_transform("rfft", False)(g, x, n, dim, _OPPOSITE[norm or "backward"]))


@says("combinations")
def _combinations(g: Any, x: Any, r: int = 2, with_replacement: bool = False) -> Any:
    from itertools import combinations, combinations_with_replacement

    chosen = list((combinations_with_replacement if with_replacement else combinations)(range(sizes(x)[0]), r))
    needs(chosen and r, "nothing is chosen")
    return g.gather(flat(g, x), g.constant(np.array(chosen)))
