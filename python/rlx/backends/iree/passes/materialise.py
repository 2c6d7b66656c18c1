"""`rlx-iree-materialise`: what has to be computed in memory before a kernel that reads it.

IREE fuses into a kernel whatever it can. Here that is kept from it where the kernel would be wrong, not compile, or compute
the same several times. Quirks: `activations-repeated`, `complex-tiles`, `thin-slices`, `batched-rows`, `dynamic-packing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.backends.iree.passes.base import IreePass, every, in_memory, keep_in_memory, maker_of, replace_uses

_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape")
# Functions that are an instruction or two; all others are a series of them.
_CHEAP = ("math.absf", "math.sqrt", "math.roundeven", "math.floor", "math.ceil", "math.trunc")


@dataclass(frozen=True)
class Materialise(IreePass, name="rlx-iree-materialise"):
    """Keep what IREE fuses wrongly, or computes several times, apart from the kernels that read it."""

    def apply(self, module: Any) -> None:
        loops = every(module, lambda op: op.name.startswith("linalg."))
        apart = [op for op in loops if _is_read_by_several_products(op)]
        if any(_is_complex(value) for op in loops for value in (*op.operands, *op.results)):
            apart += [op for op in loops if _meets_complex_numbers(op)]
        reads = [(op, value) for op in loops for value in (*_looked_up(op), *_batched(op))]
        for op in apart:
            keep_in_memory(op.results[0])
        for op, value in reads:
            _read_from_memory(op, value)


def _read_from_memory(op: Any, value: Any) -> None:
    """Have one op, and what is inside of it, read a value from memory."""
    uses = [use for use in value.uses if _is_within(use.owner.operation, op)]
    with op.location, mlir.ir.InsertionPoint(op):
        replace_uses(uses, in_memory(value))


def _is_within(op: Any, outer: Any) -> bool:
    return op == outer or (op.parent is not None and op.parent.operation == outer)


# --- activations that several products read -----------------------------------------------------


def _is_read_by_several_products(op: Any) -> bool:
    """Whether an op is a function that is expensive to compute, of one tensor, and several products read what it gives.

    In a feed-forward layer that is trained, a GELU would be computed for the product of the forward pass and again for the
    gradient of its weight.
    """
    if not _is_elementwise(op) or len(op.operands) != 2 or _is_complex(op.results[0]):
        return False
    names = (inner.operation.name for inner in op.regions[0].blocks[0].operations)
    expensive = any(name.startswith("math.") and name not in _CHEAP for name in names)
    return expensive and len(_products_of(op.results[0])) > 1


def _products_of(value: Any) -> set[Any]:
    """The products that read a value, as it is or arranged in another way."""
    products: set[Any] = set()
    for use in value.uses:
        user = use.owner.operation
        if _is_product(user):
            products.add(user)
        elif user.name in (*_VIEWS, "linalg.transpose"):
            products |= _products_of(user.results[0])
    return products


# --- products whose elements go into complex numbers --------------------------------------------


def _meets_complex_numbers(op: Any) -> bool:
    """Whether an op is a product of real numbers that are used, element by element, together with complex ones.

    IREE computes a product in tiles and leaves it in tiles through the elementwise ops that follow, and all that they meet is
    brought into tiles as well. Of complex numbers it cannot read any, and gives up on such a program.
    """
    if not _is_product(op) or _is_complex(op.results[0]):
        return False
    waiting, seen = list(_elementwise_users(op)), set()  # these, and whatever they are fused with
    while waiting:
        owner = waiting.pop()
        if owner in seen:
            continue
        if any(map(_is_complex, (*owner.operands, *owner.results))):
            return True
        seen.add(owner)
        waiting += [maker for maker in map(maker_of, owner.operands) if maker is not None and _keeps_tiles(maker)]
    return False


def _elementwise_users(op: Any) -> set[Any]:
    """The elementwise ops that use what an op gives, and those that use what they give."""
    users: set[Any] = set()
    waiting = [op]
    while waiting:
        readers = {use.owner.operation for result in waiting.pop().results for use in result.uses}
        new = {reader for reader in readers if _keeps_tiles(reader)} - users
        users |= new
        waiting += new
    return users


def _keeps_tiles(op: Any) -> bool:
    return op.name in (*_VIEWS, "linalg.transpose") or (_is_elementwise(op) and not list(_extracts(op)))


# --- elements of slices, at computed places -----------------------------------------------------


def _looked_up(op: Any) -> list[Any]:
    """The slices of which a kernel reads single elements at computed places, and of which IREE makes no valid code.

    They are those with strides, and those of one element of the innermost axis.
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
    while maker is not None and maker.name in (*_VIEWS, "tensor.extract_slice"):
        if maker.name == "tensor.extract_slice":
            source, result = maker.operands[0].type, maker.results[0].type
            if result.rank and result.shape[-1] == 1 != source.shape[-1]:
                return True
            if any(stride != 1 for stride in maker.opview.static_strides):
                return True
        maker = maker_of(maker.operands[0])
    return False


# --- operands of batched products ---------------------------------------------------------------

# Rows that IREE's CPU code packs together, at most.
_TILE = 16


def _batched(op: Any) -> list[Any]:
    """The operands of a batched product that have to be in memory before it.

    With dynamic sizes, whatever made an operand does not compile once it is fused into the packing of that. With static ones,
    IREE may compute the rows of all batches as one axis, and split that while it packs them: where they are no whole number of
    tiles, the first rows of the next batch then stand in place of the padding.
    """
    if op.name == "linalg.batch_matmul":
        lhs, rhs, _ = op.operands
        if any(not v.type.has_static_shape for v in op.operands):
            return [lhs, rhs]
        return [] if _fills_tiles(lhs) or maker_of(lhs) is None else [lhs]
    if not _is_broadcast_product(op):
        return []
    lhs = op.operands[0]
    return [] if _fills_tiles(lhs) or _is_given(lhs) else [lhs]


def _fills_tiles(rows: Any) -> bool:
    """Whether the rows of each matrix are known to be a whole number of tiles."""
    return rows.type.has_static_shape and rows.type.shape[-2] % _TILE == 0


def _is_broadcast_product(op: Any) -> bool:
    """Whether an op is a product of matrices of batches, of which some factor may have fewer."""
    linalg = mlir.dialect("linalg")
    if op.name != "linalg.generic" or not linalg.isa_contraction_op(op):
        return False
    return len(op.attributes["iterator_types"]) > 3


def _is_given(value: Any) -> bool:
    """Whether a value is an argument or a parameter, perhaps of another shape: such kernels are packed when they are loaded."""
    maker = maker_of(value)
    while maker is not None and maker.name in _VIEWS:
        maker = maker_of(maker.operands[0])
    return maker is None or maker.name == "util.global.load"


# --- kinds of ops -------------------------------------------------------------------------------


def _is_product(op: Any) -> bool:
    return op.name.startswith("linalg.") and mlir.dialect("linalg").isa_contraction_op(op)


def _is_elementwise(op: Any) -> bool:
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    return all("parallel" in str(i) for i in op.attributes["iterator_types"])


def _is_complex(value: Any) -> bool:
    type_ = value.type
    return isinstance(getattr(type_, "element_type", type_), mlir.ir.ComplexType)
