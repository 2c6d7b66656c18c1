"""Rules for JAX primitives that correspond to an RLX op but have no StableHLO op."""

from __future__ import annotations

from typing import Any

from rlx.importers.closed_forms import integer_power
from rlx.importers.stablehlo.elementwise import method
from rlx.importers.table import ImportTable
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph

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
