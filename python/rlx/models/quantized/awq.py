"""Matrices of AWQ in the layout `gemm` of AutoAWQ, of 4 bits.

A matrix `[out, in]` has three tensors: `qweight` i32 `[in, out/8]`, `scales` `[groups, out]` and `qzeros` i32
`[groups, out/8]`. The 8 integers of a word are those of 8 rows of the matrix, in the order 0, 2, 4, 6, 1, 3, 5, 7 from the
lowest bits. An element is `scale · (q - zero)`.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    joined_words,
    part_of,
)
from rlx.support.errors import UnsupportedError
from rlx.weights import Weight

_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_SUFFIXES = (".qweight", ".scales", ".qzeros")


def awq_tensors(fields: Fields, tensors: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return the tensors with the parts of each matrix of AWQ joined.

    Raises:
        Error: A part is missing, or does not fit the others.
        UnsupportedError: The configuration has another layout, or groups that cannot be packed.
    """
    own = fields.renamed(bits="w_bit", group_size="q_group_size")  # AutoAWQ's own files have other names
    bits, group = own.size("bits"), columns_of_group(own)
    version = fields.data.get("version", "gemm")
    if not isinstance(version, str) or version.lower() != "gemm":
        raise UnsupportedError(f"{fields.file}: the layout {version!r:.60} of AWQ is not supported, only 'gemm'")
    if bits != 4:
        raise UnsupportedError(f"{fields.file}: weights of AWQ with {bits} bits are not supported, only 4")
    fields.only(zero_point=True)
    return joined_words(tensors, _SUFFIXES, lambda stem: _matrix(stem, tensors, group))


def _matrix(stem: str, tensors: Mapping[str, Weight], group: int) -> QuantizedMatrix:
    words = part_of(tensors, f"{stem}.qweight", WORDS, (None, None))
    columns, out = words.shape[0], 8 * words.shape[1]
    group = group or max(columns, 1)
    groups = -(-columns // group)
    scales = part_of(tensors, f"{stem}.scales", SCALE_DTYPES, (groups, out))
    zeros = part_of(tensors, f"{stem}.qzeros", WORDS, (groups, out // 8))

    def rows(part: slice) -> MatrixRows:
        numbers = _rows_of_words(zeros.numpy(), part)
        return MatrixRows(_rows_of_words(words.numpy(), part), scales.numpy()[:, part].T, numbers.astype(np.int32))

    scheme = integer_scheme("asymmetric", 4, scales)
    return QuantizedMatrix(stem, words.origin, (out, columns), group, scheme, rows, (words, scales, zeros))


def _rows_of_words(words: np.ndarray, part: slice) -> np.ndarray:
    """Return some rows of a matrix whose words have 8 rows each, u8 `[n, words]`. The first row is the first of a word."""
    own = bytes_of_words(words[:, part.start // 8 : -(-part.stop // 8)].T).reshape(-1, words.shape[0], 4)
    result = np.empty((own.shape[0], 8, own.shape[1]), np.uint8)
    for i, row in enumerate(_ORDER):
        half = own[..., i // 2]
        result[:, row] = half >> np.uint8(4) if i % 2 else half & np.uint8(15)
    return result.reshape(-1, own.shape[1])[: part.stop - part.start]
