"""ONNX's type numbers of RLX's dtypes."""

from __future__ import annotations

from onnx import helper

from rlx.ir.dtype import DTYPES, DType


def number_of(kind: DType) -> int | None:
    """Return ONNX's number of a dtype; None if ONNX lacks it."""
    try:
        return int(helper.np_dtype_to_tensor_dtype(kind.numpy))
    except (KeyError, ValueError, TypeError):
        return None


NUMBERS = {d: n for d in DTYPES if (n := number_of(d)) is not None}
