"""Derivatives of a graph compared with JAX's of the same function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.graph import Graph
from tests.ops.references import in_jax, jitted
from tests.transforms.cases import direction

Arrays = Sequence[np.ndarray]
Formula = Callable[..., Any]
Dims = Sequence[Sequence[Any]] | None


def graph_of(build: Callable[..., Any], arrays: Arrays, dims: Dims = None) -> Graph:
    """Return a graph with the inputs `x0`, `x1`, … of a function of the graph and the inputs.

    Args:
        build: The function, which returns the result.
        arrays: Arrays like the inputs.
        dims: Sizes of the inputs, if some are symbols.
    """
    graph = Graph()
    sizes = dims or [a.shape for a in arrays]
    inputs = [graph.input(f"x{i}", d, dtype(a.dtype)) for i, (a, d) in enumerate(zip(arrays, sizes, strict=True))]
    graph.set_outputs([build(graph, *inputs)])
    return graph


def check(
    build: Callable[..., Any], formula: Formula, *arrays: np.ndarray, tolerance: float = 1e-12, dims: Dims = None
) -> None:
    """Check tangents and cotangents along random directions against JAX.

    Args:
        build: A function of a graph and its inputs.
        formula: The same function in JAX.
        arrays: The inputs. For f16 and bf16, JAX computes in f32. Integers have no tangents.
        tolerance: Relative to the largest number.
        dims: Sizes of the graph's inputs, if some are symbols.
    """
    _check(graph_of(build, arrays, dims), lambda *given: [formula(*given)], arrays, tolerance)


def check_second(build: Callable[..., Any], formula: Formula, *arrays: np.ndarray, tolerance: float = 1e-11) -> None:
    """Check the gradient in the same way, as a function of the inputs and a cotangent. Only for real inputs."""
    graph = graph_of(build, arrays)
    shape = graph.outputs[0].shape
    cotangent = np.random.default_rng(6).standard_normal(shape.static).astype(shape.dtype.numpy)

    def of_both(*given: Any) -> list[Any]:
        result, pull = jax.vjp(formula, *given[:-1])
        return [result, *pull(given[-1])]

    names = [a.name for a in graph.arguments]
    _check(rlx.vjp(graph, names), of_both, (*arrays, cotangent), tolerance)


def _check(graph: Graph, formula: Formula, arrays: Arrays, tolerance: float) -> None:
    rng = np.random.default_rng(5)
    moving = [i for i, argument in enumerate(graph.arguments) if argument.shape.dtype.is_inexact]
    tangents = [direction(arrays[i], rng) for i in moving]
    values = {a.name: array for a, array in zip(graph.arguments, arrays, strict=True)}
    cotangents = [direction(o, rng) for o in rlx.evaluate(graph, values)]
    got = _derivatives(graph, values, tangents, cotangents)
    given = [a.astype(np.float32) if a.dtype.itemsize == 2 else a for a in (*arrays, *tangents, *cotangents)]
    expected = _in_jax(formula, given, moving, len(arrays))
    for i, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        kind = np.complex128 if ours.dtype.kind == "c" else np.float64
        room = tolerance * float(np.abs(theirs).max(initial=0))
        count = len(cotangents)
        what = f"tangent of result {i}" if i < count else f"cotangent of x{moving[i - count]}"
        np.testing.assert_allclose(ours.astype(kind), theirs.astype(kind), rtol=tolerance, atol=room, err_msg=what)


def _derivatives(
    graph: Graph, values: Mapping[str, np.ndarray], tangents: Arrays, cotangents: Arrays
) -> list[np.ndarray]:
    """Return the tangents of the results of a graph, then the cotangents of its inputs."""
    names, found = [a.name for a in graph.arguments if a.shape.dtype.is_inexact], []
    for transformed, directions in ((rlx.jvp(graph, names), tangents), (rlx.vjp(graph, names), cotangents)):
        added = [a.name for a in transformed.arguments[len(values) :]]
        results = rlx.evaluate(transformed, {**values, **dict(zip(added, directions, strict=True))})
        found += results[len(graph.outputs) :]
    return found


def _in_jax(formula: Formula, given: Arrays, moving: Sequence[int], count: int) -> list[np.ndarray]:
    """Return the same from JAX, conjugated: its cotangents are for `Re(sum(a·b))`."""

    def both(*values: Any) -> Any:
        rest = iter(values[count:])
        tangents, cotangents = [next(rest) for _ in moving], list(rest)

        def of_moving(*own: Any) -> Any:
            arguments = list(values[:count])
            for i, value in zip(moving, own, strict=True):
                arguments[i] = value
            return formula(*arguments)

        primals = [values[i] for i in moving]
        pulled = jax.vjp(of_moving, *primals)[1]([c.conj() for c in cotangents])
        return [*jax.jvp(of_moving, primals, tangents)[1], *(p.conj() for p in pulled)]

    return list(in_jax(jitted(both), *given))
