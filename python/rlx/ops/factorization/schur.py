"""The Schur form of complex matrices: balancing, reduction to Hessenberg form, and the shifted QR algorithm."""

from __future__ import annotations

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.factorization.matrices import adjoint, identities, order_of, precision
from rlx.ops.factorization.qr import applied, reflection

# Passes of balancing, and sweeps for each eigenvalue (LAPACK allows 30).
_PASSES, _MOST_SWEEPS = 4, 30


def balanced(b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return `d⁻¹·a·d` of matrices `[B, N, N]`, whose rows and columns have similar norms, and the diagonal `d [B, N]`."""
    batch, (size, _) = a.shape.dims[0], order_of(a.shape, square=True)
    places = b.iota((size,), dtype="i32")

    def scale(carry: tuple[Tensor, Tensor], step: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[()]]:
        matrix, diagonal = carry
        is_here = places == b.remainder(step, size)
        column, row = (
            b.sum(
                b.where(is_here, 0.0, b.abs(b.gather(matrix, b.remainder(step, size), axis=axis))),
                axes=1,
                keep_dims=True,
            )
            for axis in (2, 1)
        )
        is_coupled = b.logical_and(column > 0.0, row > 0.0)
        column, row = b.where(is_coupled, column, 1.0), b.where(is_coupled, row, 1.0)
        factor = b.exp2(b.round(0.5 * (b.log2(row) - b.log2(column))))
        is_better = b.logical_and(is_coupled, column * factor + row / factor < 0.95 * (column + row))
        factors = b.where(b.logical_and(is_better, is_here), factor, 1.0)  # [B, N]
        scaled = matrix * b.reshape(factors, (batch, 1, size)) / b.reshape(factors, (batch, size, 1))
        return (scaled, diagonal * factors), ()

    start = (a, b.ones((batch, size), a.dtype.part))
    return b.scan(scale, start, b.iota((_PASSES * size,), dtype="i32"))[0]


def hessenberg(b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return `h` and unitary `z` with `a = z·h·zᴴ` for `[B, N, N]`: `h` is zero below its first subdiagonal."""
    size, _ = order_of(a.shape, square=True)
    if size < 3:
        return a, identities(b, a)
    places = b.iota((size,), dtype="i32")

    def reduce(carry: tuple[Tensor, Tensor], step: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[()]]:
        matrix, vectors = carry
        vector, factor = reflection(b, b.gather(matrix, step, axis=2), step + 1, places)
        matrix = applied(b, vector, b.conjugate(factor), matrix)
        both = [adjoint(b, applied(b, vector, b.conjugate(factor), adjoint(b, x))) for x in (matrix, vectors)]
        return (both[0], both[1]), ()

    (reduced, vectors), _ = b.scan(reduce, (a, identities(b, a)), b.iota((size - 2,), dtype="i32"))
    return b.triu(reduced, -1), vectors


def schur(b: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return upper triangular `t` and unitary `z` with `a = z·t·zᴴ`, and which of the matrices `[B]` have converged."""
    batch, (size, _) = a.shape.dims[0], order_of(a.shape, square=True)
    h, z = hessenberg(b, a)
    h, first, last = _deflated(b, h)
    zero = b.constant(0, dtype="i32")

    def is_busy(count: Tensor, _: Tensor, _h: Tensor, _z: Tensor, _first: Tensor, last: Tensor) -> Tensor:
        return b.logical_and(b.any(last > 0), count < _MOST_SWEEPS * size)

    def sweep(count: Tensor, tries: Tensor, h: Tensor, z: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, ...]:
        h, z = _swept(b, h, z, (first, last), _shift(b, h, last, tries))
        h, first, following = _deflated(b, h)
        return count + 1, b.where(following == last, tries + 1, 0), h, z, first, following

    if size > 1:
        start = (zero, b.expand(zero, (batch, 1)), h, z, first, last)
        _, _, h, z, _, last = b.while_(is_busy, sweep, *start)
    return b.triu(h), z, b.reshape(last == 0, (batch,))


def _deflated(b: Builder, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Set negligible elements of the subdiagonal to zero. Return the matrices, and the window that is left, both `[B, 1]`.

    The window is from the first to the last index of the lowest block whose subdiagonal has no zeros.
    """
    batch, (size, _) = h.shape.dims[0], order_of(h.shape, square=True)
    places = b.iota((size,), dtype="i32")
    is_below = b.reshape(places, (size, 1)) == places + 1
    sizes, eye = b.abs(h), b.eye(size, dtype=h.dtype.part)
    below = b.sum(b.where(is_below, sizes, 0.0), axes=2)  # [B, N]: |h[i, i - 1]|
    diagonal = b.sum(sizes * eye, axes=2)
    before = b.concat([b.narrow(diagonal, 1, 0, 1), b.narrow(diagonal, 1, 0, size - 1)], axis=1)
    norm = b.max(sizes, axes=(1, 2))
    bound = precision(h) * b.maximum(diagonal + before, b.reshape(norm, (batch, 1)) * precision(h))
    is_coupled = b.logical_and(below > bound, places > 0)
    h = b.where(b.logical_and(is_below, b.logical_not(b.reshape(is_coupled, (batch, size, 1)))), 0.0, h)
    last = b.max(b.where(is_coupled, places, 0), axes=1, keep_dims=True)
    is_start = b.logical_and(b.logical_not(is_coupled), places <= last)
    return h, b.max(b.where(is_start, places, 0), axes=1, keep_dims=True), last


def _shift(b: Builder, h: Tensor, last: Tensor, tries: Tensor) -> Tensor:
    """Return Wilkinson's shift `[B, 1]`: the eigenvalue of the last 2x2 block that is nearest to its last element.

    Every tenth sweep has another one, since shifts may repeat themselves.
    """
    pair = b.concat([b.maximum(last - 1, 0), last], axis=1)
    block = b.gather_batched(b.swapaxes(b.gather_batched(h, pair, axis=1), 1, 2), pair, axis=1)  # transposed
    upper, lower, other, corner = (block[:, j, i : i + 1] for i, j in ((0, 0), (1, 0), (0, 1), (1, 1)))
    half, product = 0.5 * (upper - corner), lower * other
    root = b.sqrt(half * half + product)
    root = b.where(b.real(b.conjugate(half) * root) < 0.0, -root, root)
    divisor = half + root
    shift = corner - b.where(divisor == 0.0, 0.0, product / b.where(divisor == 0.0, 1.0, divisor))
    return b.where(b.remainder(tries, 10) == 9, corner + 0.75 * b.abs(lower), shift)


def _swept(b: Builder, h: Tensor, z: Tensor, window: tuple[Tensor, Tensor], shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return `r·q + shift` for `h - shift = q·r` in the window, and `z·q`."""
    batch, (size, _) = h.shape.dims[0], order_of(h.shape, square=True)
    (first, last), places = window, b.iota((size,), dtype="i32")
    eye = b.eye(size, dtype=h.dtype)
    is_inside = b.logical_and(places >= first, places <= last)
    shifts = eye * b.reshape(b.where(is_inside, shift, 0.0), (batch, 1, size))
    rows = b.transpose(h - shifts, (1, 0, 2))

    def of_rows(row: Tensor, step: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        following, place = step
        is_active = b.logical_and(place >= first, place < last)
        x, y = (b.reshape(b.gather(r, place, axis=1), (batch, 1)) for r in (row, following))
        cosine, sine, turns = _rotation(b, x, y, is_active)
        rest = cosine * following - b.conjugate(sine) * row
        rest = b.where(b.logical_and(turns, places == place), 0.0, rest)
        return rest, (cosine * row + sine * following, cosine, sine)

    steps = b.iota((size - 1,), dtype="i32")
    end, (upper, cosines, sines) = b.scan(of_rows, rows[0], (b.narrow(rows, 0, 1, size - 1), steps))
    upper = b.concat([upper, b.expand_dims(end, 0)], axis=0)  # [N, B, N], by rows
    columns = b.concat([b.transpose(upper, (2, 1, 0)), b.transpose(z, (2, 0, 1))], axis=2)  # of both, by columns

    def of_columns(column: Tensor, step: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        following, cosine, sine = step
        return cosine * following - sine * column, cosine * column + b.conjugate(sine) * following

    end, turned = b.scan(of_columns, columns[0], (b.narrow(columns, 0, 1, size - 1), cosines, sines))
    turned = b.transpose(b.concat([turned, b.expand_dims(end, 0)], axis=0), (1, 2, 0))  # [B, 2N, N]
    return b.narrow(turned, 1, 0, size) + shifts, b.narrow(turned, 1, size, size)


def _rotation(b: Builder, x: Tensor, y: Tensor, is_active: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a real `c` and complex `s` with `conj(s)·x = c·y`, or 1 and 0, and where there is a rotation, `[B, 1]`."""
    x_size, y_size = b.abs(x), b.abs(y)
    turns = b.logical_and(is_active, y_size > 0.0)
    largest = b.where(turns, b.maximum(x_size, y_size), 1.0)
    length = b.sqrt(b.square(x_size / largest) + b.square(y_size / largest))
    length = b.where(turns, length, 1.0)
    phase = b.where(x_size > 0.0, x / b.where(x_size > 0.0, x_size, 1.0), 1.0)
    cosine = b.where(turns, x_size / largest / length, 1.0)
    return cosine, b.where(turns, phase * (b.conjugate(y / largest) / length), 0.0), turns


def vectors_of_triangular(b: Builder, t: Tensor) -> Tensor:
    """Return eigenvectors of upper triangular matrices `[B, N, N]` as columns, by substitution from the last row up.

    Differences of equal eigenvalues count as the precision of the norm, as in LAPACK. The largest element of a column is
    at most 1.
    """
    batch, (size, _) = t.shape.dims[0], order_of(t.shape, square=True)
    places = b.iota((size,), dtype="i32")
    values = b.diagonal(t, 0, 1, 2)  # [B, N]
    norm = b.max(b.abs(t), axes=(1, 2))
    least = b.reshape(b.where(norm == 0.0, 1.0, norm) * precision(t), (batch, 1))

    def substitute(x: Tensor, step: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        row, value, place = step
        known = b.reshape(b.where(places > place, row, 0.0), (batch, 1, size))
        product = b.reshape(b.matmul(known, x), (batch, size))
        gap = b.reshape(value, (batch, 1)) - values
        found = -product / b.where(b.abs(gap) < least, b.cast(least, t.dtype), gap)
        found = b.where(places > place, found, b.where(places == place, 1.0, 0.0))
        size_of = b.maximum(b.abs(found), 1.0)
        is_row = b.reshape(places == place, (size, 1))
        return b.where(is_row, b.reshape(found, (batch, 1, size)), x) / b.reshape(size_of, (batch, 1, size)), ()

    steps = (b.transpose(t, (1, 0, 2)), b.transpose(values, (1, 0)), places)
    start = b.expand(b.constant(0.0, dtype=t.dtype), (batch, size, size))
    return b.scan(substitute, start, steps, reverse=True)[0]
