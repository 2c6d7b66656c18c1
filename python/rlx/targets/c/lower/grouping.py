"""Grouping of ops into kernels: chains of elementwise ops and moves in one loop, with the op whose sums they scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from rlx import mlir
from rlx.ir.location import layer_of
from rlx.ir.op import opview
from rlx.ir.op.opview import label_of, name_of
from rlx.ir.shape import Shape, shape_of
from rlx.targets.c.lower.rules import ELEMENTWISE, MOVES

# The maximal number of ops in one kernel. Larger kernels are hard to read.
_MOST_OPS = 60
# Ops that read each element of an operand once. Their operand may be computed in their loop.
_READ_ONCE = ("reduce", "argmax", "argmin", "pad")
_PRODUCTS = frozenset({"q_matmul", "q_conv2d", "matmul", "dot_general", "conv"})
_LABELS = {"q_conv2d": "conv", "q_matmul": "dense", "requantize": "scaled", "reduce": "reduced"}


@dataclass(eq=False)
class OpGroup:
    """Ops that one function computes.

    Attributes:
        final: The op that defines the result.
        ops: All ops, in program order.
        root: The op with its own loops, or None.
        aligned: The ops that are computed at the index of the result.
        source: The result of the op with loops that the group starts with, or None if it is not known yet.
        moved: Whether an element may be read at another index than it is written.
    """

    final: mlir.Operation
    ops: list[mlir.Operation]
    root: mlir.Operation | None = None
    aligned: set[Any] = field(default_factory=set[Any])
    source: Any = None
    moved: bool = False

    @property
    def result(self) -> mlir.Value:
        return self.final.results[0]

    @property
    def shape(self) -> Shape:
        return shape_of(self.result)

    @property
    def inner(self) -> set[Any]:
        """The values that are computed in this group and not stored."""
        return {op.results[0] for op in self.ops} - {self.result}

    @property
    def products(self) -> int:
        """The number of multiplications of the root's product, with those of padding; 0 if the root is not a product."""
        root = self.root
        if root is None or name_of(root) not in _PRODUCTS:
            return 0
        x, w = (shape_of(v).static for v in list(root.operands)[:2])
        if name_of(root) in ("q_conv2d", "conv"):
            depth = prod(w[1:])
        elif name_of(root) == "dot_general":
            depth = prod(x[axis] for axis in opview.attributes_of(root)["lhs_contracting"])
        else:
            depth = x[-1]
        return prod(shape_of(root.results[0]).static) * depth

    @property
    def is_depthwise(self) -> bool:
        """Whether the root is a convolution of each channel alone, whose products are multiplied one by one."""
        root = self.root
        if root is None or name_of(root) not in ("q_conv2d", "conv"):
            return False
        return opview.attributes_of(root)["groups"] > 1 and shape_of(root.operands[1]).static[1] == 1

    def leaves(self) -> list[mlir.Value]:
        """The values that are read from memory, except constants."""
        inner = self.inner
        reads = (v for op in self.ops for v in op.operands)
        return list(dict.fromkeys(v for v in reads if v not in inner and constant_of(v) is None))

    @property
    def in_order(self) -> bool:
        """Whether each element is written once, directly after the elements at its index are read (except the root's reads)."""
        return not self.moved and (self.root is None or _writes_once(self.root))

    def read_in_order(self) -> list[mlir.Value]:
        """The leaves that are read only at the index of the result. Others must not share memory with the result."""
        aligned = [op for op in self.ops if op is not self.root and op.results[0] in self.aligned]
        others = {v for op in self.ops if op not in aligned for v in op.operands}
        reads = dict.fromkeys(v for op in aligned for v in op.operands)
        return [v for v in self.leaves() if v in reads and v not in others]

    @property
    def layer(self) -> str:
        """The name of the layer in the model of the op with loops, or of the result. Empty if there is none."""
        return layer_of((self.root or self.final).location)

    @property
    def label(self) -> str:
        """A one-word name."""
        main = self.root or self.final
        label = _LABELS.get(name_of(main)) or label_of(main)
        return label


def _writes_once(root: mlir.Operation) -> bool:
    """Whether loops write each element once. Loops over 2 or 4 elements write some twice if the count is not a multiple."""
    dims = shape_of(root.results[0]).static
    if name_of(root) == "q_conv2d":
        positions, rows = dims[2] * dims[3], dims[1] // opview.attributes_of(root)["groups"]
        return all(n == 1 or n % 2 == 0 for n in (positions, rows))
    return dims[-1] < 4 or dims[-1] % 4 == 0 if name_of(root) == "q_matmul" else name_of(root) not in ("pad", "concat")


def constant_of(value: mlir.Value) -> Any:
    """Return the array of a constant, or of a view of one; None for any other value."""
    if isinstance(value, mlir.ir.BlockArgument):
        return None
    op = value.owner.operation
    if op.name == "rlx.constant":
        return opview.attributes_of(op)["value"]
    if not is_view(op) or (array := constant_of(op.operands[0])) is None:
        return None
    return opview.card_of(op).evaluate(array, **opview.attributes_of(op))


def is_view(op: mlir.Operation) -> bool:
    """Whether the result shares the bytes of the first operand, without moving elements."""
    card = opview.card_of(op)
    if not card.has("aliases") and card.spec.trait("view") is None:
        return False
    shapes = [shape_of(v) for v in op.operands], [shape_of(v) for v in op.results]
    return card.aliases(*shapes, opview.attributes_of(op))[0] is not None


