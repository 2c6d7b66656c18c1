"""Invariant values worth computing before a block: once when a program is loaded, or once for all steps of a loop."""

from __future__ import annotations

from collections.abc import Callable

from rlx import mlir
from rlx.ir.dims.dim import DimExpr, estimate
from rlx.ir.op import opview, registry
from rlx.ir.op.signature import read_arguments
from rlx.ir.shape import shape_of


def bytes_of(value: mlir.Value) -> int:
    """Return the bytes of a value, with a typical size for each symbol."""
    return estimate(shape_of(value).size_bytes)


class WeightValues:
    """The values of a function that depend only on parameters and constants, and are the same in every run."""

    def __init__(self, function: mlir.FuncOp):
        arguments = function.entry_block.arguments
        kinds = [a.kind for a in read_arguments(function)]
        self._roots: dict[mlir.Value, frozenset[int]] = {
            value: frozenset({i})
            for i, (value, kind) in enumerate(zip(arguments, kinds, strict=True))
            if kind == "param"
        }
        for op in opview.operations(function.entry_block):
            if _is_plain(op) and all(v in self._roots for v in op.operands):
                roots = frozenset[int]().union(*(self._roots[v] for v in op.operands))
                self._roots |= dict.fromkeys(op.results, roots)

    def __contains__(self, value: mlir.Value) -> bool:
        return value in self._roots

    def roots(self, value: mlir.Value) -> frozenset[int]:
        """Return the positions of the parameters that a value depends on."""
        return self._roots[value]


def _is_plain(op: mlir.Operation) -> bool:
    """Whether the results of an op depend only on its operands."""
    return registry.is_ours(op) and not len(op.regions) and not has_open_sizes(op)


def has_open_sizes(op: mlir.Operation) -> bool:
    """Whether an attribute of an op has sizes with symbols, such as that of `dim_size` or the start of `narrow`."""
    waiting: list[object] = list(opview.attributes_of(op).values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, DimExpr):
            return True
        if isinstance(value, (tuple, list)):
            waiting += value
    return False


def is_parameter(value: mlir.Value) -> bool:
    """Whether a value is a parameter of the function. Back ends compute functions of parameters once, at load time."""
    if not isinstance(value, mlir.ir.BlockArgument):
        return False
    owner = value.owner.owner
    attributes = owner.operation.attributes
    if "arg_attrs" not in attributes:
        return False
    kind = attributes["arg_attrs"][value.arg_number]
    return "rlx.kind" in kind and kind["rlx.kind"].value == "param"


def depends_on_weights(value: mlir.Value) -> bool:
    """Whether a value depends only on parameters and constants, computed for the current graph: see `WeightValues`."""
    waiting, seen = [value], set[mlir.Value]()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        op = value.owner.operation if isinstance(value, mlir.ir.OpResult) else None
        if op is not None and _is_plain(op):
            waiting += list(op.operands)
        elif not is_parameter(value):
            return False
    return True


def undoes_transpose(op: mlir.Operation) -> bool:
    """Whether an op undoes the transpose that produced its operand."""
    if opview.name_of(op) != "transpose" or not isinstance(op.operands[0], mlir.ir.OpResult):
        return False
    source = op.operands[0].owner.operation
    if opview.name_of(source) != "transpose":
        return False
    perms = [opview.attributes_of(o)["perm"] for o in (source, op)]
    return all(perms[0][axis] == i for i, axis in enumerate(perms[1]))


def worth_keeping(
    block: mlir.Block,
    source: Callable[[mlir.Value], int | None],
    is_movable: Callable[[mlir.Operation], bool],
    growth: float,
) -> tuple[list[mlir.Value], list[mlir.Operation]]:
    """Return the invariant ops of a block that are worth computing before it.

    Views and broadcasts are excluded, since they are free where they are used, and so are values that take much more
    memory than their sources, except products. They are moved along if a moved op reads them.

    Args:
        block: The block.
        source: Returns the bytes of a value that is available before the block; None for all other values.
        is_movable: Whether an op may be computed before the block, if its operands are available.
        growth: The maximum size of a value, as a multiple of its sources.

    Returns:
        The values that other ops read, and all ops that compute them, both in order.
    """
    sources: dict[mlir.Value, int] = {}
    candidates: list[mlir.Operation] = []
    for view in block.operations:
        op = view.operation
        sizes = [sources.get(v, source(v)) for v in op.operands]
        if op.name not in opview.TERMINATORS and is_movable(op) and None not in sizes:
            total = sum(size or 0 for size in sizes)
            sources |= dict.fromkeys(op.results, total)
            candidates.append(op)
    moved = {opview.key(op) for op in candidates}
    crossing: list[mlir.Value] = []
    for op in reversed(candidates):
        read = [r for r in op.results if any(opview.key(use.owner.operation) not in moved for use in r.uses)]
        if not read:
            continue
        if _pays(op, sources[read[0]], growth):
            crossing += reversed(read)
        else:
            moved.discard(opview.key(op))
    needed = {v.owner.operation.results[0] for v in crossing}
    inside: list[mlir.Operation] = []
    for op in reversed(candidates):
        if opview.key(op) in needed:
            needed |= {v.owner.operation.results[0] for v in op.operands if isinstance(v, mlir.ir.OpResult)}
            inside.append(op)
    return crossing[::-1], inside[::-1]


def _pays(op: mlir.Operation, source: int, growth: float) -> bool:
    """Whether to store the results of an op, instead of computing them where they are used."""
    if not source or opview.has_trait(op, "view") or opview.name_of(op) == "expand":
        return False
    return sum(map(bytes_of, op.results)) <= growth * source or opview.has_trait(op, "product")
