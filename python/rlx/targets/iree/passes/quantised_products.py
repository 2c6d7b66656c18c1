"""`rlx-iree-quantised-products`: converts products of 8-bit integers to a form with fast code in IREE.

* The activations are written to memory before the product. Otherwise IREE fuses the op that rounds them into their packing,
  whose code becomes two to three times slower. Quirk: `rounding-packed`.
* With `unsigned`, 128 is added to the activations, and they are multiplied as unsigned numbers, because VNNI multiplies
  unsigned by signed bytes. IREE's code for two signed factors extends both to 16 bits, and takes twice the time. The additional
  term of the sums, `128·Σ w`, is subtracted. The sums are written to memory before other ops read them, because IREE cannot
  broadcast into their layout. Quirk: `unsigned-layouts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.passes.base import option
from rlx.targets.iree.passes.base import (
    RESHAPES,
    IreePass,
    elementwise,
    every,
    in_memory,
    keep_in_memory,
    maker_of,
    replace_uses,
)

_OFFSET = 128


@dataclass(frozen=True)
class QuantisedProducts(IreePass, name="rlx-iree-quantised-products"):
    """Convert products of 8-bit integers to a form with fast code in IREE."""

    unsigned: bool = option(False, "whether the CPU multiplies unsigned by signed bytes")

    def run(self, module: mlir.Module) -> None:
        made, shared = False, dict[Any, Any]()
        for op in every(module, _is_product_of_bytes):
            weights_first = is_constant(op.operands[0]) and not is_constant(op.operands[1])
            activations = 1 if weights_first else 0
            unsigned = self.unsigned and op.name == "linalg.matmul"
            if unsigned or not is_constant(op.operands[activations]):
                op.operands[activations] = _apart(op, op.operands[activations], unsigned, shared)
            if unsigned:
                _make_unsigned(op, activations)
                made = True
        if made:
            _tile_no_batches(module)


def _apart(op: Any, x: Any, unsigned: bool, shared: dict[Any, Any]) -> Any:
    """Write the activations of a product to memory, converted to unsigned if required: once for all products of a block."""
    source = x
    while (maker := maker_of(source)) is not None and maker.name in RESHAPES:
        source = maker.operands[0]
    key = (source, x.type, unsigned)
    if key not in shared or shared[key][1] != op.block:
        with op.location, mlir.ir.InsertionPoint(op):
            shared[key] = in_memory(_moved(x) if unsigned else x), op.block
    return shared[key][0]


def _tile_no_batches(module: Any) -> None:
    """Enable data tiling for products of two matrices only.

    With the layouts for unsigned bytes, IREE has no code for batched products. If any product has the attribute, IREE does not
    tile the others. All results are written to memory before other ops read them. Quirk: `unsigned-layouts`.
    """
    with mlir.entered():
        for op in every(module, _is_product_of_matrices):
            op.attributes["iree.opt.data_tiling"] = mlir.ir.UnitAttr.get()
            if not _is_product_of_bytes(op):
                keep_in_memory(op.results[0])


def _is_product_of_matrices(op: Any) -> bool:
    if not op.name.startswith("linalg.") or not mlir.dialect("linalg").isa_contraction_op(op):
        return False
    return [v.type.rank for v in op.operands] == [2, 2, 2]


def has_unsigned_products(module: Any) -> bool:
    """Whether a module has products of unsigned by signed bytes."""
    return bool(every(module, lambda op: _is_product_of_bytes(op) and len(op.regions) == 1 and _extends_unsigned(op)))


def _extends_unsigned(op: Any) -> bool:
    return any(inner.operation.name == "arith.extui" for inner in op.regions[0].blocks[0].operations)


def _is_product_of_bytes(op: Any) -> bool:
    if not op.name.startswith("linalg.") or not mlir.dialect("linalg").isa_contraction_op(op):
        return False
    lhs, rhs, total = (str(v.type.element_type) for v in op.operands)
    return lhs == rhs == "i8" and total == "i32"


def is_constant(value: Any) -> bool:
    """Whether a value depends only on parameters and constants. IREE computes it once, when it loads the program."""
    waiting, seen = [value], set[Any]()
    while waiting:
        value = waiting.pop()
        maker = maker_of(value)
        if maker is None:
            return False
        if maker.name != "util.global.load" and maker.results[0] not in seen:
            seen.add(maker.results[0])
            waiting += list(maker.operands)
    return True


def _make_unsigned(op: Any, activations: int) -> None:
    """Replace a product by one with unsigned activations, which are greater by 128, and subtract the additional term."""
    weights = op.operands[1 - activations]
    total = op.results[0]
    uses = list(total.uses)
    with op.location, mlir.ir.InsertionPoint(op):
        product = _product(list(op.operands)[:2], op.operands[2], activations)
        extra = _summed(weights, kept=1 - activations)
        result = _without(in_memory(product), extra, kept=1 - activations)
    replace_uses(uses, result)
    op.erase()


def _moved(x: Any) -> Any:
    """Return `x + 128` as unsigned bytes, by flipping the highest bit."""
    arith, tensor, type_ = mlir.dialect("arith"), mlir.dialect("tensor"), x.type
    sizes = [tensor.dim(x, _index(i)) if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]
    out = tensor.empty(sizes, type_.element_type)
    identity = mlir.ir.AffineMap.get_identity(type_.rank)
    return elementwise(
        [(x, identity)], [out], lambda b: [arith.xori(b.arguments[0], _number(b.arguments[0].type, -_OFFSET))]
    )[0]


def _product(factors: list[Any], out: Any, activations: int) -> Any:
    """Emit `[M, K]·[K, N]` with unsigned activations."""
    ir, arith, linalg = mlir.ir, mlir.dialect("arith"), mlir.dialect("linalg")
    m, n, k = (ir.AffineExpr.get_dim(i) for i in range(3))
    maps = ir.ArrayAttr.get([ir.AffineMapAttr.get(ir.AffineMap.get(3, 0, axes)) for axes in ([m, k], [k, n], [m, n])])
    kinds = ir.ArrayAttr.get(
        [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in ("parallel", "parallel", "reduction")]
    )
    op = linalg.GenericOp([out.type], factors, [out], maps, kinds)
    word, byte = out.type.element_type, factors[0].type.element_type
    block = op.regions[0].blocks.append(byte, byte, word)
    with ir.InsertionPoint(block):
        wide = [(arith.extui if i == activations else arith.extsi)(word, block.arguments[i]) for i in range(2)]
        linalg.yield_([arith.addi(block.arguments[2], arith.muli(*wide))])
    return op.results[0]


def _summed(weights: Any, kept: int) -> Any:
    """Return the sums of a matrix of bytes in i32 along the axis that is not kept."""
    ir, arith, linalg, tensor = mlir.ir, mlir.dialect("arith"), mlir.dialect("linalg"), mlir.dialect("tensor")
    word, type_ = ir.IntegerType.get_signless(32), weights.type
    size = tensor.dim(weights, _index(kept)) if type_.is_dynamic_dim(kept) else type_.get_dim_size(kept)
    out = linalg.fill(_number(word, 0), outs=[tensor.empty([size], word)])
    maps = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in (ir.AffineMap.get_identity(2), _axis(kept))])
    kinds = [f"#linalg.iterator_type<{'parallel' if i == kept else 'reduction'}>" for i in range(2)]
    op = linalg.GenericOp([out.type], [weights], [out], maps, ir.ArrayAttr.get([ir.Attribute.parse(k) for k in kinds]))
    block = op.regions[0].blocks.append(type_.element_type, word)
    with ir.InsertionPoint(block):
        linalg.yield_([arith.addi(block.arguments[1], arith.extsi(word, block.arguments[0]))])
    return op.results[0]


def _without(total: Any, sums: Any, kept: int) -> Any:
    """Subtract the additional term, from the offset of one factor, from sums of products."""
    arith, tensor, type_ = mlir.dialect("arith"), mlir.dialect("tensor"), total.type
    sizes = [tensor.dim(total, _index(i)) if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(2)]
    out = tensor.empty(sizes, type_.element_type)
    inputs = [(total, mlir.ir.AffineMap.get_identity(2)), (sums, _axis(kept))]

    def body(block: Any) -> list[Any]:
        sum_, of_weights, _ = block.arguments
        return [arith.subi(sum_, arith.muli(of_weights, _number(sum_.type, _OFFSET)))]

    return elementwise(inputs, [out], body)[0]


def _axis(axis: int) -> Any:
    return mlir.ir.AffineMap.get(2, 0, [mlir.ir.AffineExpr.get_dim(axis)])


def _number(type_: Any, value: int) -> Any:
    return mlir.dialect("arith").constant(type_, mlir.ir.IntegerAttr.get(type_, value))


def _index(position: int) -> Any:
    return mlir.dialect("arith").constant(mlir.ir.IndexType.get(), position)
