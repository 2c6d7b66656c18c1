"""Element orders of streams."""

from __future__ import annotations

from math import prod

import numpy as np


def row_major(shape: tuple[int, ...]) -> np.ndarray:
    """The order where the last axis varies fastest."""
    return np.arange(prod(shape))


def usual(shape: tuple[int, ...]) -> np.ndarray:
    """The default order of inputs and reordered tensors: channels vary fastest for `[N, C, spatial…]`, else row-major."""
    if len(shape) not in (3, 4):
        return row_major(shape)
    return np.moveaxis(row_major(shape).reshape(shape), 1, -1).ravel()


def channels_of(order: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """The order of the channels in each pixel if a stream of `[N, C, spatial…]` has whole pixels one by one, else None."""
    images, channels, pixels = shape[0], shape[1], prod(shape[2:])
    blocks = order.reshape(images * pixels, channels)
    bases = (np.arange(images)[:, None] * channels * pixels + np.arange(pixels)).ravel()
    first = blocks[0] - bases[0]
    return first // pixels if np.array_equal(blocks, bases[:, None] + first) and not (first % pixels).any() else None


def columns_of(order: np.ndarray, length: int) -> np.ndarray | None:
    """The order in each row if a stream has whole rows of a length one by one, else None."""
    blocks = order.reshape(-1, length)
    first = blocks[0]
    return first if np.array_equal(blocks, np.arange(len(blocks))[:, None] * length + first) else None


def inverse(order: np.ndarray) -> np.ndarray:
    """The position of each element of a tensor in a stream."""
    result = np.empty_like(order)
    result[order] = np.arange(len(order))
    return result
