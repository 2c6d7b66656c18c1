"""Verification of ops: the constraints of the record, then the inference of the card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlx import mlir
from rlx.dialect.dtypes import dtype_families
from rlx.dialect.spec import OpSpec
from rlx.ir.op import attributes as attributes_module
from rlx.ir.op import opview, registry
from rlx.ir.op.card import Card, as_results
from rlx.ir.op.signature import stage_of
from rlx.ir.shape import Shape, shape_of, shape_of_type
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_list


def check_dtypes(spec: OpSpec, operands: Sequence[Any]) -> None:
    """Check that every operand has a dtype that the record allows.

    Raises:
        ShapeError: An operand has a dtype that is not allowed.
    """
    for value, operand in zip(spec.operands, operands, strict=True):
        for shape in operand if is_list(operand) else [operand]:
            if shape is not None and shape.dtype.name not in value.dtypes:
                raise ShapeError(
                    f"operand '{value.name}' is {shape.dtype.name}; expected one of {dtype_families(value.dtypes)}"
                )


def check_sizes(card: Card, attributes: Mapping[str, Any]) -> None:
    """Check that no size among the attributes is negative, unless the op accepts negative numbers there.

    Raises:
        ShapeError: A size is negative.
    """
    if card.signed_sizes:
        return
    for entry in card.spec.attributes:
        for d in (attributes[entry.name] or ()) if entry.kind == "dims" else ():
            if type(d) is int and d < 0:
                raise ShapeError(
                    f"attribute '{entry.name}': a dimension cannot be negative, but this one is {d}",
                    hint="sizes are integers >= 0",
                )


# Cache of ops that were valid. The key has everything that their validity depends on: name, types and attributes. MLIR
# makes types and attributes unique. The card is stored as the value, because a user's op may be registered again. Ops
# with regions are not stored, because the key does not cover their content. The cache keeps types and attributes alive,
# but so does the context.
_valid: dict[tuple[Any, ...], Card] = {}


def infer(
    name: str, operands: Sequence[Any], attributes: dict[str, Any], regions: Sequence[Any] = ()
) -> tuple[Shape, ...]:
    """Return result shapes of an op from grouped operand shapes, complete attributes, and `RegionShapes` of its regions.

    Raises:
        ShapeError: Operands or attributes do not fit.
    """
    card = registry.card(name)
    check_dtypes(card.spec, operands)
    check_sizes(card, attributes)
    if card.spec.regions:
        attributes = attributes | {"regions": tuple(regions)}
    return as_results(card.infer(*operands, **attributes))


def infer_op(op: mlir.Operation) -> tuple[Shape, ...]:
    """Return result shapes of an MLIR op.

    Raises:
        ShapeError: Operands or attributes do not fit.
    """
    card = opview.card_of(op)
    if not card.spec.custom:
        attributes_module.check_names(card.spec, op)
    operands = opview.operands_of(op, [shape_of(operand) for operand in op.operands])
    regions = opview.region_shapes(op) if card.spec.regions else ()
    return infer(card.name, operands, opview.attributes_of(op), regions)


def check_results(op: mlir.Operation) -> None:
    """Check that the results of an op have the types that its card infers.

    Raises:
        ShapeError: The types differ, or operands or attributes do not fit.
    """
    expected, results = infer_op(op), op.results
    if len(results) != len(expected):
        raise ShapeError(f"expected {len(expected)} results, got {len(results)}")
    for i, (result, shape) in enumerate(zip(results, expected, strict=True)):
        if result.type != shape.type:
            declared = shape_of_type(result.type)
            raise ShapeError(f"result {i} is declared {declared}, but inference gives {shape}")


def check_stage(op: mlir.Operation) -> None:
    """Check the position of an op: no blocks after HIR, and no region terminators outside regions.

    Raises:
        ShapeError: The position is not allowed.
    """
    spec, parent = opview.card_of(op).spec, op.parent
    if spec.terminator and parent is not None and not registry.is_ours(parent.operation):
        raise ShapeError(f"ends regions of rlx ops, but is in '{parent.operation.name}'")
    if spec.stage != "hir":
        return
    while op.parent is not None:
        op = op.parent.operation
        stage = stage_of(op)
        if stage not in (None, "hir"):
            raise ShapeError(
                f"is a block, which is allowed at stage hir only, but its module is at stage {stage}",
                hint='declare rlx.stage = "hir", build with stage="hir", or run rlx-lower-blocks',
            )


def check_nesting(op: mlir.Operation) -> None:
    """Check that regions are not nested so deeply that a recursive walk would overflow the stack.

    Raises:
        ShapeError: They are nested too deeply.
    """
    depth, enclosing = 0, op
    while enclosing is not None and registry.is_ours(enclosing):
        depth += 1
        enclosing = enclosing.parent.operation if enclosing.parent is not None else None
    if depth > opview.DEEPEST:
        raise ShapeError(f"is nested in {depth - 1} regions; at most {opview.DEEPEST - 1} are allowed")


def verify_op(op: mlir.Operation) -> bool:
    """Check one op. On failure, emit an error at its location and return False."""
    op = op.operation
    try:
        types = [operand.type for operand in op.operands]
        key = (op.name, *types, None, *op.attributes.items(), *op.results.types)
        card = _valid.get(key)
        if card is not None and card.spec.valid_anywhere:
            return True
        check_stage(op)
        card = opview.card_of(op)
        if _valid.get(key) is card:
            return True
        check_results(op)
        if card.spec.regions:
            check_nesting(op)
            card.check_regions(op)
        else:
            _valid[key] = card
    except Error as problem:
        hint = f" ({problem.hint})" if problem.hint else ""
        op.location.emit_error(f"'{op.name}' op {problem.message}{hint}")
        return False
    except Exception as problem:  # MLIR's parser, which calls this function, cannot handle Python exceptions
        lines = str(problem).splitlines() or [""]
        op.location.emit_error(f"'{op.name}' op cannot be checked: {type(problem).__name__}: {lines[0]}")
        return False
    return True
