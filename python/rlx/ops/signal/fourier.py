"""The discrete Fourier transform as matrix products.

Everything here works on pairs `(re, im)` of f32 or f64 tensors `[batch, n]`. A length is split into small factors (J.
W. Cooley and J. W. Tukey, 1965). Each factor is a product with a constant matrix. Between two factors the elements
are multiplied by constant twiddle factors. Results are in order at every stage, so no permutation is needed at the end
(T. G. Stockham, 1966). A prime factor that is too large for a matrix is a convolution with a chirp (L. I. Bluestein,
1970), whose length can be chosen freely. Constants are computed in f64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isqrt

import numpy as np
import numpy.typing as npt

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType
from rlx.ir.graph.builder import Builder, Tensor

# The largest factor that several primes are joined to. Two stages of 16 are less work than one of 256.
_LARGEST_JOINED = 16
# The largest prime that uses a product with its matrix. The sum has this number of terms, whose rounding errors add up.
_LARGEST_MATRIX = 128
# The cost of reading and writing every element once in a stage, in units of one term of its sums.
_STAGE_COST = 12

Pair = tuple[Tensor, Tensor]
MaybeReal = tuple[Tensor, Tensor | None]  # None if all imaginary parts are zero


# --- lengths ----------------------------------------------------------------------------------------


def factors(n: int) -> tuple[int, ...]:
    """Return the factors of a length, one per stage, from the largest to the smallest; none for 1."""
    return tuple(sorted(_cheapest(n)[1], reverse=True))


@cache
def _cheapest(n: int) -> tuple[int, tuple[int, ...]]:
    """Return the minimum work for a length, and the factors that achieve it."""
    if n == 1:
        return 0, ()
    radices = [r for r in range(2, _LARGEST_JOINED + 1) if n % r == 0] or [_least_prime(n)]
    cost, radix = min((_cheapest(n // r)[0] + r + _STAGE_COST, r) for r in radices)
    return cost, (radix, *_cheapest(n // radix)[1])


def _least_prime(n: int) -> int:
    return next((p for p in range(2, isqrt(n) + 1) if n % p == 0), n)


def convolution_length(least: int) -> int:
    """Return a length of at least `least` whose factors are small and whose transform is cheap."""
    power = 1 << (least - 1).bit_length()
    lengths = [power * part // 16 for part in (9, 10, 12, 15, 16) if power * part % 16 == 0]
    return min((n for n in lengths if n >= least), key=lambda n: n * _cheapest(n)[0])


def roots(n: int, exponents: npt.ArrayLike) -> np.ndarray:
    """Return `exp(-2πi·e/n)` for integers e."""
    return np.exp(-2j * np.pi * (np.asarray(exponents, np.int64) % n) / n)


def _matrix(n: int, rows: int) -> np.ndarray:
    """Return the first rows of the matrix of a transform."""
    return roots(n, np.outer(np.arange(rows), np.arange(n)))


# --- pairs ------------------------------------------------------------------------------------------


def constants(b: Builder, values: np.ndarray, kind: DType) -> Pair:
    """Return complex numbers as a pair of constants, f32 or f64."""
    real, imaginary = (np.ascontiguousarray(part, kind.numpy) for part in (np.real(values), np.imag(values)))
    return b.constant(real), b.constant(imaginary)


def times(x: MaybeReal, y: Pair) -> Pair:
    """Return the elementwise product."""
    (a, c), (u, v) = x, y
    return (a * u, a * v) if c is None else (a * u - c * v, a * v + c * u)


def swapped(x: Pair) -> Pair:
    """Swap real and imaginary parts. Swapping before and after a transform gives the unscaled inverse."""
    return x[1], x[0]


def each(x: Pair, function: Callable[[Tensor], Tensor]) -> Pair:
    """Apply a function to both parts."""
    return function(x[0]), function(x[1])


def _reshaped(b: Builder, x: MaybeReal, shape: tuple[Dim, ...]) -> MaybeReal:
    return b.reshape(x[0], shape), None if x[1] is None else b.reshape(x[1], shape)


def zeros(b: Builder, shape: tuple[Dim, ...], kind: DType) -> Tensor:
    """Return a tensor of zeros."""
    return b.expand(b.constant(kind.numpy.type(0)), shape)


def _product(b: Builder, w: np.ndarray, x: Tensor) -> Tensor:
    """Return `w @ x` for a real constant matrix and `x [batch, terms, columns]`."""
    batch, terms, columns = x.shape.dims
    w = np.asarray(w, x.dtype.numpy)
    if columns != 1:
        return b.matmul(b.constant(w), x)
    rows = b.matmul(b.reshape(x, (batch, terms)), b.constant(np.ascontiguousarray(w.T)))  # many rows in one product
    return b.reshape(rows, (batch, len(w), 1))


def _complex_product(b: Builder, w: np.ndarray, x: MaybeReal) -> Pair:
    """Return `w @ x` for a complex constant matrix and a pair."""
    (a, c), u, v = x, np.real(w), np.imag(w)
    if c is None:
        return _product(b, u, a), _product(b, v, a)
    return _product(b, u, a) - _product(b, v, c), _product(b, v, a) + _product(b, u, c)


# --- the transform ----------------------------------------------------------------------------------


def transform(b: Builder, x: MaybeReal, n: int, scale: float = 1.0, columns: int = 1) -> Pair:
    """Return `scale·sum_j x[j]·exp(-2πi·j·k/n)`.

    Args:
        b: The builder.
        x: `[batch, n·columns]`, with n as the outer axis.
        n: The length.
        scale: A factor for the result; it is folded into a constant.
        columns: The number of interleaved transforms.
    """
    batch = x[0].shape.dims[0]
    remaining, done = n, columns
    for radix in factors(n):
        remaining //= radix
        split = _reshaped(b, x, (batch, radix, remaining * done))
        x = _reshaped(
            b, _turned(b, _stage(b, split, radix, scale), radix, radix, remaining, done), (batch, n * columns)
        )
        done, scale = done * radix, 1.0
    return x[0], zeros(b, (batch, n * columns), x[0].dtype) if x[1] is None else x[1]


def _stage(b: Builder, x: MaybeReal, n: int, scale: float) -> Pair:
    """Return the transform along the middle axis of `x [batch, n, columns]`."""
    if n <= _LARGEST_MATRIX:
        return _complex_product(b, scale * _matrix(n, n), x)
    batch, _, columns = x[0].shape.dims
    rows = [None if part is None else b.reshape(b.transpose(part, (0, 2, 1)), (batch * columns, n)) for part in x]
    assert rows[0] is not None
    result = _chirp_transform(b, (rows[0], rows[1]), n, scale)
    return each(result, lambda part: b.transpose(b.reshape(part, (batch, columns, n)), (0, 2, 1)))


def _turned(b: Builder, x: Pair, radix: int, rows: int, remaining: int, done: int) -> Pair:
    """Return the result of a stage, `[batch, rows, remaining·done]`, times twiddle factors.

    The result is `[batch, remaining, rows, done]`.
    """
    batch = x[0].shape.dims[0]
    x = each(x, lambda part: b.transpose(b.reshape(part, (batch, rows, remaining, done)), (0, 2, 1, 3)))
    if remaining == 1:
        return x
    angles = np.outer(np.arange(remaining), np.arange(rows)).reshape(remaining, rows, 1)
    return times(x, constants(b, roots(radix * remaining, angles), x[0].dtype))


def _chirp_transform(b: Builder, x: MaybeReal, n: int, scale: float) -> Pair:
    """Return the transform of `x [batch, n]` of any length.

    Since `2·j·k = j² + k² - (k - j)²`, it is a convolution with `exp(πi·j²/n)`.
    """
    batch, kind = x[0].shape.dims[0], x[0].dtype
    length = convolution_length(2 * n - 1)
    chirp = roots(2 * n, np.arange(n) ** 2)
    kernel = np.zeros(length, np.complex128)
    kernel[:n] = chirp.conj()
    kernel[length - n + 1 :] = chirp[:0:-1].conj()
    spectrum = np.fft.fft(kernel) * (scale / length)
    y = times(x, constants(b, chirp, kind))
    y = each(y, lambda part: b.concat([part, zeros(b, (batch, length - n), kind)], 1))
    y = times(transform(b, y, length), constants(b, spectrum, kind))
    y = swapped(transform(b, swapped(y), length))
    return times(each(y, lambda part: b.narrow(part, 1, 0, n)), constants(b, chirp, kind))


# --- real numbers -----------------------------------------------------------------------------------


def multiplicities(b: Builder, n: Dim, following: int, kind: DType) -> Tensor:
    """Return the number of frequencies that each element of a half spectrum of n real numbers represents.

    Args:
        b: The builder.
        n: The length; it may be a symbol.
        following: The number of axes of size 1 that follow: `[n//2 + 1, 1, …]`.
        kind: The dtype of the result.
    """
    size = n // 2 + 1
    twice_k = b.iota((size,), dtype="i32") * 2
    is_real = b.maximum(b.eq(twice_k, 0), b.eq(twice_k, b.dim_size(n)))
    weights = b.where(is_real, 1.0, b.constant(kind.numpy.type(2)))
    return b.reshape(weights, (size, *(1,) * following))


def _small_factor(n: int) -> int:
    """Return the largest factor whose stage is one product with a matrix; 1 if there is none."""
    return next((r for r in factors(n) if r <= _LARGEST_MATRIX), 1)


def _picked(b: Builder, x: Pair, positions: np.ndarray, is_conjugate: np.ndarray) -> Pair:
    """Gather elements of both parts, some of them conjugated."""
    real, imaginary = each(x, lambda part: b.gather(part, b.constant(positions.astype(np.int32)), 1))
    return real, imaginary * b.constant(np.where(is_conjugate, -1, 1).astype(real.dtype.numpy))


def real_transform(b: Builder, x: Tensor, n: int, scale: float = 1.0) -> Pair:
    """Return the first `n//2 + 1` elements of the transform of `x [batch, n]`.

    The first stage computes only one of each pair of conjugate elements, so the other stages have half the work.
    """
    batch, size = x.shape.dims[0], n // 2 + 1
    radix = _small_factor(n)
    if radix == 1:
        result = transform(b, (x, None), n, scale)
        return each(result, lambda part: b.narrow(part, 1, 0, size))
    remaining, rows = n // radix, radix // 2 + 1
    first = _complex_product(b, scale * _matrix(radix, rows), (b.reshape(x, (batch, radix, remaining)), None))
    first = each(_turned(b, first, radix, rows, remaining, 1), lambda part: b.reshape(part, (batch, remaining * rows)))
    if remaining == 1:
        return first
    result = transform(b, first, remaining, columns=rows)
    frequencies = np.arange(size)
    is_conjugate = frequencies % radix >= rows
    computed = np.where(is_conjugate, n - frequencies, frequencies)
    return _picked(b, result, computed // radix * rows + computed % radix, is_conjugate)


def real_inverse(b: Builder, x: Pair, n: int, scale: float = 1.0) -> Tensor:
    """Return the real signal `[batch, n]` whose spectrum begins with `x [batch, n//2 + 1]`.

    It is the inverse of `real_transform`. The imaginary parts of elements that are their own conjugates are ignored.
    """
    batch, size = x[0].shape.dims[0], n // 2 + 1
    is_real = np.arange(size) * 2 % n == 0
    x = x[0], b.where(b.constant(is_real), 0.0, x[1])
    radix = _small_factor(n)
    if radix == 1:
        all_frequencies = np.arange(n)
        mirrored = _picked(b, x, np.minimum(all_frequencies, n - all_frequencies), all_frequencies >= size)
        return transform(b, swapped(mirrored), n, scale)[1]
    remaining, rows = n // radix, radix // 2 + 1
    if remaining > 1:
        frequencies = (radix * np.arange(remaining)[:, None] + np.arange(rows)).ravel()
        mirrored = _picked(b, x, np.minimum(frequencies, n - frequencies), frequencies >= size)
        x = swapped(transform(b, swapped(mirrored), remaining, columns=rows))
        angles = np.outer(np.arange(remaining), np.arange(rows)).ravel()
        x = times(x, constants(b, roots(n, angles).conj(), x[0].dtype))
        x = each(x, lambda part: b.transpose(b.reshape(part, (batch, remaining, rows)), (0, 2, 1)))
    else:
        x = each(x, lambda part: b.reshape(part, (batch, rows, 1)))
    # Every row represents two elements, except rows that are their own conjugates.
    twice = np.where(np.arange(rows) * 2 % radix == 0, 1.0, 2.0) * scale
    w = _matrix(radix, rows).T * twice
    return b.reshape(_product(b, np.real(w), x[0]) + _product(b, np.imag(w), x[1]), (batch, n))


# --- unknown lengths --------------------------------------------------------------------------------


def _unknown_matrix(b: Builder, n: Dim, rows: Dim, columns: Dim) -> tuple[Tensor, Tensor, Tensor]:
    """Return cosine and sine of `2π·j·k/n` in f64 for a length that is only known at run time, and that length."""
    size = b.cast(b.dim_size(n), "f64")
    turns = b.iota((rows, columns), axis=0, dtype="f64") * b.iota((rows, columns), axis=1, dtype="f64") / size
    angles = (turns - b.round(turns)) * (2 * np.pi)  # the products are integers, so whole turns are removed exactly
    return b.cos(angles), b.sin(angles), size


def unknown_transform(b: Builder, x: Pair, n: Dim, power: float) -> Pair:
    """Return the transform of `x [batch, n]` for a symbolic length, times `n**power`, by its whole matrix in f64.

    Memory and time are proportional to n². The sums are long, hence f64.
    """
    cosine, sine, size = _unknown_matrix(b, n, n, n)
    a, c = each(x, lambda part: b.cast(part, "f64"))
    result = a @ cosine + c @ sine, c @ cosine - a @ sine
    return each(result, lambda part: b.cast(part * size**power, x[0].dtype))


def unknown_real_inverse(b: Builder, x: Pair, n: Dim, power: float) -> Tensor:
    """Return `real_inverse` for a symbolic length, times `n**power`; see `unknown_transform`."""
    rows = x[0].shape.dims[1]
    cosine, sine, size = _unknown_matrix(b, n, rows, n)
    twice_k = b.iota((rows,), dtype="f64") * 2.0
    is_real = b.maximum(b.eq(twice_k, 0.0), b.eq(twice_k, size))
    weights = b.where(is_real, 1.0, b.constant(np.float64(2)))
    real = b.cast(x[0], "f64") * weights
    imaginary = b.where(is_real, 0.0, b.cast(x[1], "f64") * weights)
    return b.cast((real @ cosine - imaginary @ sine) * size**power, x[0].dtype)
