"""Control flow: PyTorch operators that take graphs. The graphs become regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.importers.torch.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.errors import UnsupportedError


def _in_region(body: Any, values: Sequence[Any]) -> Any:
    """Return a function of the tensors among the values. The other values are sizes, which do not change."""

    def run(*tensors: Tensor) -> tuple[Any, ...]:
        given = iter(tensors)
        return tuple(body(*(next(given) if isinstance(v, Tensor) else v for v in values)))

    return run


@imports("cond")
def cond(
    g: Graph, condition: Tensor | None, then: Any, otherwise: Any, operands: Sequence[Any] = ()
) -> Sequence[Tensor]:
    if not isinstance(condition, Tensor):
        raise UnsupportedError(
            "whose condition is one of sizes cannot be imported", hint="fix the size, or give a tensor"
        )
    tensors = [v for v in operands if isinstance(v, Tensor)]
    condition = g.reshape(condition, ())
    made = g.if_(condition, _in_region(then, operands), _in_region(otherwise, operands), *tensors)
    return made if isinstance(made, (tuple, list)) else [made]


@imports("while_loop")
def while_loop(
    g: Graph, condition: Any, body: Any, carried: Sequence[Any], more: Sequence[Any] = ()
) -> Sequence[Tensor]:
    if any(not isinstance(v, Tensor) for v in carried):
        raise UnsupportedError("that carries numbers of Python's cannot be imported", hint="carry tensors of rank 0")
    made = g.while_(
        lambda *now: g.reshape(condition(*now, *more)[0], ()), lambda *now: tuple(body(*now, *more)), *carried
    )
    return made if isinstance(made, (tuple, list)) else [made]


@imports("scan")
def scan(
    g: Graph, combine: Any, init: Sequence[Tensor], xs: Sequence[Tensor], more: Sequence[Any] = ()
) -> Sequence[Tensor]:
    """Scan. The results are the carries, then the stacked outputs."""

    def body(carry: Sequence[Tensor], now: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        made = combine(*carry, *now, *more)
        return tuple(made[: len(init)]), tuple(made[len(init) :])

    last, stacked = g.scan(body, tuple(init), tuple(xs))
    return [*last, *stacked]


@imports("map_impl")
def map_(g: Graph, function: Any, xs: Sequence[Tensor], more: Sequence[Any] = ()) -> Sequence[Tensor]:
    _, stacked = g.scan(lambda carry, now: ((), tuple(function(*now, *more))), (), tuple(xs))
    return list(stacked)


@imports("wrap_with_set_grad_enabled")
def with_grad_enabled(g: Graph, enabled: bool, body: Any, *operands: Any) -> Sequence[Tensor]:
    """Run a graph. With gradients disabled, its results have no derivative."""
    made = body(*operands)
    return made if enabled else [g.stop_gradient(t) if t.dtype.is_inexact else t for t in made]
