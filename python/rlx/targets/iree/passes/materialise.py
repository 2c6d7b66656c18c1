"""`rlx-iree-materialise`: computes some tensors in memory before the kernels that read them.

IREE fuses the largest possible number of ops into a kernel. This pass prevents fusion if the kernel would be wrong, would not
compile, or would repeat computations. Quirks: `activations-repeated`, `complex-tiles`, `thin-slices`, `batched-rows`,
`dynamic-packing`, `several-elements`, `two-positions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import (
    RESHAPES,
    IreePass,
    every,
    in_memory,
    is_elementwise,
    is_fused_with_readers,
    keep_in_memory,
    maker_of,
    replace_uses,
)
from rlx.targets.iree.passes.repeated_reads import are_read_at_two_positions

# Functions of one or two instructions. All other functions are expensive.
_CHEAP = ("math.absf", "math.sqrt", "math.roundeven", "math.floor", "math.ceil", "math.trunc")


@dataclass(frozen=True)
class Materialise(IreePass, name="rlx-iree-materialise"):
    """Write tensors to memory that IREE would fuse incorrectly or compute several times."""

    def run(self, module: mlir.Module) -> None:
        loops = every(module, lambda op: op.name.startswith("linalg."))
        materialised = [
            op
            for op in filter(is_elementwise, loops)
            if _is_used_by_several_products(op) or _gives_several_elements(op.results[0])
        ]
        if any(_is_complex(value) for op in loops for value in (*op.operands, *op.results)):
            materialised += [op for op in loops if _meets_complex_numbers(op)]
        reads = [
            (op, value) for op in loops for value in (*_slices_with_lookups(op), *_operands_of_batched_product(op))
        ]
        for op in materialised:
            keep_in_memory(op.results[0])
        # The hash of an op depends on its operands: all ops are looked up before one is changed.
        order = {op: number for number, op in enumerate(every(module, lambda _: True))}
        tiled = [op for op in filter(_is_computed_in_tiles, loops) if are_read_at_two_positions(op.results, order)]
        for value in [value for op in tiled for value in op.results]:
            keep_in_memory(value)
        for op, value in reads:
            _read_from_memory(op, value)


def _is_computed_in_tiles(op: Any) -> bool:
    """Whether IREE computes an op in tiles that the ops which read it determine."""
    return not is_elementwise(op) and op.name not in ("linalg.fill", "linalg.transpose", "linalg.yield", "linalg.index")


def _read_from_memory(op: Any, value: Any) -> None:
    """Make an op and the ops inside it read a value from memory."""
    uses = [use for use in value.uses if _is_within(use.owner.operation, op)]
    with op.location, mlir.ir.InsertionPoint(op):
        replace_uses(uses, in_memory(value))


def _is_within(op: Any, outer: Any) -> bool:
    return op == outer or (op.parent is not None and op.parent.operation == outer)


# --- activations that several products use ------------------------------------------------------


def _is_used_by_several_products(op: Any) -> bool:
    """Whether an elementwise op is an expensive function of one tensor, and several products use its result.

    For example, in the training of a feed-forward layer, a GELU would be computed for the product in the forward pass, and
    again for the gradient of the weight.
    """
    if len(op.operands) != 2 or _is_complex(op.results[0]):
        return False
    names = (inner.operation.name for inner in op.regions[0].blocks[0].operations)
    expensive = any(name.startswith("math.") and name not in _CHEAP for name in names)
    return expensive and len(_products_of(op.results[0])) > 1


def _gives_several_elements(value: Any) -> bool:
    """Whether several slices take single elements of a tensor.

    The compiler does not terminate if these slices and the op that computes the tensor are fused into a kernel that broadcasts
    the elements.
    """
    slices = [use.owner.operation for use in value.uses if use.owner.name == "tensor.extract_slice"]
    return sum(all(n == 1 for n in taken.results[0].type.shape) for taken in slices) > 1


def _products_of(value: Any) -> set[Any]:
    """Return the products that use a value or a rearrangement of it."""
    products: set[Any] = set()
    for use in value.uses:
        user = use.owner.operation
        if _is_product(user):
            products.add(user)
        elif user.name in (*RESHAPES, "linalg.transpose"):
            products |= _products_of(user.results[0])
    return products


# --- products whose elements go into complex numbers --------------------------------------------


def _meets_complex_numbers(op: Any) -> bool:
    """Whether an op is a product of real numbers whose result is used in elementwise ops together with complex numbers.

    IREE computes a product in tiles, and keeps the tiles through the following elementwise ops. Their other operands are
    converted to tiles as well. IREE cannot read complex numbers in tiles, and fails to compile these programs.
    """
    if not _is_product(op) or _is_complex(op.results[0]):
        return False
    pending, seen = list(_elementwise_users(op)), set()  # the users and the ops fused with them
    while pending:
        op_in_tiles = pending.pop()
        if op_in_tiles in seen:
            continue
        if any(map(_is_complex, (*op_in_tiles.operands, *op_in_tiles.results))):
            return True
        seen.add(op_in_tiles)
        pending += [maker for maker in map(maker_of, op_in_tiles.operands) if maker is not None and _keeps_tiles(maker)]
    return False


def _elementwise_users(op: Any) -> set[Any]:
    """Return the elementwise ops that use the results of an op, directly or through other elementwise ops."""
    users: set[Any] = set()
    pending = [op]
    while pending:
        readers = {use.owner.operation for result in pending.pop().results for use in result.uses}
        new = {reader for reader in readers if _keeps_tiles(reader)} - users
        users |= new
        pending += new
    return users


def _keeps_tiles(op: Any) -> bool:
    return is_fused_with_readers(op) and not list(_extracts(op))


# --- elements of slices, at computed positions --------------------------------------------------


def _slices_with_lookups(op: Any) -> list[Any]:
    """Return the slices that a kernel reads at computed positions, if IREE generates invalid code for this.

    These are strided slices, and slices of size 1 along the innermost axis.
    """
    return list(dict.fromkeys(s for s in (e.operands[0] for e in _extracts(op)) if _is_thin_slice(s, op)))


def _extracts(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == "tensor.extract":
                    yield inner.operation
                yield from _extracts(inner.operation)


def _is_thin_slice(value: Any, reader: Any) -> bool:
    maker = maker_of(value)
    while maker is not None and maker.name in (*RESHAPES, "tensor.extract_slice"):
        if maker.name == "tensor.extract_slice":
            source, result = maker.operands[0].type, maker.results[0].type
            if result.rank and result.shape[-1] == 1 != source.shape[-1]:
                return True
            if any(stride != 1 for stride in maker.opview.static_strides):
                return True
        maker = maker_of(maker.operands[0])
    return False


# --- operands of batched products ---------------------------------------------------------------

# The greatest number of rows in a tile of IREE's CPU code.
_TILE = 16


def _operands_of_batched_product(op: Any) -> list[Any]:
    """Return the operands of a batched product that must be written to memory first.

    With dynamic sizes, the op that computes an operand does not compile after fusion into the packing of the operand. With
    static sizes, IREE may compute the rows of all batches as one axis, and split this axis during packing. If the rows of a
    batch do not fill whole tiles, the first rows of the next batch are then used instead of the padding.
    """
    if op.name == "linalg.batch_matmul":
        lhs, rhs, _ = op.operands
        if any(not v.type.has_static_shape for v in op.operands):
            return [lhs, rhs]
        return [] if _fills_tiles(lhs) or maker_of(lhs) is None else [lhs]
    if not _is_broadcast_product(op):
        return []
    lhs = op.operands[0]
    return [] if _fills_tiles(lhs) or _is_argument_or_parameter(lhs) else [lhs]


def _fills_tiles(rows: Any) -> bool:
    """Whether it is known that the rows of each matrix fill whole tiles."""
    return rows.type.has_static_shape and rows.type.shape[-2] % _TILE == 0


def _is_broadcast_product(op: Any) -> bool:
    """Whether an op is a batched product of matrices where a factor may have fewer batch axes."""
    linalg = mlir.dialect("linalg")
    if op.name != "linalg.generic" or not linalg.isa_contraction_op(op):
        return False
    return len(op.attributes["iterator_types"]) > 3


def _is_argument_or_parameter(value: Any) -> bool:
    """Whether a value is an argument or a parameter, possibly reshaped. These are packed when the program is loaded."""
    maker = maker_of(value)
    while maker is not None and maker.name in RESHAPES:
        maker = maker_of(maker.operands[0])
    return maker is None or maker.name == "util.global.load"


# --- kinds of ops -------------------------------------------------------------------------------


def _is_product(op: Any) -> bool:
    return op.name.startswith("linalg.") and mlir.dialect("linalg").isa_contraction_op(op)


def _is_complex(value: Any) -> bool:
    type_ = value.type
    return isinstance(getattr(type_, "element_type", type_), mlir.ir.ComplexType)
