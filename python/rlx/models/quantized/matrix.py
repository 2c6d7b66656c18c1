"""`QuantizedMatrix`: integers or 8-bit floats with scales for groups of columns, converted to a packed format when read."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rlx.ir.dtype import dtype
from rlx.models.fields import Fields
from rlx.schemes import find_scheme
from rlx.schemes.grouped import integer_name
from rlx.schemes.layouts import BLOCKS, BlockLayout, FloatLayout, plane_of_nibbles
from rlx.support.errors import Error, UnsupportedError
from rlx.targets.host import usable_cpus
from rlx.targets.iree.memory import empty_aligned
from rlx.weights import Encoding, PackedBlocks, PermutedBlocks, Weight
from rlx.weights.arrays import ReadOnlyArray
from rlx.weights.mapped import release_pages

_AT_ONCE = 1 << 20  # elements that a thread converts at a time
_ROWS = 64  # the number of rows is a multiple: a word of a file has parts of up to 8, and lines of memory 16 words


class MatrixRows(NamedTuple):
    """Some rows of a matrix, as a file has them.

    Attributes:
        steps: The integers as the packed format stores them, u8 or i8, or the codes of 8-bit floats, u8 `[n, in]`. Integers
            of 4 bits may also be in order in the halves of bytes, u8 `[n, in/2]`.
        scales: `[n, groups]`.
        seconds: The zero-points or biases, `[n, groups]`; None if there are none.
    """

    steps: np.ndarray
    scales: np.ndarray
    seconds: np.ndarray | None = None


@dataclass(frozen=True)
class QuantizedMatrix:
    """A quantised matrix in a file.

    Attributes:
        name: The name of the matrix, without the suffix of a part.
        origin: The file, for messages.
        shape: `(out, in)`.
        group: The number of columns with one scale.
        scheme: Returns the name of the packed format with blocks of a size.
        rows: Returns some rows.
        sources: The tensors that `rows` reads. Their pages are released after the conversion.
        order: The columns in the order of groups, if groups are not consecutive columns. `rows` returns them in this order.
    """

    name: str
    origin: str
    shape: tuple[int, int]
    group: int
    scheme: Callable[[int], str]
    rows: Callable[[slice], MatrixRows] = field(repr=False)
    sources: Sequence[Weight] = field(repr=False)
    order: tuple[int, ...] | None = field(default=None, repr=False)

    def weight(self) -> Weight:
        """Return the matrix in a packed format.

        Raises:
            UnsupportedError: Rows or groups do not divide into blocks of 32 elements.
        """
        out, columns = self.shape
        block = next((b for b in BLOCKS if columns % b == 0 and (self.group % b == 0 or self.group >= columns)), None)
        if block is None or not columns:
            raise UnsupportedError(
                f"{self.origin}: '{self.name}' has rows of {columns} elements with scales for {min(self.group, columns)} "
                f"each; both must be multiples of {BLOCKS[-1]}"
            )
        packed = PackedBlocks(find_scheme(self.scheme(block)))
        encoding: Encoding = packed if self.order is None else PermutedBlocks(packed.scheme, self.order)
        nbytes = packed.nbytes((out, columns))
        return Weight(f"{self.name}.weight", self.shape, encoding, nbytes, self.origin, MatrixConversion(self, packed))


class MatrixConversion:
    """The function that converts a matrix. While its last result is used somewhere, it is returned again."""

    def __init__(self, matrix: QuantizedMatrix, encoding: PackedBlocks):
        self.matrix, self._encoding = matrix, encoding
        self._last: weakref.ref[np.ndarray] | None = None

    def __call__(self) -> np.ndarray:
        last = None if self._last is None else self._last()
        if last is None:
            last = self.packed_rows()
            self._last = weakref.ref(last)
        return last

    def packed_rows(self) -> np.ndarray:
        """Return the packed rows.

        Raises:
            Error: A scale or an element is not finite.
        """
        matrix, layout = self.matrix, self._encoding.scheme.layout
        assert layout is not None
        (out, columns), block = matrix.shape, layout.block
        # Programs read parameters at multiples of 64 bytes in place.
        result = empty_aligned(self._encoding.stored_shape(matrix.shape), np.dtype(np.uint8))
        group_of_block = np.arange(0, columns, block) // matrix.group
        step = max(_AT_ONCE // columns // _ROWS, 1) * _ROWS

        def convert(start: int) -> None:
            part = slice(start, min(start + step, out))
            rows = matrix.rows(part)
            for numbers in (rows.scales, rows.seconds):
                if numbers is not None and not np.isfinite(numbers.astype(np.float32)).all():
                    raise Error("has scales or zero-points that are not finite")
            if isinstance(layout, FloatLayout):
                _check_codes(layout, rows.steps)
            result[part] = _packed(layout, rows, columns, group_of_block)
            if _may_overflow(rows):
                with np.errstate(over="ignore", invalid="ignore"):
                    values = self._encoding.scheme.decode(result[part])
                if not np.isfinite(values).all():
                    raise Error("has elements whose product with their scale is too large for f32")

        starts = range(0, out, step)
        if len(starts) > 1:
            with ThreadPoolExecutor(min(usable_cpus(), len(starts))) as executor:
                for _ in executor.map(convert, starts):
                    pass
        elif out:
            convert(0)
        for source in matrix.sources:
            release_pages(source.numpy())
        return ReadOnlyArray.of(result.reshape(-1))


def _check_codes(layout: FloatLayout, codes: np.ndarray) -> None:
    """Check that 8-bit floats are finite. Codes of infinities and NaN are those above the largest number."""
    largest = np.array(layout.largest, layout.dtype).view(np.uint8)
    if (codes & np.uint8(127)).max() > largest:
        raise Error(f"has elements of {layout.numpy_name} that are not finite")


def _may_overflow(rows: MatrixRows) -> bool:
    """Return whether an element could be too large for f32. No integer, difference to a zero-point or 8-bit float is 2¹⁶."""
    scales, seconds = (0 if x is None else np.abs(x.astype(np.float64)).max() for x in (rows.scales, rows.seconds))
    return bool(scales * 65536 + seconds > np.finfo(np.float32).max)


def _packed(layout: BlockLayout, rows: MatrixRows, columns: int, group_of_block: np.ndarray) -> np.ndarray:
    """Return rows of blocks, u8 `[n, bytes]`."""
    steps, count = rows.steps, len(rows.steps)
    blocks, scales = steps.reshape(count, columns // layout.block, -1), rows.scales[:, group_of_block]
    seconds = None if rows.seconds is None else rows.seconds[:, group_of_block]
    if isinstance(layout, FloatLayout):
        packed = layout.pack(blocks, scales)
    elif steps.shape[1] == columns:
        packed = layout.pack(blocks, scales, seconds)
    else:
        packed = layout.pack_planes([plane_of_nibbles(blocks)], scales, seconds)
    return packed.reshape(count, -1)


def integer_scheme(kind: str, bits: int, scale: Weight) -> Callable[[int], str]:
    """Return the name of a packed format of integers by the size of blocks.

    Args:
        kind: The formula: see `rlx.schemes.layouts.IntegerLayout`.
        bits: The bits of an integer.
        scale: The tensor of scales, whose dtype the format has.
    """
    return lambda block: integer_name(kind, bits, block, dtype(scale.dtype).name)


def part_of(
    tensors: Mapping[str, Weight],
    name: str,
    dtypes: Sequence[str],
    shape: Sequence[int | None],
) -> Weight:
    """Return a part of a quantised matrix. A size of None may be any.

    Raises:
        Error: It is missing, or has another dtype or shape.
    """
    weight = tensors.get(name)
    if weight is None:
        origin = next((w.origin for w in tensors.values()), "the folder")
        raise Error(f"{origin} has no tensor '{name}', which belongs to a quantised matrix")
    fits = len(weight.shape) == len(shape) and all(b in (None, a) for a, b in zip(weight.shape, shape, strict=True))
    if not fits or weight.dtype.name not in dtypes:
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        described = f"tensor '{name}' of {weight.origin} is {weight.dtype}{list(weight.shape)}"
        raise Error(f"{described}, expected {' or '.join(dtypes)} [{sizes}]")
    return weight


def one_of(tensors: Mapping[str, Weight], *names: str) -> None:
    """Check that a folder has at most one of several tensors that would be the same part of a matrix.

    Raises:
        Error: It has two, so that one would be ignored.
    """
    found = [tensors[name] for name in names if name in tensors]
    if len(found) > 1:
        raise Error(
            f"tensor '{found[0].name}' of {found[0].origin} and '{found[1].name}' of {found[1].origin} are for the same part "
            "of a matrix, and only one of them can be used",
            hint="remove one of them from the folder",
        )


def joined_words(
    tensors: Mapping[str, Weight], suffixes: Sequence[str], matrix: Callable[[str], QuantizedMatrix]
) -> dict[str, Weight]:
    """Return the tensors of GPTQ or AWQ with the parts of each matrix joined: `qweight` and others.

    Args:
        tensors: The tensors.
        suffixes: The ends of the names of parts, that of `qweight` among them.
        matrix: Returns the matrix of a name without such an end.

    Raises:
        Error: A matrix is there twice, or as `matrix`.
        UnsupportedError: As `QuantizedMatrix.weight`.
    """
    result: dict[str, Weight] = {}
    for name, weight in tensors.items():
        stem = next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), None)
        if stem is None or f"{stem}.qweight" not in tensors:
            result[name] = weight
        elif name.endswith(".qweight"):
            one_of(tensors, f"{stem}.weight", name)
            result[f"{stem}.weight"] = matrix(stem).weight()
    return result


def columns_of_group(fields: Fields) -> int:
    """Return the field `group_size`, the number of columns of a group; 0 for all columns."""
    return 0 if fields.data.get("group_size") in (-1, None) else fields.size("group_size")


def order_of_groups(tensors: Mapping[str, Weight], name: str, columns: int, group: int) -> np.ndarray | None:
    """Return the columns in the order of their groups, or None if they are in this order already.

    Args:
        tensors: The tensors.
        name: The name of the tensor with the group of each column. Without it, groups are consecutive columns.
        columns: The number of columns.
        group: The number of columns of a group.

    Raises:
        Error: The tensor has another dtype or shape.
        UnsupportedError: Groups have different sizes.
    """
    if name not in tensors:
        return None
    indices = part_of(tensors, name, WORDS, (columns,))
    group_of = indices.numpy().astype(np.int64)
    expected = np.arange(columns) // group
    if (group_of == expected).all():
        return None
    order = np.argsort(group_of, kind="stable")
    if (group_of[order] != expected).any():
        raise UnsupportedError(f"tensor '{name}' of {indices.origin} must have {group} columns for each group")
    return order


SCALE_DTYPES = ("float16", "bfloat16", "float32")
WORDS = ("int32", "uint32")


def bytes_of_words(words: np.ndarray) -> np.ndarray:
    """Return rows of words of 32 bits as bytes, the lowest first, u8 `[n, 4·words]`."""
    return np.ascontiguousarray(words, words.dtype.newbyteorder("<")).view(np.uint8)


def unpacked_words(words: np.ndarray, bits: int) -> np.ndarray:
    """Return the integers in rows of words of 32 bits, u8 `[n, words·32/bits]`: a stream of bits, the lowest first."""
    stored = bytes_of_words(words)
    if bits == 8:
        return stored
    if bits in (2, 4):
        count = 8 // bits
        result = np.empty((*stored.shape, count), np.uint8)
        for i in range(count):
            result[..., i] = stored >> np.uint8(bits * i) & np.uint8((1 << bits) - 1)
        return result.reshape(len(words), -1)
    nbytes = bits if bits % 2 else bits // 2  # of a whole number of integers
    count = nbytes * 8 // bits
    units = stored.reshape(len(words), -1, nbytes)
    total = np.zeros(units.shape[:2], np.uint64)
    for i in range(nbytes):
        total |= units[..., i].astype(np.uint64) << np.uint64(8 * i)
    result = np.empty((*total.shape, count), np.uint8)
    for i in range(count):
        result[..., i] = total >> np.uint64(bits * i) & np.uint64((1 << bits) - 1)
    return result.reshape(len(words), -1)


def integers_of_rows(words: np.ndarray, part: slice, bits: int) -> np.ndarray:
    """Return integers of some rows of a matrix, u8 `[n, groups]`, from words that have those of consecutive rows.

    Args:
        words: `[groups, words]`.
        part: The rows. The integer of the first one is the first of a word.
        bits: The bits of an integer.
    """
    own = slice(part.start * bits // 32, -(-part.stop * bits // 32))
    return unpacked_words(words[:, own], bits)[:, : part.stop - part.start].T


def stored_steps(steps: np.ndarray, bits: int, kind: str) -> np.ndarray:
    """Return integers from 0 as a packed format stores them: those of 8 bits minus 128, except affine ones."""
    if bits == 8 and kind != "affine":
        return (steps ^ np.uint8(128)).view(np.int8)
    return steps
