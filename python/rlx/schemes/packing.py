"""Shared helpers of encoders: integers into bytes, scales into f16, and the rounding of ggml."""

from __future__ import annotations

import numpy as np

from rlx.support.errors import Error

_LARGEST_HALF = 65504.0


def pack(steps: np.ndarray, bits: int, run: int) -> np.ndarray:
    """Return integers below `2**bits`, u8 `[n, …]`, in bytes. The inverse of `nibbles`, `bit_pairs` and `bits` of `Blocks`.

    Args:
        steps: The integers.
        bits: The number of bits of each.
        run: The number of bytes in which the first integers have the lowest bits, and the last ones the highest.
    """
    planes = steps.reshape(steps.shape[0], -1, 8 // bits, run)
    packed = planes[:, :, 0].copy()
    for i in range(1, 8 // bits):
        packed |= planes[:, :, i] << np.uint8(bits * i)
    return packed.reshape(steps.shape[0], -1)


def as_halves(scales: np.ndarray) -> np.ndarray:
    """Return f32 numbers rounded to f16.

    Raises:
        Error: A number is larger than those of f16.
    """
    halves = scales.astype("<f2")
    finite = np.isfinite(halves)
    if not finite.all():
        raise Error(
            f"a block of packed weights has a scale or an offset of up to {_LARGEST_HALF:g} (f16), and these numbers need "
            f"{np.abs(scales[~finite]).max():g}; scale the tensor down, or store it in f32"
        )
    return halves


def half_bytes(scales: np.ndarray) -> np.ndarray:
    """Return f32 numbers `[n, k]` as the bytes of f16 numbers, `[n, 2k]`."""
    return np.ascontiguousarray(as_halves(scales)).view(np.uint8)


def reciprocals(scales: np.ndarray) -> np.ndarray:
    """Return `1/scale`, and 0 for 0."""
    return np.where(scales == 0, np.float32(0), np.float32(1) / scales)


def round_away(x: np.ndarray) -> np.ndarray:
    """Return the nearest integers. Halves are rounded away from zero, as by C's `roundf`."""
    whole = np.trunc(x)
    return whole + np.trunc(2 * (x - whole))


def signed_peaks(x: np.ndarray) -> np.ndarray:
    """Return of each row the first number with the largest magnitude, `[n, 1]`."""
    return np.take_along_axis(x, np.abs(x).argmax(-1)[:, None], axis=-1)


def peaks(x: np.ndarray) -> np.ndarray:
    """Return of each row the largest magnitude, `[n, 1]`."""
    return np.abs(signed_peaks(x))
