"""Matrices that MLX has quantised.

A matrix `[…, out, in]` has three tensors: `weight` u32 `[…, out, in·bits/32]`, a stream of bits whose first element is in
the lowest ones, `scales` and `biases` `[…, out, groups]`. An element is `scale · q + bias`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.models.fields import Fields
from rlx.models.quantized.matrix import (
    SCALE_DTYPES,
    WORDS,
    MatrixRows,
    QuantizedMatrix,
    bytes_of_words,
    integer_scheme,
    one_of,
    part_of,
    unpacked_words,
)
from rlx.models.weight_views import reshaped
from rlx.support.errors import Error, UnsupportedError
from rlx.weights import Weight

_BITS = (2, 3, 4, 5, 6, 8)
# Stacked experts have another name than in folders of transformers.
_EXPERTS = {".mlp.switch_mlp.": ".mlp.experts.", ".block_sparse_moe.switch_mlp.": ".mlp.experts."}


def mlx_tensors(fields: Fields, tensors: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return the tensors with the parts of each matrix joined.

    Raises:
        Error: A part is missing, or does not fit the others.
        UnsupportedError: The configuration has another format, or groups that cannot be packed.
    """
    result: dict[str, Weight] = {}
    for name, weight in tensors.items():
        stem, _, suffix = name.rpartition(".")
        if f"{stem}.scales" not in tensors or suffix not in ("weight", "scales", "biases"):
            result[name] = weight
        elif suffix == "weight":
            own = _own_name(name)
            if own != name:
                one_of(tensors, name, own)
            result[own] = _matrix(stem, tensors, *_bits_and_group(fields, stem))
    return result


def _own_name(name: str) -> str:
    for theirs, ours in _EXPERTS.items():
        name = name.replace(theirs, ours)
    return name


def _bits_and_group(fields: Fields, stem: str) -> tuple[int, int]:
    """Return the bits and the columns of a group of a matrix, for which the configuration may have its own."""
    own = fields.data.get(stem)
    if isinstance(own, dict):
        own_fields: dict[str, Any] = own
        fields = Fields({**fields.data, **own_fields}, fields.file, fields.place)
    mode = fields.data.get("mode", "affine")
    if mode != "affine":
        raise UnsupportedError(f"{fields.file}: the mode {mode!r:.60} of MLX is not supported, only 'affine'")
    bits = fields.size("bits")
    if bits not in _BITS:
        known = ", ".join(map(str, _BITS))
        raise UnsupportedError(f"{fields.file}: weights of MLX with {bits} bits are not supported, only {known}")
    return bits, fields.size("group_size")


def _matrix(stem: str, tensors: Mapping[str, Weight], bits: int, group: int) -> Weight:
    weight = tensors[f"{stem}.weight"]
    if len(weight.shape) < 2:
        raise Error(f"tensor '{stem}.weight' of {weight.origin} has scales, and is not a matrix: {list(weight.shape)}")
    leading = weight.shape[:-1]
    words = part_of(tensors, f"{stem}.weight", WORDS, (*leading, None))
    columns = words.shape[-1] * 32 // bits
    groups = -(-columns // group)
    scales, biases = (
        part_of(tensors, f"{stem}.{part}", SCALE_DTYPES, (*leading, groups)) for part in ("scales", "biases")
    )
    if scales.dtype != biases.dtype or columns % group:
        raise Error(
            f"tensor '{scales.name}' of {scales.origin} must have the dtype of '{biases.name}', and groups of {group} must "
            f"divide rows of {columns}"
        )
    out = 1
    for size in leading:
        out *= size

    def rows(part: slice) -> MatrixRows:
        stream = words.numpy().reshape(out, -1)[part]
        steps = bytes_of_words(stream) if bits == 4 else unpacked_words(stream, bits)
        own = (tensor.numpy().reshape(out, groups)[part] for tensor in (scales, biases))
        return MatrixRows(steps, *own)

    scheme, sources = integer_scheme("affine", bits, scales), (words, scales, biases)
    matrix = QuantizedMatrix(stem, words.origin, (out, columns), group, scheme, rows, sources)
    return reshaped(matrix.weight(), (*leading, columns))
