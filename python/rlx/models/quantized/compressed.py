"""Matrices of compressed-tensors, and FP8 folders as DeepSeek, Qwen and fbgemm have them.

A matrix `[out, in]` has `weight`, 8-bit floats or i8 `[out, in]`, or `weight_packed` i32 `[out, in·bits/32]` with
`weight_shape`: integers from 0, the first in the lowest bits of a word. Its `weight_scale` is one number, `[out, 1]`,
`[out, groups]`, or a number for each rectangle, whose size is in the configuration. Matrices of DeepSeek and Qwen call it
`weight_scale_inv`; it is a factor all the same. `weight_zero_point` has the shape of the scale; for packed matrices it is
packed along the first axis. `weight_g_idx` i32 `[in]` is the group of each column, if groups are not consecutive columns.
Scales for activations are not used: products are computed with unrounded activations, or with those that `activations` asks
for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlx.models.fields import Fields
from rlx.models.quantized.matrix import (
    SCALE_DTYPES,
    WORDS,
    MatrixRows,
    QuantizedMatrix,
    bytes_of_words,
    integer_scheme,
    integers_of_rows,
    one_of,
    order_of_groups,
    part_of,
    stored_steps,
    unpacked_words,
)
from rlx.support.errors import Error, UnsupportedError
from rlx.weights import Weight

_FORMATS = ("pack-quantized", "float-quantized", "int-quantized", "naive-quantized", "mixed-precision", "dense")
_FLOATS = {"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}
_SCALES = ("weight_scale_inv", "weight_scale")
_PARTS = (*_SCALES, "weight_zero_point", "weight_shape", "weight_g_idx")
# Scales of activations and of keys and values.
_UNUSED = ("input_scale", "output_scale", "input_zero_point", "activation_scale", "k_scale", "v_scale", "q_scale")
_BITS = (4, 8)
# The fields of a configuration, and those of a group of matrices. Others may describe further steps of the computation.
_FIELDS = frozenset(
    (
        *("quant_method", "format", "config_groups", "ignore", "kv_cache_scheme", "quantization_status"),
        *("global_compression_ratio", "sparsity_config", "transform_config", "version", "run_compressed"),
    )
)
_GROUP_FIELDS = frozenset(("targets", "weights", "input_activations", "output_activations", "format"))


def compressed_tensors(fields: Fields, tensors: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return the tensors of a folder of compressed-tensors with the parts of each matrix joined.

    Raises:
        Error: A part is missing, or does not fit the others.
        UnsupportedError: The configuration has another format, transforms or unknown fields, or groups that cannot be packed.
    """
    groups = _groups(fields)
    _check_fields(fields, _FIELDS)
    for own in groups:
        _check_fields(own, _GROUP_FIELDS)
    for own in (fields, *groups):
        form = own.data.get("format") or "dense"
        if form not in _FORMATS:
            known = ", ".join(_FORMATS)
            raise UnsupportedError(
                f"{own.file}: the format {form!r:.60} of compressed-tensors is not supported; supported are {known}"
            )
    sparsity = fields.within("sparsity_config")
    if sparsity is not None and sparsity.data.get("format", "dense") != "dense":
        raise UnsupportedError(f"{fields.file}: sparse weights of compressed-tensors are not supported")
    transforms = fields.within("transform_config")
    if transforms is not None and any(transforms.data.values()):
        # Those of QuIP and SpinQuant rotate activations while the model runs. The weights alone give other results.
        raise UnsupportedError(
            f"{fields.file}: transforms of activations ('{fields.shown('transform_config')}') are not supported"
        )
    return _joined(tensors, _Rectangles(fields.file, [_MatrixGroup.of(own) for own in groups]).of)


def _check_fields(fields: Fields, known: frozenset[str]) -> None:
    """Refuse fields with a meaning that is not known. Fields that are null, false or empty have none."""
    for name, value in fields.data.items():
        if value and name not in known:
            raise UnsupportedError(
                f"{fields.file}: the field '{fields.shown(name):.80}' of compressed-tensors is not supported"
            )


