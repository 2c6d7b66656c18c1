"""The code of packed formats that are described by a layout of fields, and `find_format`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from rlx.ir.dtype import f32, i8, i32, u8, u16, u32
from rlx.kernels.functions import of_bf16
from rlx.kernels.library.packed_formats import FORMATS, PackedBytes, PackedFormat
from rlx.kernels.values import Value
from rlx.schemes import SCHEMES
from rlx.schemes.layouts import IntegerLayout, ScaleFormat

_RUN = 32  # elements whose bits of a plane are together, and that have one scale for kernels


@lru_cache(maxsize=256)
def find_format(name: str) -> PackedFormat | None:
    """Return the code of a packed format by its name in any case; None if kernels do not have it."""
    name = name.lower()
    if name in FORMATS:
        return FORMATS[name]
    layout = SCHEMES[name].layout if name in SCHEMES else None
    return _format_of(layout) if isinstance(layout, IntegerLayout) else None


def format_of(name: str) -> PackedFormat:
    """Return the code of a packed format that kernels have."""
    found = find_format(name)
    assert found is not None
    return found


def _format_of(layout: IntegerLayout) -> PackedFormat:
    factor = number_of(layout.scale, 0)

    def steps(code: PackedBytes, at: Value) -> list[Value]:
        return [vector for run in range(layout.block // _RUN) for vector in _run(layout, code, at, run)]

    def least_of_zero(code: PackedBytes, at: Value) -> Value:
        return factor(code, at) * code.half(at + layout.scale.nbytes)

    def least_of_bias(code: PackedBytes, at: Value) -> Value:
        bias = -number_of(layout.scale, layout.scale.nbytes)(code, at)
        # Bytes from 0 are read as signed ones.
        return bias - factor(code, at) * 128.0 if layout.bits == 8 else bias

    least = {"symmetric": None, "asymmetric": least_of_zero, "affine": least_of_bias}[layout.kind]
    return PackedFormat(_RUN, steps, factor, (1 << layout.bits) - 1, layout.offset, least)


def number_of(form: ScaleFormat, offset: int) -> Callable[[PackedBytes, Value], Value]:
    """Return the function that reads a scale or bias, as f32."""
    if form.name == "f16":
        return lambda code, at: code.half(at + offset)

    def read(code: PackedBytes, at: Value) -> Value:
        parts = [code.bytes[at + (offset + i)] for i in range(form.nbytes)]
        if form.name == "bf16":
            return of_bf16(parts[0].to(u16) | parts[1].to(u16) << 8)
        bits = parts[0].to(u32)
        for i in range(1, 4):
            bits = bits | parts[i].to(u32) << (8 * i)
        return bits.bits(f32)

    return read


def _run(layout: IntegerLayout, code: PackedBytes, at: Value, run: int) -> list[Value]:
    """Return the integers of 32 elements: vectors of the width, of u8, or of i8 if they have 8 bits."""
    if layout.bits == 8:
        first = at + (layout.header + _RUN * run)
        if layout.is_signed:
            return [code.signed(first + i) for i in range(0, _RUN, code.width)]
        return [(code.vector(first + i) ^ 128).bits(i8) for i in range(0, _RUN, code.width)]
    result: list[Value] = []
    for bits, start, shift in layout.planes:
        plane = _plane(code, at + (start + _RUN * bits // 8 * run), bits)
        result = [r | p << shift for r, p in zip(result, plane, strict=True)] if result else plane
    return result


def _plane(code: PackedBytes, at: Value, bits: int) -> list[Value]:
    """Return integers of a few bits. Those of consecutive runs of bytes are in higher and higher bits of the same bytes."""
    size = _RUN * bits // 8
    data = code.vector(at, size)
    count, mask = max(code.width // size, 1), (1 << bits) - 1
    spread = data if count == 1 else data.shuffle(data, [*range(size)] * count)
    result: list[Value] = []
    for first in range(0, 8 // bits, count):
        if count == 1:
            shifted = spread >> (bits * first) if first else spread
        else:
            shifted = (spread.bits(i32) >> code.shifts(*(bits * (first + i) for i in range(count)))).bits(u8)
        result.append(shifted & mask)
    return result
