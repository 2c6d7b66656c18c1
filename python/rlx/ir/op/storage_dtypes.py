"""Arithmetic on storage dtypes: operands are cast to the compute dtype, results are cast back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rlx.dialect.spec import OpSpec
from rlx.ir.dtype import DType, f32, f64, i8, i16, u8, u16
from rlx.ir.op.verify import infer
from rlx.ir.shape import Shape
from rlx.support.errors import ShapeError
from rlx.support.guards import is_list, is_tuple


class OpEmitter(Protocol):
    """An object that emits ops: a graph builder, or the eager builder."""

    def emit(self, name: str, operands: Sequence[Any], /, **attributes: Any) -> Any:
        """Emit an op."""
        ...

    def cast(self, x: Any, dtype: DType) -> Any:
        """Emit a cast."""
        ...


# A wider dtype of the same kind, used to test whether the dtype of a result follows that of the operands.
_PROBES = {f32: f64, i8: i16, u8: u16}


def unaccepted(spec: OpSpec, operands: Sequence[Any]) -> DType | None:
    """Return the storage dtype of the first operand that an op does not accept; None if it accepts all.

    Args:
        spec: The op.
        operands: Shapes, in the groups of the record.
    """
    for entry, group in zip(spec.operands, operands, strict=True):
        for shape in group if is_list(group) else (group,):
            if shape is not None and shape.dtype.storage and shape.dtype.name not in entry.dtypes:
                return shape.dtype
    return None


def in_compute(spec: OpSpec, operands: Sequence[Any], cast: Callable[[Any, DType], Any]) -> list[Any]:
    """Return operands with unsupported storage dtypes replaced by `cast(operand, compute dtype)`.

    Args:
        spec: The op.
        operands: Objects with a `dtype`, in the groups of the record.
        cast: The function that casts an operand.
    """

    def replaced(accepted: tuple[str, ...], operand: Any) -> Any:
        if is_list(operand):
            return [replaced(accepted, o) for o in operand]
        if operand is None or not operand.dtype.storage or operand.dtype.name in accepted:
            return operand
        return cast(operand, operand.dtype.compute)

    return [replaced(entry.dtypes, operand) for entry, operand in zip(spec.operands, operands, strict=True)]


def following(spec: OpSpec, operands: Sequence[Any], attributes: dict[str, Any]) -> tuple[bool, ...]:
    """Return for each result whether its dtype follows that of the operands, so that it must be cast back.

    Args:
        spec: The op.
        operands: Shapes with the storage dtypes, in the groups of the record.
        attributes: All attributes by name.
    """

    def results(probe: bool) -> tuple[Shape, ...]:
        def shape_in(shape: Shape, kind: DType) -> Shape:
            return shape.with_dtype(_PROBES[kind] if probe else kind)

        return infer(spec.name, in_compute(spec, operands, shape_in), attributes)

    narrow = results(probe=False)
    try:
        wide = results(probe=True)
    except ShapeError:  # the op accepts this one dtype
        return (False,) * len(narrow)
    return tuple(a.dtype is not b.dtype for a, b in zip(narrow, wide, strict=True))


def emitted(
    builder: OpEmitter,
    spec: OpSpec,
    operands: Sequence[Any],
    shapes: Sequence[Any],
    attributes: dict[str, Any],
    kind: DType,
) -> Any:
    """Emit an op that does not accept storage dtype `kind` between casts to and from the compute dtype.

    Args:
        builder: The builder that emits the ops.
        spec: The op.
        operands: Tensors, in the groups of the record.
        shapes: Their shapes.
        attributes: All attributes by name.
        kind: The dtype of results that follow the operands.

    Raises:
        ShapeError: Operands or attributes do not fit.
    """
    follows = following(spec, shapes, attributes)

    def cast(x: Any, to: DType) -> Any:
        return builder.cast(x, to)

    results = builder.emit(spec.name, in_compute(spec, operands, cast), **attributes)
    if not is_tuple(results):
        return cast(results, kind) if follows[0] else results
    return tuple(cast(r, kind) if follow else r for r, follow in zip(results, follows, strict=True))
