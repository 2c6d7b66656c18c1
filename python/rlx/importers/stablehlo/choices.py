"""`select` between branches of elementwise ops, as a function that is differentiated only in the chosen branch."""

from __future__ import annotations

from collections.abc import Sequence

from rlx import mlir
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview
from rlx.ir.shape import shape_of

_MOST_OPS = 256
_MOST_LEAVES, _DEEPEST = 2, 6  # erfc and functions of it are nested up to six levels
_COEFFICIENT = 0.676795274409476084995  # of exp(-|x|)·I0(x), in a series of Chebyshev polynomials
# Ops whose derivative is always finite: zero times the derivative is zero.
_TAME = ("add", "sub", "mul", "max", "min")
_TAME_KINDS = ("neg", "abs", "sign", "floor", "ceil", "round", "sin", "cos", "tanh", "erf", "relu", "sigmoid", "atan")


def chosen(g: Graph, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """`where(condition, x, y)`, with the ops of both branches as a function.

    In reverse mode, the branch that is not chosen has cotangent zero. Its derivatives are multiplied by that zero, and
    the product is NaN if a derivative is infinite. A function of elementwise ops is differentiated in forward mode,
    which does not compute this product.
    """
    result = g.where(condition, x, y)
    if not result.dtype.is_float:
        return result
    branches = _ElementwiseOps(result.value)
    leaves = branches.leaves()
    return result if leaves is None else branches.as_function(g, leaves)


def dominators(value: mlir.Value) -> list[mlir.Value]:
    """Return the dominators of a value: all paths of elementwise ops to it lead through them. The closest comes first."""
    return _ElementwiseOps(value).dominators() if isinstance(value, mlir.ir.OpResult) else []


class _ElementwiseOps:
    """The elementwise ops of real numbers that compute a value.

    Attributes:
        order: Their results, operands first.
    """

    def __init__(self, root: mlir.Value):
        self._root, self._dims = root, shape_of(root).dims
        self._block = root.owner.operation.block
        self.order: list[mlir.Value] = []
        self._outer: dict[mlir.Value, None] = {}  # values of real numbers that these ops read
        self._is_whole = self._collect(root)

    def _collect(self, root: mlir.Value) -> bool:
        """Fill `order`. Return whether it is complete."""
        seen: set[mlir.Value] = set()
        stack = [(root, False)]
        while stack:
            value, is_done = stack.pop()
            if is_done:
                self.order.append(value)
                continue
            if value in seen:
                continue
            seen.add(value)
            if is_inert(value):
                continue
            if not self._is_inside(value):
                self._outer[value] = None
                continue
            if len(seen) > _MOST_OPS:
                return False
            stack.append((value, True))
            stack.extend((v, False) for v in self._operands(value))
        return True

    def _is_inside(self, value: mlir.Value) -> bool:
        if not isinstance(value, mlir.ir.OpResult) or shape_of(value).dims != self._dims:
            return False
        op = value.owner.operation
        is_function = op.name == "rlx.custom_fn" and _depth(op) < _DEEPEST
        is_single = op.block == self._block and len(op.results) == 1
        return is_single and (is_function or opview.has_trait(op, "elementwise"))

    def _operands(self, value: mlir.Value) -> list[mlir.Value]:
        """Return the differentiable operands of the op that defines a value."""
        return [v for v in value.owner.operation.operands if shape_of(v).dtype.is_inexact]

    def leaves(self) -> Sequence[mlir.Value] | None:
        """Return the values that the ops are a function of; None if no function is needed, or it has too many leaves."""
        if not self._is_whole or any(shape_of(v).dtype.is_complex for v in (*self.order, *self._outer)):
            return None
        found = self.dominators()
        # Stop at |x|: functions of |x| must remain recognisable.
        sizes = [v for v in found if is_absolute(v)]
        single = sizes[-1] if sizes else next(reversed(found), None)
        if single is not None:
            self._cut(single)
        leaves = [single] if single is not None else list(self._outer)
        fits = 0 < len(leaves) <= _MOST_LEAVES and all(shape_of(v).dims == self._dims for v in leaves)
        return leaves if fits and any(map(_may_overflow, self.order)) else None

    def dominators(self) -> list[mlir.Value]:
        """Return the values that all paths to the root lead through, from the last to the first."""
        parents: dict[mlir.Value, mlir.Value | None] = dict.fromkeys(self._outer)
        depths = dict.fromkeys(self._outer, 0)
        for value in self.order:
            found = [v for v in self._operands(value) if v in parents]
            common: mlir.Value | None = found[0] if found else None
            for other in found[1:]:
                common = _meeting(common, other, parents, depths)
            if found:
                parents[value] = common
                depths[value] = 0 if common is None else depths[common] + 1
        result: list[mlir.Value] = []
        dominator = parents.get(self._root)
        while dominator is not None:
            result.append(dominator)
            dominator = parents[dominator]
        return result

    def _cut(self, leaf: mlir.Value) -> None:
        """Keep only the ops after a value."""
        inside, kept = set(self.order), set[mlir.Value]()
        stack = [self._root]
        while stack:
            value = stack.pop()
            if value not in kept and value != leaf and value in inside:
                kept.add(value)
                stack.extend(self._operands(value))
        self.order = [v for v in self.order if v in kept]

    def as_function(self, g: Graph, leaves: Sequence[mlir.Value]) -> Tensor:
        """The value as a function of others, as which it is differentiated."""
        inside = set(self.order)
        read = dict.fromkeys(v for value in self.order for v in value.owner.operation.operands)
        others = [v for v in read if v not in inside and v not in leaves and not _is_constant(v)]

        def body(*tensors: Tensor) -> Tensor:
            b = tensors[0].builder
            values: dict[mlir.Value, mlir.Value] = {
                v: t.value for v, t in zip([*leaves, *others], tensors, strict=True)
            }
            for value in self.order:
                for operand in value.owner.operation.operands:
                    if operand not in values:
                        values[operand] = operand.owner.operation.clone(b.insertion_point).results[0]
                new = value.owner.operation.clone(b.insertion_point)
                for i, operand in enumerate(value.owner.operation.operands):
                    new.operands[i] = values[operand]
                values[value] = new.results[0]
            return b.tensor(values[self._root])

        arguments = [g.tensor(v) for v in (*leaves, *others)]
        if is_absolute(leaves[0]) and self._is_bessel():  # smooth, unlike other functions of |x|
            arguments[0] = g.abs(g.tensor(leaves[0].owner.operation.operands[0]))
        return g.custom_fn(body, *arguments)

    def _is_bessel(self) -> bool:
        """Return whether the ops compute the Bessel function `exp(-|x|)·I0(x)`."""
        read = [v for value in self.order for v in value.owner.operation.operands]
        numbers = [number_of(v) for v in read if is_inert(v)]
        return any(n is not None and abs(n - _COEFFICIENT) < 1e-7 for n in numbers)


def _depth(function: mlir.Operation) -> int:
    """Return the nesting depth of functions."""
    inner = (view.operation for view in function.regions[0].blocks[0].operations)
    return 1 + max((_depth(op) for op in inner if op.name == "rlx.custom_fn"), default=0)


def _meeting(
    a: mlir.Value | None,
    b: mlir.Value | None,
    parents: dict[mlir.Value, mlir.Value | None],
    depths: dict[mlir.Value, int],
) -> mlir.Value | None:
    """Return the last common dominator of two values."""
    while a is not None and b is not None and a != b:
        if depths[a] >= depths[b]:
            a = parents[a]
        else:
            b = parents[b]
    return None if b is None else a


def _is_constant(value: mlir.Value) -> bool:
    return isinstance(value, mlir.ir.OpResult) and value.owner.operation.name == "rlx.constant"


def is_absolute(value: mlir.Value) -> bool:
    """Return whether a value is the result of `closed_forms.absolute`."""
    if not isinstance(value, mlir.ir.OpResult) or value.owner.operation.name != "rlx.custom_fn":
        return False
    inner, *rest = (view.operation for view in value.owner.operation.regions[0].blocks[0].operations)
    is_activation = inner.name == "rlx.activation" and len(rest) == 1
    return is_activation and opview.attributes_of(inner)["kind"] == "abs"


def is_inert(value: mlir.Value) -> bool:
    """Return whether a value is a constant, or a reshaped or broadcast constant."""
    while isinstance(value, mlir.ir.OpResult) and value.owner.operation.name in ("rlx.expand", "rlx.reshape"):
        value = value.owner.operation.operands[0]
    return _is_constant(value)


def erase_unread(block: mlir.Block) -> None:
    """Erase the unused elementwise ops of a block and of its inner blocks. Functions have taken in copies of them."""
    for op in reversed([view.operation for view in block.operations]):
        for region in op.regions:
            for inner in region.blocks:
                erase_unread(inner)
        is_pure = op.name in ("rlx.custom_fn", "rlx.constant", "rlx.expand") or opview.has_trait(op, "elementwise")
        if is_pure and not any(map(opview.is_used, op.results)):
            op.erase()


def _may_overflow(value: mlir.Value) -> bool:
    """Return whether the derivative of the op that defines a value can be infinite."""
    op = value.owner.operation
    if op.name == "rlx.binary":
        kind = opview.attributes_of(op)["kind"]
        return kind not in _TAME and not (kind == "div" and is_inert(op.operands[1]))
    if op.name == "rlx.activation":
        return opview.attributes_of(op)["kind"] not in _TAME_KINDS
    return op.name == "rlx.custom_fn"


def number_of(value: mlir.Value) -> float | None:
    """Return the value of a uniform constant; None for another value."""
    while isinstance(value, mlir.ir.OpResult) and value.owner.operation.name in ("rlx.expand", "rlx.reshape"):
        value = value.owner.operation.operands[0]
    if not _is_constant(value) or not shape_of(value).dtype.is_float:
        return None
    array = opview.attributes_of(value.owner.operation)["value"]
    return float(array.flat[0]) if array.size and (array == array.flat[0]).all() else None
