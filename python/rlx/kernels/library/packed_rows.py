"""The kernel that packs rows of floats into blocks, for caches of keys and values."""

from __future__ import annotations

from rlx.ir.dtype import f32, i8, i32, u8
from rlx.kernels.buffer import Buffer, product
from rlx.kernels.case import KernelCase
from rlx.kernels.functions import to_f16
from rlx.kernels.kernel import Kernel, joined_in_pairs
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value
from rlx.ops.quantization.packed import LEAST_INFINITE_HALF, LEAST_TOP, NAN_HALF
from rlx.schemes import find_scheme

_BLOCKS_AT_ONCE = 64  # of a workgroup


def _takes(case: KernelCase) -> bool:
    return case.attributes["scheme"].lower() == "q8_0"


@kernel("quantize_packed", takes=_takes)
def packed_rows(k: Kernel, x: Buffer, y: Buffer, *, scheme: str) -> None:
    """Rows in blocks of 8-bit integers with a scale."""
    packing, lanes = find_scheme(scheme), k.cpu.lanes(f32)
    size, numbers = product(x.shape), x.view(product(x.shape))
    stored = y.view(product(y.shape))
    for block in k.parallel(size // packing.block, _BLOCKS_AT_ONCE):
        starts = range(0, packing.block, lanes)
        vectors = [numbers[k.at(block * packing.block + start)] for start in starts]
        join = k.join("max")
        top = joined_in_pairs([abs(vector) for vector in vectors], join).joined(join)
        scale, at = top / 127.0, block * packing.nbytes
        is_stored = scale < LEAST_INFINITE_HALF  # not if it is NaN
        factor = k.where(is_stored & (top >= LEAST_TOP), 1.0 / scale, 0.0)
        half = k.where(is_stored, to_f16(scale), NAN_HALF)
        stored[at], stored[at + 1] = (half & 255).to(u8), (half >> 8).to(u8)
        for start, vector in zip(starts, vectors, strict=True):
            steps = k.where(is_stored, _rounded(k, vector, factor), 0)
            stored[k.at(at + (2 + start), u8, lanes)] = steps.to(i8).bits(u8)


def _rounded(k: Kernel, vector: Value, factor: Value) -> Value:
    """Return products, rounded half away from zero, as i32.

    A comparison cannot be fused with the product, as a difference can.
    """
    size = abs(vector) * factor.splat(k.cpu.lanes(f32))
    size = k.where(size < 128.0, size, 0.0)
    whole = size.to(i32)
    steps = k.where(size >= whole.to(f32) + 0.5, whole + 1, whole)
    return k.where(vector < 0.0, -steps, steps)
