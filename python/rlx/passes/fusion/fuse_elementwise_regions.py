"""`rlx-fuse-elementwise-regions`: grouping of connected elementwise ops, and reductions of their results, into one op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.location import within
from rlx.ir.op import opview, registry
from rlx.ir.op.signature import functions
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import collect, erase_dead

# Maximum number of types among the inputs or results of a region: an op has at most 16 runs of equal types.
_MOST_TYPES = 16


@dataclass(frozen=True)
class FuseElementwiseRegions(Pass, name="rlx-fuse-elementwise-regions", exact=True):
    """Create an `elementwise_region` from connected elementwise ops of one shape: chains and diamonds.

    Values with other uses become results of the region, and so do reductions of its values. `rlx-fuse` does not run
    this pass: loop-generating compilers create the same loops without it, and no other pass looks into a region. It is
    for targets whose kernels take whole regions.
    """

    least: int = option(2, "minimum number of ops in a region", least=1)

    def run(self, module: mlir.Module) -> None:
        erase_dead(collect(module))
        for function in functions(module):
            if not function.is_external:
                self._fuse_block(function.entry_block)

    def _fuse_block(self, block: mlir.Block) -> None:
        for op in list(block.operations):
            if op.operation.name != "rlx.elementwise_region":
                for region in op.operation.regions:
                    for inner in region.blocks:
                        self._fuse_block(inner)
        for members in clusters(block):
            if len(members) >= self.least:
                fuse_region(block, members, self.name)


# --- grouping of ops -------------------------------------------------------------------------------


def is_fusable(op: mlir.Operation) -> bool:
    """Whether an op can be in a region."""
    return registry.is_ours(op) and opview.has_trait(op, "elementwise") and len(op.results) == 1


def clusters(
    block: mlir.Block, is_member: Callable[[mlir.Operation], bool] = is_fusable, *, with_reductions: bool = True
) -> Iterator[list[mlir.Operation]]:
    """Yield groups of ops of a block that may be fused, in program order.

    Args:
        block: The block.
        is_member: Whether an op that can be in a region may be in a group.
        with_reductions: Whether groups end with reductions of their values.

    Every op has a rank, which grows along each edge that a region cannot contain: from an elementwise op to another
    kind of op, or to one of another shape. No path leaves a connected set of ops of one rank and returns to it, so
    regions of different clusters have no cyclic dependence.
    """
    ops = [op.operation for op in block.operations]
    rank: dict[Any, int] = {}  # keyed by first result, because the hash of an op depends on its operands
    parent: dict[Any, Any] = {}
    ends: dict[Any, Any] = {}  # the op whose result each reduction reads

    def root(key: Any) -> Any:
        while parent[key] != key:
            key = parent[key]
        return key

    for op in ops:
        if not len(op.results):
            continue
        key, fusable = op.results[0], is_member(op)
        makers = [(v, v.owner.operation) for v in _operands(op) if isinstance(v, mlir.ir.OpResult)]
        near = [(v.owner.operation.results[0], is_member(m) and not (fusable and _alike(m, op))) for v, m in makers]
        rank[key] = max((rank.get(k, 0) + leaves for k, leaves in near), default=0)
        if fusable:
            parent[key] = key
        for value, maker in makers:
            first = maker.results[0]
            if fusable and first in parent and _alike(maker, op) and rank[first] == rank[key]:
                parent[root(key)] = root(first)
            elif with_reductions and _is_end(op) and first in parent and value == first:
                ends[key] = first
    groups: dict[Any, list[mlir.Operation]] = {}
    for op in ops:
        key = op.results[0] if len(op.results) else None
        if key in parent or key in ends:
            groups.setdefault(root(ends.get(key, key)), []).append(op)
    yield from groups.values()


def _is_end(op: mlir.Operation) -> bool:
    """Whether an op can only be the last op of a region."""
    return op.name == "rlx.reduce"


def _alike(a: mlir.Operation, b: mlir.Operation) -> bool:
    return shape_of(a.results[0]).dims == shape_of(b.results[0]).dims


def _operands(op: mlir.Operation) -> list[mlir.Value]:
    """Return the operands of an op, including those of ops in its regions."""
    values = list(op.operands)
    for region in op.regions:
        for block in region.blocks:
            values += [v for inner in opview.operations(block) for v in inner.operands]
    return values


# --- creation of the region ---------------------------------------------------------------------------


def fuse_region(
    block: mlir.Block, members: list[mlir.Operation], note: str, *, copies_constants: bool = True
) -> mlir.Operation | None:
    """Replace ops of a block by one region, and return it; None if that is not possible.

    Args:
        block: The block.
        members: A group of `clusters`.
        note: The name of the pass.
        copies_constants: Whether the region has constants of its own, instead of inputs.
    """
    inside = {op.results[0] for op in members}
    outputs = [op.results[0] for op in members if any(_outside(block, op.results[0], inside))]
    inputs = {
        v: None for op in members for v in op.operands if v not in inside and not (copies_constants and _is_constant(v))
    }
    if len({str(v.type) for v in inputs}) > _MOST_TYPES or len({str(v.type) for v in outputs}) > _MOST_TYPES:
        return None
    place = _place(block, outputs, inside)
    if not all(_is_before(block, value, place) for value in inputs):
        return None  # an op that reads an output comes before an input is computed
    builder = Builder(mlir.ir.InsertionPoint(place), within(members[-1].location, note))
    sources = sorted(inputs, key=lambda v: str(v.type))
    outputs.sort(key=lambda v: str(v.type))
    shapes = [shape_of(v) for v in sources]
    region = builder.region(
        lambda *given: _body(builder, dict(zip(sources, given, strict=True)), members, outputs), shapes
    )
    made = builder.emit("elementwise_region", ([builder.tensor(v) for v in sources],), regions=[region])
    for old, new in zip(outputs, made, strict=True):
        old.replace_all_uses_with(new.value)
    for op in reversed(members):
        op.erase()
    return made[0].value.owner.operation


def _body(builder: Builder, known: dict[Any, Tensor], members: Iterable[Any], outputs: Iterable[Any]) -> list[Tensor]:
    def tensor(value: mlir.Value) -> Tensor:
        if value not in known:  # a constant
            known[value] = builder.emit("constant", (), **opview.attributes_of(value.owner.operation))
        return known[value]

    for op in members:
        operands = opview.operands_of(op, [tensor(v) for v in op.operands])
        known[op.results[0]] = builder.emit(opview.name_of(op), operands, **opview.attributes_of(op))
    return [known[v] for v in outputs]


def _is_constant(value: mlir.Value) -> bool:
    return isinstance(value, mlir.ir.OpResult) and value.owner.operation.name == "rlx.constant"


def _outside(block: mlir.Block, value: mlir.Value, inside: set[Any]) -> Iterator[mlir.Operation]:
    """Yield the ops of the block that read a value, directly or in their regions, and are outside the cluster."""
    for use in value.uses:
        op = use.owner.operation
        while op.block != block:
            op = op.block.owner.operation
        if not len(op.results) or op.results[0] not in inside:
            yield op


def _place(block: mlir.Block, outputs: Iterable[mlir.Value], inside: set[Any]) -> mlir.Operation:
    """Return the first op that reads one of the results."""
    found: mlir.Operation | None = None
    for value in outputs:
        for op in _outside(block, value, inside):
            if found is None or op.is_before_in_block(found):
                found = op
    assert found is not None, "an op that nobody reads is no cluster's only result"
    return found


def _is_before(block: mlir.Block, value: mlir.Value, place: mlir.Operation) -> bool:
    if not isinstance(value, mlir.ir.OpResult) or value.owner.operation.block != block:
        return True
    return value.owner.operation.is_before_in_block(place)
