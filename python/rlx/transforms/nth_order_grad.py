"""`rlx-nth-order-grad`: the nth derivative with respect to a scalar."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.passes.base import option
from rlx.support.errors import PassError
from rlx.transforms.base import Transform, arguments_of, clean_up, names_of, with_outputs
from rlx.transforms.grad import Grad


@dataclass(frozen=True)
class NthOrderGrad(Transform, name="rlx-nth-order-grad"):
    """Compute the nth derivative of a scalar output with respect to a scalar argument: `grad`, applied n times."""

    wrt: tuple[str, ...] = option((), "the argument, a scalar; when empty, the only parameter")
    order: int = option(2, "the order of the derivative; 0 gives the output itself", least=0)
    loss: str | None = option(None, "the name of the output to differentiate; by default the first")

    def apply(self, graph: Graph) -> Graph:
        name = one_argument(graph, self.wrt, self.order, self.name)
        argument = next(a for a in graph.arguments if a.name == name)
        if argument.shape.rank or not argument.shape.dtype.is_float:
            raise PassError(
                f"{self.name}: '{name}' must be a scalar of floats, got {argument.shape}",
                hint="rlx.directional_nth_grad takes directions, rlx.hessian gives all second derivatives",
            )
        gradient = Grad(wrt=(name,), loss=self.loss, with_loss=True).apply(graph)
        if self.order == 0:
            return with_outputs(gradient, {gradient.outputs[0].name: 0})
        gradient = with_outputs(gradient, {f"grad_{name}": 1})
        for _ in range(self.order - 1):
            gradient = Grad(wrt=(name,)).apply(clean_up(gradient))
        return with_outputs(gradient, {f"grad{self.order}_{name}": 0})


GREATEST_ORDER = 32


def one_argument(graph: Graph, wrt: tuple[str, ...], order: int, what: str) -> str:
    """Return the name of the argument to differentiate with respect to.

    Raises:
        PassError: There is not exactly one argument, or the order is negative or too large.
    """
    arguments = arguments_of(graph, wrt, what)
    if len(arguments) != 1:
        raise PassError(f"{what}: expected one argument, got {', '.join(a.name for a in arguments)}")
    if isinstance(order, bool) or not isinstance(order, int) or order < 0:
        raise PassError(f"{what}: order must be a whole number that is not negative, got {order!r}")
    if order > GREATEST_ORDER:
        raise PassError(
            f"{what}: order must be at most {GREATEST_ORDER}, got {order}: each one doubles the graph or worse"
        )
    return arguments[0].name


@with_call_errors
def nth_order_grad(graph: Any, wrt: Any, order: int, *, loss: str | None = None) -> Any:
    """Return a graph that computes the nth derivative of a scalar output with respect to a scalar argument.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        wrt: The name of the argument (or a list with this name).
        order: The order of the derivative.
        loss: The name of the output to differentiate; by default the first.

    Returns:
        A graph with the same arguments and one output, `grad<order>_<name>`; for order 0, the output itself.

    Raises:
        Error: The output or the argument is not a real scalar, the order is negative, or an op has no rule.
    """
    return NthOrderGrad(wrt=names_of(wrt, "wrt"), order=order, loss=loss)(graph)
