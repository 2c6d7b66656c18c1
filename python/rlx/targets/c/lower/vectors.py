"""Test vectors of a program: inputs, and the outputs of the evaluator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.graph.evaluate import evaluate_function
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.location import describe
from rlx.ir.op import opview
from rlx.ir.shape import shape_of
from rlx.passes.checking.numerics import index_limit
from rlx.support.errors import CompileError, Error
from rlx.targets.c.lower.control import is_unbounded

# The number of vectors, and the bytes of inputs and outputs beyond which there is only one.
_COUNT, _MOST_BYTES = 3, 64 << 10
# The number of ops that a loop without a bound may evaluate: a vector for which it takes more is not used.
_MOST_OPS = 300_000
# The tolerance of floats, relative to the largest expected number. Sums of floats depend on their order.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class SelfTestVectors:
    """Consecutive calls of a program that starts with the first values of its states.

    Attributes:
        params: The parameters by name. They are random as well.
        inputs: The inputs of each call, in order.
        outputs: The expected outputs of each call, in order.
        exact: Whether outputs are equal bit for bit, because nothing is computed in floats.
    """

    params: dict[str, np.ndarray]
    inputs: list[list[np.ndarray]]
    outputs: list[list[np.ndarray]]
    exact: bool


def vectors_of(graph: Graph) -> SelfTestVectors:
    """Return test vectors for a program's graph. The same graph always has the same ones.

    The inputs of every second call alternate between the ends of their dtype. The others are random. Inputs for which a
    `while` without a bound takes very long are left out.

    Raises:
        Error: An evaluator fails.
        CompileError: A `while` without a bound takes very long for all of the inputs.
    """
    values = {a.name: v for a, v in zip(graph.arguments, graph.function.entry_block.arguments, strict=True)}
    of_kind = {kind: [a for a in graph.arguments if a.kind == kind] for kind in ("input", "param", "state")}
    params = {a.name: _drawn(a, values[a.name], number, False) for number, a in enumerate(of_kind["param"], 1000)}
    states = {a.name: a.initial_array() for a in of_kind["state"]}
    shapes = [*(a.shape for a in of_kind["input"]), *(o.shape for o in graph.results if o.updates is None)]
    count = _COUNT if _COUNT * sum(int(s.size_bytes) for s in shapes) <= _MOST_BYTES else 1  # type: ignore[arg-type]
    inputs, outputs = list[list[np.ndarray]](), list[list[np.ndarray]]()
    for call in range(count):
        given = {
            a.name: _drawn(a, values[a.name], 10 * call + n, call % 2 == 1) for n, a in enumerate(of_kind["input"])
        }
        known = {**params, **states, **given}
        results = _evaluated(graph, [known[a.name] for a in graph.arguments])
        if results is None:
            continue
        inputs.append(list(given.values()))
        outputs.append([r for r, o in zip(results, graph.results, strict=True) if o.updates is None])
        states |= {o.updates: r for r, o in zip(results, graph.results, strict=True) if o.updates is not None}
    if not inputs:
        raise CompileError(
            f"no test vector of '{graph.name}' comes to an end: its while loop, without a bound, takes more than "
            f"{_MOST_OPS} ops for each of them",
            hint="give the loop max_iterations",
        )
    return SelfTestVectors(params, inputs, outputs, _is_exact(graph))


def _evaluated(graph: Graph, arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """Return the results of a graph; None if a `while` without a bound takes very long."""
    ops = opview.operations(graph.function.entry_block)
    if not any(is_unbounded(op) for op in ops):
        return evaluate_function(graph.function, arrays, {})
    count = 0

    def limit(op: mlir.Operation, _: object, results: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        nonlocal count
        count += 1
        if count > _MOST_OPS:
            raise Error(f"more than {_MOST_OPS} ops", location=describe(op.location))
        return results

    try:
        return evaluate_function(graph.function, arrays, {}, limit)
    except Error:
        if count > _MOST_OPS:
            return None
        raise


def _is_exact(graph: Graph) -> bool:
    ops = opview.operations(graph.function.entry_block)
    values = [v for op in ops for v in (*op.operands, *op.results)]
    return not any(shape_of(v).dtype.is_inexact for v in values)


def _drawn(argument: Argument, value: mlir.Value, seed: int, ends: bool) -> np.ndarray:
    """Return an array for an argument. It depends only on the arguments, not on the version of NumPy."""
    shape, dtype = argument.shape.static, argument.shape.dtype
    raw: Any = np.random.PCG64(seed).random_raw(int(np.prod(shape))) >> np.uint64(32)
    if ends:
        raw = np.where(np.arange(raw.size) % 2 == 0, 0, 2**32 - 1).astype(np.uint64)
    if not dtype.is_integer and not dtype.is_bool:
        return (raw / 2.0**30 - 2.0).astype(dtype.numpy).reshape(shape)
    if dtype.is_bool:
        return (raw & 1).astype(bool).reshape(shape)
    limit = index_limit(value, {})
    low, high = (0, limit - 1) if limit is not None else (int(dtype.min), int(dtype.max))
    numbers = [low + int(r) * (high - low + 1) // 2**32 for r in raw]
    return np.array(numbers, dtype.numpy).reshape(shape)
