"""Arguments of a graph: checked declarations, and the values of parameters that the graph carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rlx.ir.calls import Answered
from rlx.ir.interface import Argument, conversion_hint
from rlx.ir.shape import Shape, ShapeLike
from rlx.ir.sharding import Mesh, check_sharding, sharding_of
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ShapeError

if TYPE_CHECKING:
    from rlx.ir.graph.graph import Graph


def parameter(argument: Argument, trainable: object) -> Argument:
    """Return a parameter with its `trainable` flag set."""
    if not isinstance(trainable, bool):
        raise Error(f"param '{argument.name}': trainable is True or False, not {trainable!r:.60}")
    return replace(argument, trainable=trainable)


def declared(
    kind: str, name: str, shape: ShapeLike, dtype: object, sharding: Any = None, mesh: Mesh | None = None
) -> Argument:
    """Return a new argument. Errors name the argument and the caller's line.

    Args:
        kind: `"input"`, `"param"` or `"state"`.
        name: Its name.
        shape: Sizes or symbol names.
        dtype: Element type; f32 when absent.
        sharding: How it is sharded over the devices of the mesh, if it is.
        mesh: The mesh of the graph.
    """
    try:
        given = Shape(shape, dtype)
        if sharding is None:
            return Argument(name, kind, given)
        spread = sharding_of(sharding, given.rank)
        check_sharding(spread, given, mesh)
        return Argument(name, kind, given, sharding=spread)
    except Error as problem:
        location = caller_place()
        raise problem.moved(f"{kind} '{name}': {problem.message}", location=location) from None


def fits(argument: Argument, value: Any) -> bool:
    """Whether an object with a shape and a dtype, such as an array, may be the value of an argument."""
    dims, sizes = argument.shape.dims, tuple(getattr(value, "shape", ()))
    if getattr(value, "dtype", None) != argument.shape.dtype.numpy or len(dims) != len(sizes):
        return False
    return all(type(d) is not int or d == size for d, size in zip(dims, sizes, strict=True))


def check_fits(argument: Argument, value: Any) -> None:
    """Check that a value `fits`.

    Raises:
        ShapeError: It does not fit; the error has the caller's line.
    """
    if fits(argument, value):
        return
    kind = getattr(value, "dtype", None)
    expected = argument.shape.dtype.numpy
    described = f"{type(value).__name__ if kind is None else kind}{list(getattr(value, 'shape', ()))}"
    raise ShapeError(
        f"param '{argument.name}' is {argument.shape}, its value {described}",
        location=caller_place(),
        hint=conversion_hint(value.dtype, expected) if hasattr(kind, "isnative") and kind != expected else None,
    )


class CarriesValues(Answered):
    """Mixin for the parameter values that a graph carries."""

    _weights: dict[str, Any]

    @property
    def weights(self) -> Mapping[str, Any]:
        """The values of parameters that came with the graph, by name. `rlx.evaluate` and `Session.compile` use them.

        Each is an array or a `Weight` of a file, as it was passed to the graph. `numpy.asarray` converts either to an
        array.
        """
        return MappingProxyType(self._weights)

    def take_weights(self: Any, source: Graph) -> None:
        """Copy parameter values from the graph that this one was derived from, where name and shape match."""
        values = source.weights
        self._weights |= {a.name: values[a.name] for a in self.params if a.name in values and fits(a, values[a.name])}
