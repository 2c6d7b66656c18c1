"""Control flow: branches and loops. A loop with a known number of steps becomes a scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx import mlir
from rlx.importers.stablehlo.rules import imports
from rlx.importers.stablehlo.values import defining_op, direction_of, ending, scalar_of
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.attributes import elements_from_mlir

# The comparisons of an increasing counter, and the correction of the number of steps.
_UPWARDS = {"LT": 0, "LE": 1}


@imports("if")
def if_(g: Graph, condition: Tensor, *, regions: Sequence[Any]) -> list[Tensor]:
    return _chosen(g, condition, regions[0], regions[1])


@imports("case")
def case(g: Graph, index: Tensor, *, regions: Sequence[Any]) -> list[Tensor]:
    """Import `case`. An index out of range selects the last branch."""

    def chosen(first: int, rest: Sequence[Any]) -> list[Tensor]:
        if len(rest) == 1:
            return rest[0]()
        return _chosen(g, g.eq(index, first), rest[0], lambda: chosen(first + 1, rest[1:]))

    return chosen(0, regions)


def _chosen(
    g: Graph, condition: Tensor, then: Callable[[], list[Tensor]], els: Callable[[], list[Tensor]]
) -> list[Tensor]:
    results = g.if_(condition, lambda: tuple(then()), lambda: tuple(els()))
    return [results] if isinstance(results, Tensor) else list(results)


@imports("while")
def while_(g: Graph, *carries: Tensor, regions: Sequence[Any]) -> list[Tensor]:
    """A scan if a counter decides how often, which has derivatives in reverse mode as well.

    In modules from JAX, regions do not read outside values: a loop carries all values that it reads. Loop-invariant
    carries are converted back to outside reads here, because derivatives store the carries of every step.
    """
    condition, body = regions
    changed = [n for n, (a, v) in enumerate(zip(body.block.arguments, ending(body.block), strict=True)) if a != v]
    if not changed:
        return list(carries)

    def filled(values: Sequence[Tensor]) -> list[Tensor]:
        new = dict(zip(changed, values, strict=True))
        return [new.get(n, c) for n, c in enumerate(carries)]

    def step(*values: Tensor) -> tuple[Tensor, ...]:
        following = body(*filled(values))
        return tuple(following[n] for n in changed)

    initial = tuple(carries[n] for n in changed)
    steps = _steps(carries, condition, body)
    if steps is not None:
        return filled(g.scan(lambda c, _: (step(*c), ()), initial, None, length=steps)[0])
    results = g.while_(lambda *c: condition(*filled(c))[0], step, *initial)
    return filled([results] if isinstance(results, Tensor) else results)


def _steps(carries: Sequence[Tensor], condition: Any, body: Any) -> int | None:
    """Return the number of steps of a loop with the condition `counter < limit` and a constant step; None for others."""
    arguments = list(condition.block.arguments)
    compare = defining_op(ending(condition.block)[0], "stablehlo.compare")
    if compare is None or len(list(condition.block.operations)) > 3:
        return None
    counter, limit = compare.operands
    direction = direction_of(compare)
    if direction not in _UPWARDS or counter not in arguments:
        return None
    place = arguments.index(counter)
    last = _integer(limit, condition, carries, body)
    first = scalar_of(carries[place])
    step = _step(place, body, carries)
    if last is None or step is None or not isinstance(first, int) or isinstance(first, bool):
        return None
    steps = max(0, -(-(last + _UPWARDS[direction] - first) // step))
    lowest, highest = _bounds(counter)
    # If the counter wraps around, the loop continues, possibly forever.
    return steps if lowest <= first and first + steps * step <= highest else None


def _bounds(value: mlir.Value) -> tuple[int, int]:
    """Return the smallest and the largest value of a scalar's type."""
    kind = mlir.ir.IntegerType(mlir.ir.RankedTensorType(value.type).element_type)
    return (0, 2**kind.width - 1) if kind.is_unsigned else (-(2 ** (kind.width - 1)), 2 ** (kind.width - 1) - 1)


def _step(place: int, body: Any, carries: Sequence[Tensor]) -> int | None:
    """Return the number that a loop adds to a carry in each step; None if it is not constant."""
    arguments, following = list(body.block.arguments), ending(body.block)
    add = defining_op(following[place], "stablehlo.add")
    if add is None:
        return None
    counter, amount = add.operands
    if counter != arguments[place]:
        counter, amount = amount, counter
    if counter != arguments[place]:
        return None
    step = _integer(amount, body, carries, body)
    return step if step is not None and step > 0 else None


def _integer(value: mlir.Value, region: Any, carries: Sequence[Tensor], body: Any) -> int | None:
    """Return an integer that is constant in a region, comes from outside, or is carried unchanged; None for others."""
    constant = defining_op(value, "stablehlo.constant")
    if constant is not None:
        number = elements_from_mlir(constant.attributes["value"]).reshape(-1)[0].item()
        return number if isinstance(number, int) else None
    arguments = list(region.block.arguments)
    if value in arguments:
        place = arguments.index(value)
        if ending(body.block)[place] != list(body.block.arguments)[place]:
            return None
        outside: Tensor | None = carries[place]
    else:
        outside = region.outside(value)
    number = None if outside is None else scalar_of(outside)
    return number if isinstance(number, int) and not isinstance(number, bool) else None
