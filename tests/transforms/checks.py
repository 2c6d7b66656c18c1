"""Checks of derivatives and batched graphs, for any function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.graph import Graph
from tests.transforms.cases import direction, floats, inner

Arrays = Mapping[str, np.ndarray]


def generator(*key: Any) -> np.random.Generator:
    """Return random numbers that depend only on the key."""
    from tests.conformance.values import generator as made

    return made("transforms", *key)


def tangents_of(values: Arrays, names: Sequence[str], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return a random tangent of each argument."""
    return {f"tangent_{name}": direction(values[name], rng) for name in names}


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _moved(values: Arrays, tangents: Arrays, step: float) -> Arrays:
    """Return values that are moved along their tangents."""
    names = [name.removeprefix("tangent_") for name in tangents]
    return {n: values[n] + (step * tangents[f"tangent_{n}"]).astype(values[n].dtype) for n in names}


def check_jvp(
    graph: Graph, values: Arrays, *, step: float = 1e-6, tolerance: float = 1e-6, forward: Graph | None = None
) -> None:
    """Check tangents against central differences of NumPy's outputs along a random direction.

    Args:
        graph: The graph.
        values: Its arguments.
        step: The step of the differences.
        tolerance: Relative to the largest number.
        forward: Its jvp, if already known.
    """
    names, rng = floats(graph), generator("jvp", str(graph))
    tangents = tangents_of(values, names, rng)
    moved = {sign: _moved(values, tangents, sign * step) for sign in (1, -1)}
    # The differences after rounding: of narrow floats they have another direction.
    tangents = {
        f"tangent_{n}": ((_wide(moved[1][n]) - _wide(moved[-1][n])) / (2 * step)).astype(values[n].dtype) for n in names
    }
    pushed: Graph = rlx.jvp(graph, names) if forward is None else forward
    given = [a.name for a in pushed.arguments[len(graph.arguments) :]]
    outputs = rlx.evaluate(pushed, {**values, **dict(zip(given, tangents.values(), strict=True))})
    primal = rlx.evaluate(graph, values)
    for got, expected in zip(outputs, primal, strict=False):
        # Ops differentiated by their decomposition are also computed by it, so rounding may differ from the
        # evaluator's.
        room = 64 * dtype(got.dtype).eps if dtype(got.dtype).is_inexact else 0.0
        size = np.abs(np.where(np.isfinite(expected), expected, 0)).max(initial=0).astype(np.float64)
        np.testing.assert_allclose(got, expected, rtol=room, atol=room * float(size), err_msg="the outputs of the jvp")

    moving = [i for i, o in enumerate(graph.outputs) if o.shape.dtype.is_inexact]
    ahead, behind = (
        [np.where(np.isfinite(r), r, 0) for r in rlx.evaluate(graph, {**values, **at})] for at in moved.values()
    )
    for got, i in zip(outputs[len(primal) :], moving, strict=True):
        expected = (_wide(ahead[i]) - _wide(behind[i])) / (2 * step)
        finite = np.isfinite(primal[i])
        got, expected = np.where(finite, got, 0), np.where(finite, expected, 0)
        size = 1 + float(np.abs(expected).max(initial=0)) + float(np.abs(primal[i][finite]).max(initial=0))
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * size, err_msg=f"tangent of {i}")


def check_vjp(graph: Graph, values: Arrays, *, tolerance: float = 1e-10, forward: Graph | None = None) -> None:
    """Check `<cotangent, jvp(tangent)> = <vjp(cotangent), tangent>`; `forward` is the jvp, if already known."""
    names, rng = floats(graph), generator("vjp", str(graph))
    tangents = tangents_of(values, names, rng)
    primal = rlx.evaluate(graph, values)
    outputs = [(o.name, v) for o, v in zip(graph.outputs, primal, strict=True) if o.shape.dtype.is_inexact]
    pushed: Graph = rlx.jvp(graph, names) if forward is None else forward
    backward = rlx.vjp(graph, names)
    given = [a.name for a in pushed.arguments[len(values) :]], [a.name for a in backward.arguments[len(values) :]]
    tangents = dict(zip(given[0], tangents.values(), strict=True))
    cotangents = {n: direction(v, rng) for n, (_, v) in zip(given[1], outputs, strict=True)}
    moved = rlx.evaluate(pushed, {**values, **tangents})[len(primal) :]
    pulled = rlx.evaluate(backward, {**values, **cotangents})[len(primal) :]
    finite = [np.isfinite(v) for _, v in outputs]
    pairs = [(c, np.where(f, m, 0)) for c, f, m in zip(cotangents.values(), finite, moved, strict=True)]
    pairs_back = list(zip(pulled, tangents.values(), strict=True))
    (left, size), (right, size_back) = (np.sum([inner(a, b) for a, b in p], axis=0) for p in (pairs, pairs_back))
    assert np.isfinite(left) and abs(left - right) <= tolerance * (1 + size + size_back), f"{left} is not {right}"


def check_second(graph: Graph, values: Arrays, *, step: float = 1e-6, tolerance: float = 1e-5) -> None:
    """Check the jvp of the vjp by central differences, and the vjp of the vjp as the adjoint of that."""
    pulled = rlx.vjp(graph, floats(graph))
    rng = generator("second", str(graph))
    cotangents = {
        a.name: direction(np.zeros(a.shape.static, a.shape.dtype.numpy), rng)
        for a in pulled.arguments
        if a.name not in values
    }
    forward, values = rlx.jvp(pulled, floats(pulled)), {**values, **cotangents}
    check_jvp(pulled, values, step=step, tolerance=tolerance, forward=forward)
    check_vjp(pulled, values, tolerance=max(tolerance * 1e-5, 1e-10), forward=forward)


def check_vmap(
    graph: Graph,
    values: Arrays,
    axes: Mapping[str, int],
    *,
    size: int = 3,
    out_axis: int = 0,
    tolerance: float = 1e-12,
    fresh: Mapping[str, Sequence[np.ndarray]] | None = None,
) -> None:
    """Check that a batched graph gives the graph's results for each entry of the batch.

    Args:
        graph: The graph.
        values: Its arguments.
        axes: The batch axes of arguments.
        size: The size of the batch.
        out_axis: The batch axis of outputs.
        tolerance: Relative to the largest number.
        fresh: Values of the entries, for arguments that are not valid in every permutation.
    """
    rng = generator("vmap", str(graph), sorted(axes.items()))
    rows: dict[str, list[np.ndarray]] = {}
    for name in axes:
        given = values[name]
        rows[name] = list(fresh[name]) if fresh and name in fresh else [_shuffled(given, rng) for _ in range(size)]
    batched = rlx.vmap(graph, dict(axes), size, out_axis)
    stacked = {name: np.stack(entries, axes[name]) for name, entries in rows.items()}
    got = rlx.evaluate(batched, {**values, **stacked})
    for i in range(size):
        expected = rlx.evaluate(graph, {**values, **{name: entries[i] for name, entries in rows.items()}})
        for whole, one in zip(got, expected, strict=True):
            part = np.take(whole, i, out_axis)
            assert part.dtype == one.dtype and part.shape == one.shape
            if one.dtype.kind in "iub":
                np.testing.assert_array_equal(part, one, err_msg=f"entry {i}")
            else:
                finite = np.abs(one[np.isfinite(one)].astype(np.complex128)).max(initial=0)
                np.testing.assert_allclose(
                    part, one, rtol=tolerance, atol=tolerance * float(finite), err_msg=f"entry {i}"
                )


def _shuffled(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the same numbers in another order, which the op also accepts."""
    return rng.permutation(array.reshape(-1)).reshape(array.shape)
