"""Weights that are parts of other weights: rows of a fused matrix, stacked experts, a transposed matrix.

A view moves whole rows, so packed blocks stay as they are. A view of consecutive rows does not copy; other views copy
when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from rlx.support.errors import Error
from rlx.weights import PackedBlocks, PermutedBlocks, Weight
from rlx.weights.encoding import Plain


def _rows_of(weight: Weight) -> np.ndarray:
    """Return the stored bytes by row, u8: the shape of the tensor with the bytes of a row at the end.

    The rows of a vector are its elements.
    """
    leading = weight.shape if len(weight.shape) == 1 else weight.shape[:-1]
    return weight.stored().reshape(*leading, -1)


def _check_rows(weight: Weight) -> None:
    is_plain = isinstance(weight.encoding, Plain) and weight.encoding.order == "C"
    if not is_plain and not isinstance(weight.encoding, (PackedBlocks, PermutedBlocks)):
        raise Error(f"tensor '{weight.name}' of {weight.origin} is stored as '{weight.encoding.name}', and has no rows")


def _view(weight: Weight, shape: tuple[int, ...], select: Callable[[np.ndarray], np.ndarray]) -> Weight:
    _check_rows(weight)
    nbytes = weight.nbytes // max(prod(weight.shape), 1) * prod(shape)
    if isinstance(weight.encoding, (PackedBlocks, PermutedBlocks)):
        nbytes = weight.encoding.nbytes(shape)
    return replace(
        weight, shape=shape, nbytes=nbytes, read=lambda: np.ascontiguousarray(select(_rows_of(weight))).reshape(-1)
    )


def rows(weight: Weight, start: int, count: int) -> Weight:
    """Return consecutive rows of a matrix, or elements of a vector."""
    return _view(weight, (count, *weight.shape[1:]), lambda stored: stored[start : start + count])


def split_rows(weight: Weight, counts: Sequence[int], axis: int = 0) -> list[Weight]:
    """Return consecutive parts of an axis before the last one, or of a vector.

    Raises:
        Error: The weight has a different number of rows.
    """
    if len(weight.shape) <= axis or weight.shape[axis] != sum(counts):
        parts = " + ".join(map(str, counts))
        shape = f"{weight.dtype}{list(weight.shape)}"
        raise Error(f"tensor '{weight.name}' of {weight.origin} is {shape}, and {parts} rows are expected")
    starts = [sum(counts[:i]) for i in range(len(counts))]
    if axis == 0:
        return [rows(weight, start, count) for start, count in zip(starts, counts, strict=True)]
    result: list[Weight] = []
    for start, count in zip(starts, counts, strict=True):
        shape = (*weight.shape[:axis], count, *weight.shape[axis + 1 :])
        index = (*(slice(None),) * axis, slice(start, start + count))
        result.append(_view(weight, shape, lambda stored, index=index: stored[index]))
    return result


def split_groups(weight: Weight, groups: int, counts: Sequence[int]) -> list[Weight]:
    """Return the parts of a weight whose rows are in groups: each group has `counts` rows of each part.

    Raises:
        Error: The weight has a different number of rows.
    """
    total = sum(counts)
    split_rows(weight, [groups * total])
    starts = [sum(counts[:i]) for i in range(len(counts))]
    result: list[Weight] = []
    for start, count in zip(starts, counts, strict=True):

        def select(stored: np.ndarray, start: int = start, count: int = count) -> np.ndarray:
            return stored.reshape(groups, total, -1)[:, start : start + count]

        result.append(_view(weight, (groups * count, *weight.shape[1:]), select))
    return result


def reordered(weight: Weight, order: np.ndarray) -> Weight:
    """Return the rows of a matrix in another order, given by their numbers."""
    return _view(weight, weight.shape, lambda stored: stored[order])


def stacked(weights: Sequence[Weight]) -> Weight:
    """Return weights of the same shape and encoding as one weight with a new first axis.

    Raises:
        Error: They differ.
    """
    first = weights[0]
    for weight in weights:
        _check_rows(weight)
        if (weight.shape, weight.encoding) != (first.shape, first.encoding):
            names = f"'{first.name}' and '{weight.name}'"
            raise Error(f"{weight.origin}: the tensors {names} differ in shape, dtype or order of columns")
    return replace(
        first,
        shape=(len(weights), *first.shape),
        nbytes=first.nbytes * len(weights),
        read=lambda: np.concatenate([weight.stored() for weight in weights]),
    )


def transposed(weight: Weight) -> Weight:
    """Return the transpose of a plain matrix. Other weights stay as they are."""
    return _transposed(weight) if len(weight.shape) == 2 else weight


def transposed_stack(weight: Weight) -> Weight:
    """Return a plain stack of matrices with each matrix transposed. Other weights stay as they are."""
    return _transposed(weight) if len(weight.shape) == 3 else weight


def _transposed(weight: Weight) -> Weight:
    if not isinstance(weight.encoding, Plain) or weight.encoding.order != "C":
        return weight
    *count, size_in, size_out = weight.shape

    def read() -> np.ndarray:
        elements = weight.stored().reshape(-1, size_in, size_out, weight.encoding.nbytes((1,)))
        return np.ascontiguousarray(elements.transpose(0, 2, 1, 3)).reshape(-1)

    return replace(weight, shape=(*count, size_out, size_in), read=read)


def reshaped(weight: Weight, shape: tuple[int, ...]) -> Weight:
    """Return the weight with another shape and the same rows."""
    return replace(weight, shape=shape)
