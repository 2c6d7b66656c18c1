"""Matrices of GPTQ, as AutoGPTQ and GPTQModel write them.

A matrix `[out, in]` has four tensors: `qweight` i32 `[in·bits/32, out]`, whose words have consecutive columns, the first in
the lowest bits; `scales` `[groups, out]`; `qzeros` i32 `[groups, ⌈out·bits/32⌉]`; `g_idx` i32 `[in]`, the group of each column.
An element is `scale · (q - zero)`. Files of the format `gptq` store `zero - 1`, those of `gptq_v2` store `zero`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlx.models.fields import Fields
from rlx.models.quantized.matrix import (
    SCALE_DTYPES,
    WORDS,
    MatrixRows,
    QuantizedMatrix,
    bytes_of_words,
    columns_of_group,
    integer_scheme,
    integers_of_rows,
    joined_words,
    order_of_groups,
    part_of,
    stored_steps,
    unpacked_words,
)
from rlx.support.errors import Error, UnsupportedError
from rlx.weights import Weight

_SUFFIXES = (".qweight", ".scales", ".qzeros", ".g_idx")
_FORMATS = ("gptq", "gptq_v2")
_BITS = (4, 8)


@dataclass(frozen=True)
class _Options:
    """The fields of the configuration.

    Attributes:
        bits: The bits of an integer.
        group: The number of columns of a group; 0 for all.
        is_symmetric: Whether all zero-points are the middle of the integers.
        stores_zeros: Whether files store zero-points, and not the number below.
    """

    bits: int
    group: int
    is_symmetric: bool
    stores_zeros: bool

    @staticmethod
    def of(fields: Fields) -> _Options:
        bits = fields.size("bits")
        if bits not in _BITS:
            raise UnsupportedError(f"{fields.file}: weights of GPTQ with {bits} bits are not supported, only 4 and 8")
        fields.only(is_marlin_format=False)
        form = next((fields.data[name] for name in ("checkpoint_format", "format") if fields.has(name)), "gptq")
        if form not in _FORMATS:
            known = ", ".join(_FORMATS)
            raise UnsupportedError(
                f"{fields.file}: the format {form!r:.60} of GPTQ is not supported; supported are {known}"
            )
        return _Options(bits, columns_of_group(fields), fields.flag("sym", False), form == "gptq_v2")


def gptq_tensors(fields: Fields, tensors: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return the tensors with the parts of each matrix of GPTQ joined.

    Raises:
        Error: A part is missing, or does not fit the others.
        UnsupportedError: The configuration has another format, or groups that cannot be packed.
    """
    options = _Options.of(fields)
    return joined_words(tensors, _SUFFIXES, lambda stem: _matrix(stem, tensors, options))


def _matrix(stem: str, tensors: Mapping[str, Weight], options: _Options) -> QuantizedMatrix:
    bits = options.bits
    words = part_of(tensors, f"{stem}.qweight", WORDS, (None, None))
    columns, out = words.shape[0] * 32 // bits, words.shape[1]
    group = options.group or max(columns, 1)
    groups = -(-columns // group)
    scales = part_of(tensors, f"{stem}.scales", SCALE_DTYPES, (groups, out))
    zeros = part_of(tensors, f"{stem}.qzeros", WORDS, (groups, -(-out * bits // 32)))
    order = order_of_groups(tensors, f"{stem}.g_idx", columns, group)
    kind = "symmetric" if options.is_symmetric else "asymmetric"

    def rows(part: slice) -> MatrixRows:
        own = words.numpy()[:, part].T
        if bits == 4 and order is None:
            steps = bytes_of_words(own)
        else:
            steps = unpacked_words(own, bits)
            steps = stored_steps(steps if order is None else steps[:, order], bits, kind)
        numbers = integers_of_rows(zeros.numpy(), part, bits)
        seconds = None
        if options.is_symmetric:
            _check_symmetric(numbers, bits)
        else:
            seconds = numbers.astype(np.int32) + (not options.stores_zeros) - (128 if bits == 8 else 0)
        return MatrixRows(steps, scales.numpy()[:, part].T, seconds)

    ordered = None if order is None else tuple(order.tolist())
    scheme = integer_scheme(kind, bits, scales)
    return QuantizedMatrix(stem, words.origin, (out, columns), group, scheme, rows, (words, scales, zeros), ordered)


def _check_symmetric(zeros: np.ndarray, bits: int) -> None:
    """Check that all stored zero-points are the middle or, in the older format, the number below.

    The zero-points of symmetric integers are known. Some files store them as `gptq_v2` does, and have the name `gptq`.
    """
    middle = 1 << bits - 1
    if not ((zeros == middle) | (zeros == middle - 1)).all():
        raise Error(
            f"has zero-points other than {middle}, and 'sym' of its configuration is true",
            hint="set 'sym' to false in config.json if the weights are not symmetric",
        )
