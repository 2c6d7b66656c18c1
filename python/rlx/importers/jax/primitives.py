"""Rules for JAX primitives that correspond to an RLX op but have no StableHLO op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.importers.closed_forms import integer_power
from rlx.importers.stablehlo.elementwise import method
from rlx.importers.table import ImportTable
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.errors import UnsupportedError

# The rules take the graph, tensors, and the primitive parameters that they need by keyword.
primitives = ImportTable("JAX")


def accepts(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a primitive that its rule accepts."""
    return {n: v for n, v in params.items() if n in primitives.rules[name].attributes}


@primitives("stop_gradient")
def stop_gradient(g: Graph, x: Tensor) -> Tensor:
    return g.stop_gradient(x) if x.dtype.is_inexact else x


primitives("logistic")(method("sigmoid"))
# JAX writes erf as a CHLO op. It cannot export this op for floats of 8 bits or fewer.
primitives("erf")(method("erf"))


@primitives("integer_pow")
def integer_pow(g: Graph, x: Tensor, *, y: int) -> Tensor:
    return integer_power(g, x, y)


# JAX exports elementary functions of complex numbers as selects between cases, for example whether a part is 0. At a
# point, the selected case has the value of the function, but not its derivative. Functions of real numbers need no rule
# here.
_ELEMENTARY = "exp exp2 log log1p expm1 sqrt rsqrt square sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh"
OF_COMPLEX = frozenset(_ELEMENTARY.split())
for _name in sorted(OF_COMPLEX):
    primitives(_name)(method(_name))


@primitives("cholesky")
def cholesky(g: Graph, a: Tensor) -> Tensor:
    """Return the factor in one triangle, with the other triangle unchanged. All elements are NaN if there is no factor."""
    factor = g.cholesky(a)
    last = factor[..., -1:, -1:] if a.shape.dims[-1] != 0 else factor
    row, column = (g.iota(a.shape.dims[-2:], axis=axis, dtype="i32") for axis in (0, 1))
    return g.where(last == last, g.where(column <= row, factor, a), float("nan")) if a.shape.num_elements else a


@primitives("eigh")
def eigh(g: Graph, a: Tensor, *, lower: bool, subset_by_index: Any = None, algorithm: Any = None) -> Sequence[Tensor]:
    if subset_by_index is not None and tuple(subset_by_index) != (0, a.shape.dims[-1]):
        raise UnsupportedError("of a part of the eigenvalues cannot be imported")
    values, vectors = g.eigh(a if lower else g.swapaxes(a, -1, -2))
    return vectors, values


@primitives("svd")
def svd(
    g: Graph, a: Tensor, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any = None, algorithm: Any = None
) -> Sequence[Tensor]:
    if subset_by_index is not None and tuple(subset_by_index) != (0, min(a.shape.static[-2:])):
        raise UnsupportedError("of a part of the singular values cannot be imported")
    if not compute_uv:
        return [g.svdvals(a)]
    u, s, vt = g.svd(a, full_matrices=full_matrices)
    return s, u, vt


@primitives("qr")
def qr(g: Graph, a: Tensor, *, full_matrices: bool, pivoting: bool = False) -> Sequence[Tensor]:
    if pivoting:
        raise UnsupportedError("with pivoting cannot be imported")
    return g.qr(a, full_matrices=full_matrices)


@primitives("lu")
def lu(g: Graph, a: Tensor) -> Sequence[Tensor]:
    return g.lu(a)


@primitives("householder_product")
def householder_product(g: Graph, a: Tensor, factors: Tensor) -> Tensor:
    return g.householder_product(a, factors)