def groups_in(blocks: Sequence[mlir.Block]) -> list[OpGroup]:
    """Return the kernels of the blocks of a function. Those of one block are in execution order."""
    return [group for block in blocks for group in _groups_of(block)]


def _groups_of(block: mlir.Block) -> list[OpGroup]:
    *body, _ = (view.operation for view in block.operations)
    group_of: dict[Any, OpGroup] = {}
    found: list[OpGroup] = []
    for op in reversed(body):
        if op.name == "rlx.constant" or len(op.regions) or is_view(op):
            continue
        group = _joined(op, group_of)
        if group is None:
            group = OpGroup(op, [])
            found.append(group)
            if name_of(op) in ELEMENTWISE:
                group.aligned.add(op.results[0])
                source = _source(op)
                group.source = None if source is None else source.root
            elif name_of(op) not in MOVES:
                group.source = op.results[0]
        _add(op, group)
        group_of[op.results[0]] = group
    return list(reversed(found))


def _add(op: mlir.Operation, group: OpGroup) -> None:
    name = name_of(op)
    group.ops.insert(0, op)
    # A table is constant memory, so that only its index counts, which is read at the index of the result.
    group.moved |= name in MOVES or (name == "gather" and constant_of(op.operands[0]) is None)
    if name not in ELEMENTWISE | MOVES:
        group.root = op


def _joined(op: mlir.Operation, group_of: dict[Any, OpGroup]) -> OpGroup | None:
    """Return the group of all readers of an op's result, if the op may be computed in it."""
    value = op.results[0]
    readers = list(_readers(value))
    groups = {id(g): g for reader, _ in readers if (g := group_of.get(_key(reader))) is not None}
    if not readers or len(groups) != 1 or any(_key(reader) not in group_of for reader, _ in readers):
        return None
    (group,) = groups.values()
    if len(group.ops) >= _MOST_OPS:
        return None
    if name_of(op) in ELEMENTWISE | MOVES:
        source = _source(op) if name_of(op) in ELEMENTWISE else None
        if source is not None and group.source is not None and source.root != group.source:
            # Two ops with loops are two kernels. The value stored between them is the narrowest value of the chain.
            if shape_of(value).dtype.itemsize <= source.narrowest:
                return None
        elif source is not None and _is_aligned(readers, group, shape_of(value)):
            group.source = source.root
        if not all(_may_read(reader, k, op) for reader, k in readers):
            return None
        if name_of(op) in ELEMENTWISE and _is_aligned(readers, group, shape_of(value)):
            group.aligned.add(value)
        return group
    is_other = group.source is not None and group.source != value
    if group.root is not None or is_other or name_of(op) == "concat":
        return None
    fits = _is_aligned(readers, group, shape_of(value)) and all(_is_plain(reader, k) for reader, k in readers)
    return group if fits else None


def _is_aligned(readers: Sequence[tuple[mlir.Operation, int]], group: OpGroup, shape: Shape) -> bool:
    """Whether a value is read only at the index of the group's result."""
    return all(
        reader.results[0] in group.aligned and shape_of(reader.results[0]).dims == shape.dims for reader, _ in readers
    )


def _source(op: mlir.Operation) -> _ChainStart | None:
    """Return the start of an elementwise op's chain: the last op with loops that has no other readers."""
    found: list[_ChainStart] = []
    for value in dict.fromkeys(op.operands):
        if isinstance(value, mlir.ir.BlockArgument) or len(list(value.uses)) > 1:
            continue
        source = value.owner.operation
        if source.name == "rlx.constant" or is_view(source) or shape_of(value).dims != shape_of(op.results[0]).dims:
            continue
        if len(source.regions) or source.block != op.block:
            continue  # it is not a kernel, or another block runs it
        width = shape_of(value).dtype.itemsize
        if name_of(source) in ELEMENTWISE:
            behind = _source(source)
            found += [] if behind is None else [_ChainStart(behind.root, min(behind.narrowest, width))]
        elif name_of(source) not in MOVES | {"concat"}:
            found.append(_ChainStart(value, width))
    return found[-1] if found else None


@dataclass(frozen=True)
class _ChainStart:
    """The start of a chain of elementwise ops.

    Attributes:
        root: The result of the op with loops.
        narrowest: The element size in bytes of the narrowest value in the chain.
    """

    root: Any
    narrowest: int


def _readers(value: mlir.Value) -> Iterator[tuple[mlir.Operation, int]]:
    for use in value.uses:
        yield use.owner.operation, use.operand_number


def _key(op: mlir.Operation) -> Any:
    return op.results[0] if len(op.results) else None


def _is_plain(reader: mlir.Operation, operand: int) -> bool:
    """Whether an elementwise op reads this operand at the index of its result."""
    return name_of(reader) != "gather" or operand == 1


def _may_read(reader: mlir.Operation, operand: int, op: mlir.Operation) -> bool:
    """Whether an op may compute an operand in its own loop: this adds no work, or very little."""
    name, count = name_of(reader), prod(shape_of(op.results[0]).static)
    times = prod(shape_of(reader.results[0]).static)
    if name in ELEMENTWISE:
        return _is_plain(reader, operand) and times == count
    if name in MOVES:
        return operand == 0 and (times <= count or name_of(op) == "cast")
    if name == "pool":
        window = opview.attributes_of(reader)
        return all(s >= k for s, k in zip(window["stride"], window["kernel"], strict=True)) or name_of(op) == "cast"
    if name in ("matmul", "conv"):
        return name_of(op) in ("cast", "transpose")
    return name in _READ_ONCE
