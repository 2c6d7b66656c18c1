"""`rlx-grad`: gradients of a scalar."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.passes.base import option
from rlx.support.errors import Error, PassError
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion
from rlx.transforms.base import DerivedGraph, Transform, arguments_of, hoist_invariants, names_of, outputs_of, place_of
from rlx.transforms.vjp import gradients_of, pulled_back

UNUSED = ("zero", "error")


@dataclass(frozen=True)
class Grad(Transform, name="rlx-grad"):
    """Compute the gradient of a scalar output, the loss, with respect to arguments.

    The outputs are `grad_<name>` for each argument. With `with-loss`, the loss comes before them, and the other outputs of
    the function after them.
    """

    wrt: tuple[str, ...] = option((), "the arguments to differentiate with respect to; all parameters when empty")
    with_loss: bool = option(False, "keep the outputs: the loss before the gradients, the others after them")
    loss: str | None = option(None, "the name of the output that is the loss; by default the first")
    unused: str = option("zero", "what to do with an argument on which the loss does not depend", choices=UNUSED)

    def apply(self, graph: Graph) -> Graph:
        graph = hoist_invariants(graph)
        index = self._loss(graph)
        derived = DerivedGraph.of(graph)
        wrt = [derived.arguments[a.name] for a in arguments_of(graph, self.wrt, self.name)]
        b = derived.graph
        with b.scratchpad():
            kind = graph.results[index].shape.dtype
            one = b.constant(kind.numpy.type(1))
            results, gradients = pulled_back(derived, wrt, {index: one})
            self._check_reached(graph, dict(zip([t.name for t in wrt], gradients, strict=True)))
            named = gradients_of(derived, wrt, gradients)
        if not self.with_loss:
            return derived.finish(named, results)
        name = graph.results[index].name
        outputs = outputs_of(graph, results)
        return derived.finish([(name, results[index]), *named, *((n, t) for n, t in outputs if n != name)], results)

    def _loss(self, graph: Graph) -> int:
        """Return the position of the loss among the results.

        Raises:
            PassError: There is none, or it is not a real scalar.
        """
        names = [o.name for o in graph.outputs]
        if not names:
            raise PassError(f"{self.name}: graph '{graph.name}' has no outputs")
        chosen = names[0] if self.loss is None else self.loss
        if not isinstance(chosen, str):
            raise PassError(f"{self.name}: loss must be the name of an output, got {short_repr(chosen)}")
        if chosen not in names:
            raise PassError(f"{self.name}: the graph has no output '{chosen}'{suggestion(chosen, names)}")
        index = next(i for i, o in enumerate(graph.results) if o.updates is None and o.name == chosen)
        shape = graph.results[index].shape
        if shape.rank or not shape.dtype.is_float:
            hint = "sum or average it, or use rlx.vjp, which takes its cotangent" if shape.dtype.is_float else None
            raise PassError(
                f"{self.name}: the loss '{chosen}' must be a scalar of floats, got {shape}",
                location=place_of(graph, index),
                hint=hint,
            )
        return index

    def _check_reached(self, graph: Graph, gradients: dict[str, Any]) -> None:
        if self.unused not in UNUSED:
            raise Error(f"unused must be one of {', '.join(UNUSED)}, got {short_repr(self.unused)}")
        unreached = [name for name, gradient in gradients.items() if gradient is None]
        if unreached and self.unused == "error":
            names = ", ".join(f"'{name}'" for name in unreached)
            raise PassError(
                f"{self.name}: {names} does not reach the loss of graph '{graph.name}', so its gradient is zero",
                hint='take it out of wrt, or pass unused="zero"',
            )


@with_call_errors
def grad(graph: Any, wrt: Any = (), *, loss: str | None = None, unused: str = "zero") -> Any:
    """Return a graph that computes the gradient of a scalar output with respect to arguments.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        wrt: Names of the arguments to differentiate with respect to; all parameters when empty.
        loss: The name of the output to differentiate; by default the first.
        unused: `"zero"`, or `"error"` if the loss must depend on all of these arguments.

    Returns:
        A graph with the same arguments and an output `grad_<name>`, shaped like the argument, for each name.

    Raises:
        Error: The loss is not a real scalar, an argument does not exist or is not floating-point, the loss does not
            depend on an argument, or an op has no rule.
    """
    return Grad(wrt=names_of(wrt, "wrt"), loss=loss, unused=unused)(graph)


@with_call_errors
def grad_with_loss(graph: Any, wrt: Any = (), *, loss: str | None = None, unused: str = "zero") -> Any:
    """Return a graph as `grad` does, with the loss before the gradients and the other outputs after them."""
    return Grad(wrt=names_of(wrt, "wrt"), with_loss=True, loss=loss, unused=unused)(graph)
