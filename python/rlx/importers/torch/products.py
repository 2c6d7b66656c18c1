"""Matrix products, and functions computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.importers.torch.rules import Number, Results, as_tensor, as_tensors, aten, imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError


def _product(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    """Return the product as in NumPy and PyTorch: a vector is a row on the left and a column on the right."""
    rows = g.expand_dims(x, 0) if x.rank == 1 else x
    columns = g.expand_dims(y, 1) if y.rank == 1 else y
    made = g.matmul(rows, columns)
    gone = [axis for axis, t in ((made.rank - 2, x), (made.rank - 1, y)) if t.rank == 1]
    return g.squeeze(made, gone) if gone else made


@aten("matmul", "mm", "bmm", "mv", "dot", "linalg_matmul")
def matmul(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    return _product(g, x, y)


@aten("bmm.dtype", "mm.dtype")
def matmul_of_dtype(g: Graph, x: Tensor, y: Tensor, dtype: object, *, results: Results) -> Tensor:
    return _product(g, *as_tensors(g, results[0].dtype, x, y))


@dataclass(frozen=True)
class GroupedOperands(ArgumentGroup):
    """Rows, the matrix of each group, and the end of each group of rows."""

    x: Tensor
    w: Tensor
    ends: Tensor


@imports("transformers.grouped_mm_fallback", "aten._grouped_mm")
def grouped_matmul(
    g: Graph, operands: GroupedOperands, bias: Tensor | None = None, dtype: object = None, *, results: Results
) -> Tensor:
    """Multiply rows `[S, K]` by the matrices `[E, K, N]` of their groups. `ends` are the ends of the groups.

    Rows after the last group give 0. Each row is multiplied by all matrices, and one product is selected, because the
    group of a row depends on values.
    """
    x, w, ends = operands.x, operands.w, operands.ends
    if (x.rank, w.rank) != (2, 3) or bias is not None:
        raise UnsupportedError(
            f"of {x.shape} and {w.shape} cannot be imported", hint="rows [S, K] and groups [E, K, N]"
        )
    every = g.matmul(g.expand_dims(x, 0), w)
    group = g.searchsorted(ends, g.iota((x.shape.dims[0],), 0, ends.dtype), side="right")
    own = g.eq(g.iota(every.shape.dims[:2], 0, group.dtype), g.expand_dims(group, 0))
    return g.cast(g.sum(g.where(g.expand_dims(own, -1), every, 0.0), 0), results[0].dtype)


@aten("vdot")
def vdot(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    return g.vdot(x, y)


@aten("linear")
def linear(g: Graph, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    made = _product(g, x, g.transpose(w) if w.rank == 2 else w)
    return made if bias is None else g.add(made, bias)


@dataclass(frozen=True, kw_only=True)
class SumFactors(ArgumentGroup):
    """The factors of a tensor and of the product that is added to it."""

    beta: Number = 1
    alpha: Number = 1

    def sum(self, g: Graph, x: Tensor, product: Tensor) -> Tensor:
        """`beta·x + alpha·product`; with a beta of 0, x is not read."""
        product = product if self.alpha == 1 else g.mul(product, as_tensor(g, self.alpha, product.dtype))
        if self.beta == 0:
            return product
        return g.add(x if self.beta == 1 else g.mul(x, as_tensor(g, self.beta, x.dtype)), product)


@aten("addmm", "addmv", "baddbmm")
def addmm(g: Graph, x: Tensor, a: Tensor, b: Tensor, *, factors: SumFactors) -> Tensor:
    return factors.sum(g, x, _product(g, a, b))


@aten("_addmm_activation")
def addmm_activation(
    g: Graph, x: Tensor, a: Tensor, b: Tensor, *, factors: SumFactors, use_gelu: bool = False
) -> Tensor:
    made = addmm(g, x, a, b, factors=factors)
    return g.gelu_approx(made) if use_gelu else g.relu(made)


@aten("addbmm")
def addbmm(g: Graph, x: Tensor, a: Tensor, b: Tensor, *, factors: SumFactors) -> Tensor:
    return factors.sum(g, x, g.sum(g.matmul(a, b), [0]))


@aten("addr")
def addr(g: Graph, x: Tensor, a: Tensor, b: Tensor, *, factors: SumFactors) -> Tensor:
    return factors.sum(g, x, g.outer(a, b))


@aten("outer", "ger")
def outer(g: Graph, x: Tensor, y: Tensor, *, results: Results) -> Tensor:
    return g.outer(*as_tensors(g, results[0].dtype, x, y))


@aten("einsum")
def einsum(g: Graph, equation: str, xs: Sequence[Tensor], *, path: object = None) -> Tensor:
    return g.einsum(equation, *xs)


@aten("bilinear")
def bilinear(g: Graph, x: Tensor, y: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    made = g.einsum("...i,oij,...j->...o", x, w, y)
    return made if bias is None else g.add(made, bias)


@aten("linalg_cross")
def cross(g: Graph, x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    return g.cross(x, y, axis=dim)


@aten("linalg_vecdot")
def vecdot(g: Graph, x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    return g.vecdot(x, y, axis=dim)


@aten("_cdist_forward", "cdist")
def cdist(g: Graph, x: Tensor, y: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Return distances of all pairs of rows, from their differences. This is the most accurate of PyTorch's modes."""
    apart = g.sub(g.expand_dims(x, -2), g.expand_dims(y, -3))
    return g.norm(apart, float(p), apart.rank - 1)