def _groups(fields: Fields) -> list[Fields]:
    """Return the options of the groups of matrices."""
    groups = fields.within("config_groups")
    if groups is None:
        return []
    return [own for name in groups.data if (own := groups.within(name)) is not None]


def fp8_tensors(fields: Fields, tensors: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return the tensors of an FP8 folder with the parts of each matrix joined.

    Raises:
        Error: A part is missing, or does not fit the others.
        UnsupportedError: Groups cannot be packed.
    """
    rectangle = _rectangle(fields, "weight_block_size")
    return _joined(tensors, lambda stem: rectangle)


def _rectangle(fields: Fields, name: str) -> tuple[int, int]:
    """Return the rows and columns with one scale; zeros if the field is absent."""
    value = fields.data.get(name)
    if value is None:
        return 0, 0
    if isinstance(value, str):  # "128x128"
        value = [int(part) if part.isdecimal() and len(part) < 9 else part for part in value.split("x")]
    rows, columns = Fields({name: value}, fields.file, fields.place).numbers(name, 2, least=1)
    if not (rows.is_integer() and columns.is_integer()):
        raise fields.refusal(name, "a list of 2 integers of at least 1")
    return int(rows), int(columns)


@dataclass(frozen=True)
class _MatrixGroup:
    """The options of a group of matrices: its place in the file, its targets, and the size of its rectangles."""

    place: str
    targets: Sequence[str]
    rectangle: tuple[int, int]

    @staticmethod
    def of(fields: Fields) -> _MatrixGroup:
        targets = fields.data.get("targets") or ["Linear"]
        if not isinstance(targets, list) or any(not isinstance(target, str) for target in targets):
            raise fields.refusal("targets", "a list of strings")
        weights = fields.within("weights")
        rectangle = (0, 0) if weights is None else _rectangle(weights, "block_structure")
        return _MatrixGroup(fields.place.rstrip("."), targets, rectangle)


class _Rectangles:
    """The rows and columns with one scale of each matrix. They are options of the group of matrices that it belongs to."""

    def __init__(self, file: str, groups: Sequence[_MatrixGroup]):
        self._file, self._groups = file, groups

    def of(self, stem: str) -> tuple[int, int]:
        """Return the rows and columns with one scale, or zeros, of a matrix.

        As in the library, the name of a matrix counts before a regular expression, and that before a class of modules.

        Raises:
            Error: Several groups have the matrix as a target and differ, or a regular expression is not valid.
        """
        if len({own.rectangle for own in self._groups}) <= 1:
            return self._groups[0].rectangle if self._groups else (0, 0)
        matches = self._with(lambda target: target == stem)
        matches = matches or self._with(lambda target: target.startswith("re:") and self._fits(target[3:], stem))
        matches = matches or self._with(lambda target: not target.startswith("re:") and "linear" in target.lower())
        if len({own.rectangle for own in matches}) > 1:
            places = " and ".join(f"'{own.place}'" for own in matches)
            raise Error(f"{self._file}: '{stem}' is a target of {places}, whose block structures differ")
        return matches[0].rectangle if matches else (0, 0)

    def _with(self, is_target: Callable[[str], bool]) -> list[_MatrixGroup]:
        return [own for own in self._groups if any(map(is_target, own.targets))]

    def _fits(self, pattern: str, stem: str) -> bool:
        try:
            return re.match(pattern, stem) is not None
        except (re.error, RecursionError, OverflowError) as problem:
            raise Error(f"{self._file}: the target 're:{pattern:.80}' is not a regular expression: {problem}") from None


def _joined(tensors: Mapping[str, Weight], rectangle_of: Callable[[str], tuple[int, int]]) -> dict[str, Weight]:
    result: dict[str, Weight] = {}
    for name, weight in tensors.items():
        stem, _, suffix = name.rpartition(".")
        is_scaled = any(f"{stem}.{scale}" in tensors for scale in _SCALES)
        if suffix in ("weight", "weight_packed"):
            one_of(tensors, f"{stem}.weight", f"{stem}.weight_packed")
        if suffix == "weight_packed":
            result[f"{stem}.weight"] = _packed(stem, tensors).weight()
        elif suffix == "weight" and is_scaled:
            result[name] = _unpacked(stem, tensors, rectangle_of(stem)).weight()
        elif suffix == "weight" and weight.dtype.name in _FLOATS:
            raise Error(
                f"tensor '{name}' of {weight.origin} is {weight.dtype.name}, and '{stem}.weight_scale' is missing"
            )
        elif suffix not in _UNUSED and not (suffix in _PARTS and is_scaled):
            result[name] = weight
    return result


def _scale_of(stem: str, tensors: Mapping[str, Weight]) -> Weight:
    one_of(tensors, *(f"{stem}.{scale}" for scale in _SCALES))
    name = next((f"{stem}.{scale}" for scale in _SCALES if f"{stem}.{scale}" in tensors), f"{stem}.{_SCALES[-1]}")
    weight = tensors.get(name)
    return part_of(tensors, name, SCALE_DTYPES, () if weight is None else (None,) * len(weight.shape))


def _unpacked(stem: str, tensors: Mapping[str, Weight], rectangle: tuple[int, int]) -> QuantizedMatrix:
    """Return a matrix whose elements have a byte each."""
    codes = part_of(tensors, f"{stem}.weight", (*_FLOATS, "int8"), (None, None))
    scale, shape = _scale_of(stem, tensors), (codes.shape[0], codes.shape[1])
    group, numbers_of = _grouped(scale, shape, rectangle)
    ordered = _order(stem, tensors, shape, group, scale)
    columns = slice(None) if ordered is None else list(ordered)
    zero_name = f"{stem}.weight_zero_point"
    if codes.dtype.name in _FLOATS:
        if zero_name in tensors:
            raise UnsupportedError(f"tensor '{zero_name}' of {codes.origin}: 8-bit floats have no zero-points")

        def floats(part: slice) -> MatrixRows:
            return MatrixRows(codes.numpy()[part].view(np.uint8)[:, columns], numbers_of(scale, part))

        name = _FLOATS[codes.dtype.name]
        return QuantizedMatrix(
            stem, codes.origin, shape, group, lambda block: f"{name}_block{block}", floats, (codes, scale), ordered
        )
    zero = part_of(tensors, zero_name, ("int8",), scale.shape) if zero_name in tensors else None

    def integers(part: slice) -> MatrixRows:
        zeros = None if zero is None else numbers_of(zero, part).astype(np.int32)
        return MatrixRows(codes.numpy()[part][:, columns], numbers_of(scale, part), zeros)

    kind = "symmetric" if zero is None else "asymmetric"
    scheme = integer_scheme(kind, 8, scale)
    return QuantizedMatrix(stem, codes.origin, shape, group, scheme, integers, (codes, scale), ordered)


def _order(
    stem: str, tensors: Mapping[str, Weight], shape: tuple[int, int], group: int, scale: Weight
) -> tuple[int, ...] | None:
    """Return the columns in the order of groups, if groups are not consecutive columns."""
    name = f"{stem}.weight_g_idx"
    # Files without an order may have -1 in all columns.
    if name in tensors and (part_of(tensors, name, WORDS, (shape[1],)).numpy() == -1).all():
        return None
    order = order_of_groups(tensors, name, shape[1], group)
    if order is None:
        return None
    if scale.shape[0] != shape[0]:
        raise UnsupportedError(f"tensor '{name}' of {scale.origin}: matrices with scales for rectangles have no order")
    return tuple(order.tolist())


def _grouped(
    scale: Weight, shape: tuple[int, int], rectangle: tuple[int, int]
) -> tuple[int, Callable[[Weight, slice], np.ndarray]]:
    """Return the number of columns with one scale, and the function that returns those of some rows, `[n, groups]`.

    Raises:
        Error: The scales do not have the shape of the matrix, of its rows, or of its rectangles.
    """
    (out, columns), sizes = shape, scale.shape
    if sizes in ((), (1,), (1, 1)):
        return max(columns, 1), lambda numbers, part: np.broadcast_to(
            numbers.numpy().reshape(1, 1), (part.stop - part.start, 1)
        )
    if sizes in ((out,), (out, 1)):
        return max(columns, 1), lambda numbers, part: numbers.numpy().reshape(out, 1)[part]
    height, width = rectangle
    if height and sizes == (-(-out // height), -(-columns // width)):
        return width, lambda numbers, part: numbers.numpy()[np.arange(part.start, part.stop) // height]
    if len(sizes) == 2 and sizes[0] == out and sizes[1] and columns % sizes[1] == 0:
        return columns // sizes[1], lambda numbers, part: numbers.numpy()[part]
    expected = f"[{out}, 1] or [1]" + (f", or a number for each {height}×{width}" if height else "")
    raise Error(
        f"tensor '{scale.name}' of {scale.origin} is {scale.dtype}{list(sizes)}, and the matrix [{out}, {columns}] needs "
        f"{expected}"
    )


def _packed(stem: str, tensors: Mapping[str, Weight]) -> QuantizedMatrix:
    """Return a matrix whose elements are packed in words."""
    words = part_of(tensors, f"{stem}.weight_packed", WORDS, (None, None))
    sizes = part_of(tensors, f"{stem}.weight_shape", ("int64", "int32"), (2,)).numpy()
    out, columns = int(sizes[0]), int(sizes[1])
    bits = next((bits for bits in _BITS if words.shape == (out, -(-columns * bits // 32))), 0)
    if not bits or out < 1 or columns < 1:
        raise Error(
            f"tensor '{words.name}' of {words.origin} is {words.dtype}{list(words.shape)}, which is not a matrix "
            f"{[out, columns]} of 4 or 8 bits"
        )
    zero_name = f"{stem}.weight_zero_point"
    scale = _scale_of(stem, tensors)
    group, numbers_of = _grouped(scale, (out, columns), (0, 0))
    ordered = _order(stem, tensors, (out, columns), group, scale)
    stored_columns = slice(columns) if ordered is None else list(ordered)
    zero = tensors.get(zero_name)
    groups = -(-columns // group)
    if zero is not None and len(scale.shape) != 2:
        raise Error(f"tensor '{scale.name}' of {scale.origin} must have two axes, as it has zero-points")
    is_plain = zero is not None and zero.dtype.name == "int8"
    if zero is not None:
        rows_of_words = out if is_plain else -(-out * bits // 32)
        zero = part_of(tensors, zero_name, ("int8",) if is_plain else WORDS, (rows_of_words, groups))
    kind = "symmetric" if zero is None else "asymmetric"
    start = 128 if bits == 8 else 0

    def rows(part: slice) -> MatrixRows:
        stream, zeros = words.numpy()[part], None
        if bits == 4 and ordered is None and columns == 8 * words.shape[1]:
            steps = bytes_of_words(stream)
        else:
            steps = stored_steps(unpacked_words(stream, bits)[:, stored_columns], bits, kind)
        if zero is not None:
            # Zero-points that are not packed are counted from the middle.
            if is_plain:
                zeros = zero.numpy()[part] + np.int32((1 << bits - 1) - start)
            else:
                zeros = integers_of_rows(zero.numpy().T, part, bits).astype(np.int32) - start
        return MatrixRows(steps, numbers_of(scale, part), zeros)

    scheme = integer_scheme(kind, bits, scale)
    return QuantizedMatrix(stem, words.origin, (out, columns), group, scheme, rows, (words, scale), ordered)
