"""Arrays of edge values, and graphs that run on XLA and in the evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import rlx
from rlx.ir.dtype import DType
from rlx.targets.compilation import Compilation
from rlx.targets.registry import target_of
from rlx.targets.xla import backend, client


def edges(kind: DType, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Numbers of a dtype with ties and its edges: limits, both zeros, infinities, NaN of both signs, subnormals."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if kind.is_bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if kind.is_integer:
        low, high = int(kind.min), int(kind.max)
        values = rng.integers(low, high, count, kind.numpy if kind.bits >= 8 else np.int64, endpoint=True)
        special: list[Any] = [low, high, low, high, max(low, -1), 0, 1]
    else:
        values = rng.standard_normal(count)
        least = 2.0 ** (-130 if kind.bits >= 16 else -4)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, least, -least, least / 2, 1.0, -1.0, 1.0]
    with np.errstate(all="ignore"):
        array = values.astype(kind.numpy)
        chosen = rng.permutation(count)[: count // 2]
        array[chosen] = np.resize(np.array(special), chosen.size).astype(kind.numpy)
    return array.reshape(shape)


def on_xla(
    build: Callable[..., Mapping[str, rlx.Tensor]], arrays: Mapping[str, np.ndarray], *, every_form: bool = False
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return names, results of XLA and results of the evaluator, for a graph of inputs like the arrays.

    Args:
        build: The outputs by name, of a graph and its inputs.
        arrays: The inputs by name.
        every_form: Also return the results of the forms that artifacts for other readers have.
    """
    g = rlx.Graph("edges")
    outputs = build(g, *[g.input(name, array.shape, array.dtype) for name, array in arrays.items()])
    g.set_outputs(dict(outputs))
    expected = rlx.evaluate(g, arrays)
    results = rlx.Session("xla").compile(g, cache=False).run(dict(arrays))
    found = list(zip(outputs, results, expected, strict=True))
    if every_form:
        executable = client.XlaExecutable(backend.portable(Compilation(g, target_of("stablehlo"))))
        others = [client.to_host(result) for result in executable(client.to_device(list(arrays.values())))]
        found += zip([f"{name}, for every reader" for name in outputs], others, expected, strict=True)
    return found


def assert_same_bits(result: np.ndarray, expected: np.ndarray, name: str) -> None:
    """Check that two arrays have the same type and bits."""
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape), name
    words = f"u{result.dtype.itemsize}"
    np.testing.assert_array_equal(result.view(words), expected.view(words), err_msg=name)
