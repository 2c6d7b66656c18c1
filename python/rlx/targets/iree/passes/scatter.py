"""`rlx-iree-scatter`: replaces loops that write rows to a table by one op.

IREE runs a loop outside kernels, with one or two kernel calls in each step. Its own scatter op is one kernel.
Quirks: `tables-of-constants`, `returned-tables`, `scattered-gathers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import IreePass, behind_barrier, create, every, in_memory, maker_of, source_of
from rlx.targets.iree.passes.copies import opaque_copy
from rlx.targets.iree.passes.sizes import size_of

_BODY = [
    "tensor.extract",
    "arith.index_cast",
    "tensor.extract_slice",
    "tensor.extract_slice",
    "tensor.empty",
    "linalg.generic",
    "tensor.insert_slice",
    "scf.yield",
]


@dataclass(frozen=True)
class Scatter(IreePass, name="rlx-iree-scatter"):
    """Replace every loop that combines rows with rows of a table, at positions in a list, by one op, for IREE."""

    def run(self, module: mlir.Module) -> None:
        for op in every(module, lambda op: op.name == "scf.for"):
            loop = _matched(op)
            if loop is not None:
                loop.replace()


@dataclass(frozen=True)
class _ScatterLoop:
    """A loop that is a scatter.

    Attributes:
        op: The `scf.for`.
        rows: The rows that are combined with the table, one in each step.
        places: For each of these rows, the index of a row of the table, `[number, 1]`.
        combine: The elementwise loop that combines both rows.
    """

    op: Any
    rows: Any
    places: Any
    combine: Any

    def replace(self) -> None:
        ir, (table,) = mlir.ir, list(self.op.operands)[3:]
        attributes = {"dimension_map": ir.DenseI64ArrayAttr.get([0]), "unique_indices": ir.BoolAttr.get(False)}
        with self.op.location, ir.InsertionPoint(self.op):
            operands = [_own_rows(self.rows), self.places, _own_table(table)]
            op = create("iree_linalg_ext.scatter", [table.type], operands, attributes, regions=1)
        element = table.type.element_type
        block = op.regions[0].blocks.append(element, element, arg_locs=[self.op.location] * 2)
        body = self.combine.regions[0].blocks[0]
        values: dict[Any, Any] = dict(zip(body.arguments, block.arguments, strict=False))
        *inner, end = [o.operation for o in body.operations]
        with ir.InsertionPoint(block):
            for scalar_op in inner:
                copy = scalar_op.clone()
                for i, operand in enumerate(scalar_op.operands):
                    copy.operands[i] = values.get(operand, operand)
                values |= zip(scalar_op.results, copy.results, strict=True)
            with end.location:
                create("iree_linalg_ext.yield", operands=[values.get(v, v) for v in end.operands])
        self.op.results[0].replace_all_uses_with(op.results[0])
        self.op.erase()


def _own_rows(rows: Any) -> Any:
    """Return the rows, written to memory first if gathered numbers are among what they are computed from.

    IREE would fuse the gather into the scatter.
    """
    maker = maker_of(source_of(rows))
    if maker is None or maker.name != "linalg.generic":
        return rows
    inputs = list(maker.operands)[: -len(maker.results)]
    return in_memory(rows) if any(map(_is_gathered, (rows, *inputs))) else rows


def _is_gathered(value: Any) -> bool:
    """Whether a value is a tensor of elements that a loop reads from another tensor, or a view of it."""
    maker = maker_of(source_of(value))
    if maker is None or maker.name != "linalg.generic":
        return False
    *_, end = [op.operation for op in maker.regions[0].blocks[0].operations]
    return any(not isinstance(v.owner, mlir.ir.Block) and v.owner.name == "tensor.extract" for v in end.operands)


def _own_table(table: Any) -> Any:
    """Return the table for a scatter to overwrite. It is recomputed for this scatter if it is computed from constants, and
    copied if it is an argument that is also returned.
    """
    maker = maker_of(table)
    if _is_returned_argument(table):
        return opaque_copy(table)
    if not _is_of_constants(table) or _is_constant(source_of(table)):
        return table
    inputs = list(maker.operands)[:-1] if maker.name == "linalg.generic" else []
    if not inputs or not all(_is_constant(source_of(value)) for value in inputs):
        return opaque_copy(table)
    hidden_inputs = [behind_barrier(value) for value in inputs]
    repeated = maker.clone()
    for i, value in enumerate(hidden_inputs):
        repeated.operands[i] = value
    return repeated.results[0]


def _is_returned_argument(table: Any) -> bool:
    """Whether a table is an argument, or a view of one, that a function returns directly or as a view."""
    source = source_of(table)
    if not isinstance(source, mlir.ir.BlockArgument):
        return False
    block = source.owner
    end = block.operations[len(block.operations) - 1].operation
    return end.name == "func.return" and source in [source_of(v) for v in end.operands]


def _is_constant(value: Any) -> bool:
    maker = maker_of(value)
    return maker is not None and maker.name == "arith.constant"


def _is_of_constants(value: Any) -> bool:
    """Whether a value is a constant, a result of loops with only constant operands or none, or a view of these."""
    source = source_of(value)
    maker = maker_of(source)
    if maker is None or maker.name != "linalg.generic":
        return _is_constant(source)
    return all(map(_is_of_constants, list(maker.operands)[:-1]))


def _matched(op: Any) -> _ScatterLoop | None:
    """Match a loop over all rows of a matrix, in order, where each step changes one row of another matrix; else None."""
    body = op.regions[0].blocks[0]
    ops = [o.operation for o in body.operations]
    if [o.name for o in ops] != _BODY or len(op.results) != 1 or op.results[0].type.rank != 2:
        return None
    place, place_index, row, old, out, combine, insert, end = ops
    (first, last, step, _), (number, table) = op.operands, body.arguments
    rows, places = row.operands[0], place.operands[0]
    is_over_all_rows = _number(first) == 0 and _number(step) == 1
    is_over_all_rows = is_over_all_rows and all(
        v.type.rank == 2 and _is_equal(size_of(v, 0), last) for v in (rows, places)
    )
    sources = [rows.owner, places.owner]
    is_scatter = (
        body not in sources
        and list(place.operands)[1] == number
        and _number(place.operands[2]) == 0
        and places.type.shape[1] == 1
        and place_index.operands[0] == place.results[0]
        and _is_row(row.opview, rows, number, rows)
        and old.operands[0] == table
        and _is_row(old.opview, table, place_index.results[0], rows)
        and list(combine.operands) == [row.results[0], old.results[0], out.results[0]]
        and insert.opview.source == combine.results[0]
        and insert.opview.dest == table
        and _is_row(insert.opview, table, place_index.results[0], rows)
        and list(end.operands) == [insert.results[0]]
    )
    return (
        _ScatterLoop(op, rows, places, combine)
        if is_over_all_rows and is_scatter and _is_elementwise(combine)
        else None
    )


def _number(value: Any) -> int | None:
    """Return the value of a constant; None for other values."""
    return maker_of(value).attributes["value"].value if _is_constant(value) else None


def _is_equal(size: Any, value: Any) -> bool:
    """Whether a size is equal to an index value."""
    return size == _number(value) if isinstance(size, int) else size == value


def _is_row(op: Any, matrix: Any, place: Any, rows: Any) -> bool:
    """Whether a slice is a row of a matrix, as wide as `rows`. If the width is dynamic, it is the whole row."""
    unknown = mlir.ir.ShapedType.get_dynamic_size()
    width, sizes = size_of(rows, 1), list(op.static_sizes)
    has_width = sizes == [1, width] if isinstance(width, int) else sizes == [1, unknown] and list(op.sizes) == [width]
    return (
        has_width
        and matrix.type.shape[1] == sizes[1]
        and list(op.static_offsets) == [unknown, 0]
        and list(op.offsets) == [place]
        and list(op.static_strides) == [1, 1]
    )


def _is_elementwise(op: Any) -> bool:
    """Whether a loop over one axis reads its two operands at the index where it writes, and does not read its result."""
    maps = [m.value for m in op.attributes["indexing_maps"]]
    body = op.regions[0].blocks[0]
    is_parallel = [str(i) for i in op.attributes["iterator_types"]] == ["#linalg.iterator_type<parallel>"]
    identity = mlir.ir.AffineMap.get_identity(1)
    uses_index = any(o.operation.name == "linalg.index" for o in body.operations)
    return is_parallel and not uses_index and maps == [identity] * 3 and not list(body.arguments[2].uses)
