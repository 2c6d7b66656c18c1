"""Products of a few rows with packed 8-bit floats, in f32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx.ir.dtype import f32, i16, u16
from rlx.kernels.buffer import Buffer
from rlx.kernels.case import KernelCase
from rlx.kernels.functions import of_f16
from rlx.kernels.kernel import Kernel, joined_in_pairs
from rlx.kernels.library.few_rows import axes_of_columns, has_few_rows, ranges_of_columns
from rlx.kernels.library.packed_formats import PackedBytes
from rlx.kernels.library.packed_layouts import number_of
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value
from rlx.schemes import SCHEMES, Scheme, find_scheme
from rlx.schemes.layouts import SCALES, FloatLayout

_AT_ONCE = 4  # rows whose sums fit the registers
_AHEAD, _LINE = (
    4096,
    64,
)  # bytes between the weights that are used and those that the CPU is asked to load, and of a line
_CHAINS = 4  # sums of a block that do not wait for each other


@dataclass(frozen=True)
class FloatBlockFormat:
    """The code of a format of 8-bit floats.

    Attributes:
        block: The number of elements in a block.
        header: The number of bytes before the elements.
        bits: Returns the bits of a number of elements from a position on as f16, u16.
        factor: Returns the factor of the elements of a block, f32.
    """

    block: int
    header: int
    bits: Callable[[PackedBytes, Value, int], Value]
    factor: Callable[[PackedBytes, Value], Value]

    def vectors(self, code: PackedBytes, at: Value) -> list[Value]:
        """Return the elements of a block, vectors that fill a register."""
        lanes, first = code.k.cpu.lanes(f32), at + self.header
        return [of_f16(self.bits(code, first + start, lanes)) for start in range(0, self.block, lanes)]


def find_float_format(name: str) -> FloatBlockFormat | None:
    """Return the code of a format of 8-bit floats by its name in any case; None for other formats."""
    layout = SCHEMES[name].layout if name in SCHEMES else None
    if not isinstance(layout, FloatLayout):
        return None
    scale = number_of(SCALES["f32"], 0)
    if layout.numpy_name == "float8_e5m2":
        return FloatBlockFormat(layout.block, layout.header, _e5m2, scale)
    return FloatBlockFormat(layout.block, layout.header, _e4m3, lambda code, at: scale(code, at) * 256.0)


def _e5m2(code: PackedBytes, at: Value, lanes: int) -> Value:
    """Return the bits of elements. They are the upper bytes of f16 numbers."""
    return code.vector(at, lanes).to(u16) << 8


def _e4m3(code: PackedBytes, at: Value, lanes: int) -> Value:
    """Return the bits of elements divided by 256: as f16 numbers, their exponents are smaller by 8."""
    # The sign is in the two highest bits.
    number = (code.signed(at, lanes).to(i16) << 7) & -0x4080
    # The largest code is NaN. Its number in f16 would be finite: the carry of the largest magnitude sets its exponent.
    return (number | (number + 0x80) & 0x4000).bits(u16)


def takes_few_rows_of_floats(case: KernelCase) -> bool:
    """Whether `packed_float_vecmat` is for a case: a few rows that are not rounded."""
    attributes = case.attributes
    if attributes["activations"] != "f32" or not has_few_rows(case):
        return False
    elements = case.tensors[0].dims[-1]
    return isinstance(elements, int) and elements > 0 and find_float_format(attributes["scheme"]) is not None


@kernel(
    "dequant_matmul",
    name="packed_float_vecmat",
    takes=takes_few_rows_of_floats,
    open_axes=axes_of_columns,
    stored_weights=True,
)
def packed_float_vecmat(k: Kernel, x: Buffer, w: Buffer, y: Buffer, *, scheme: str, activations: str) -> None:
    """The product of a few rows with a matrix of packed 8-bit floats. A row has the same bits among any others."""
    packing, rows, result = find_scheme(scheme), x.rows(), y.rows()
    count, columns = rows.shape[0], w.shape[0]
    assert isinstance(count, int)
    code = PackedBytes(k, w.view(columns * w.shape[1]), 32)
    products = _FloatBlockProducts(k, packing, code, rows)
    for first, end in ranges_of_columns(k, columns):
        for n in k.range(first, end):
            for start in range(0, count, _AT_ONCE):
                many = range(start, min(start + _AT_ONCE, count))
                for row, total in zip(many, products.of_column(n, many), strict=True):
                    result[row, n] = total


@dataclass(frozen=True)
class _FloatBlockProducts:
    """The products of rows with packed columns.

    Attributes:
        k: The kernel.
        scheme: The format.
        code: The packed bytes.
        rows: The rows, f32 `[rows, K]`.
    """

    k: Kernel
    scheme: Scheme
    code: PackedBytes
    rows: Buffer

    def of_column(self, n: Value, rows: range) -> list[Value]:
        """Return the product of each row with a column."""
        k, scheme, lanes = self.k, self.scheme, self.k.cpu.lanes(f32)
        floats = find_float_format(scheme.name)
        elements = self.rows.shape[1]
        assert floats is not None and isinstance(elements, int)
        blocks, zero = elements // scheme.block, k.constant(0.0, f32, lanes)
        sums = [k.register(zero) for _ in rows]
        for b in k.range(blocks):
            at = (n * blocks + b) * scheme.nbytes
            for line in range(0, scheme.nbytes, _LINE):
                k.prefetch(self.code.bytes, at + (_AHEAD + line))
            parts = [[zero] * _CHAINS for _ in rows]
            for number, weights in enumerate(floats.vectors(self.code, at)):
                place = k.at(b * scheme.block + number * lanes)
                for own, row in zip(parts, rows, strict=True):
                    chain = number % _CHAINS
                    own[chain] = weights.fma(self.rows[row, place], own[chain])
            factor = floats.factor(self.code, at).splat(lanes)
            for total, own in zip(sums, parts, strict=True):
                total.value = joined_in_pairs(own, k.join("add")).fma(factor, total.value)
        return [total.value.sum() for total in sums]
