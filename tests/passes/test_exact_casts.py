"""Casts and reductions of single elements, bit for bit: the evaluator, `rlx-simplify`, and the CPU at several levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES, DType
from tests.drawing import drawn, shares

NAMES = [d.name for d in DTYPES]
RANDOM = np.random.default_rng(12)


def digits_near(limit: int) -> set[int]:
    """Return integers where rounding to 8, 11, 24 or 53 digits changes, once and twice, and the limits of integer dtypes."""
    numbers = {0, 1, 2, 3, 100}
    for top in range(6, 65):
        for digits in (8, 11, 24, 53):
            half, last = 1 << max(top - digits - 1, 0), 1 << max(top - digits, 0)
            for n in ((1 << top) + half, (1 << top) + last + half, (1 << top + 1) - half):
                numbers |= {n - 1, n, n + 1}
        # Becomes a tie at 8 digits only after rounding at 24 or 53 digits.
        numbers |= {
            (1 << top) + sign * (1 << max(top - 8, 0)) + s * (1 << max(top - beyond, 0))
            for beyond in (25, 26, 54, 55) for sign in (1, 3) for s in (1, -1)
        }  # fmt: skip
    return {s * n for n in numbers for s in (1, -1) if abs(n) <= limit}


def edges(kind: DType) -> np.ndarray:
    """Return values of a dtype for which casts may differ."""
    if kind.is_bool:
        return np.array([False, True])
    if kind.bits <= 8:
        return np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy)
    if kind.is_integer:
        whole = {n for n in digits_near(2**64) if kind.min <= n <= kind.max} | {int(kind.min), int(kind.max)}
        return np.array(sorted(whole), kind.numpy)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -1.5, 127.5, -129.0, 255.6, 65504.0, 65519.0, 65520.0, 65536.0]
    special += [3e38, 2e-38, 1.00390625, 1.001953125, 1 + 2**-8 + 2**-40, 1 + 2**-11 + 2**-40, 6e-8, 2.0**31, 2.0**63]
    special += [float(n) for n in sorted(digits_near(2**63))[::7]]
    with np.errstate(over="ignore"):
        reals = np.array(special).astype(kind.part.numpy)
    if not kind.is_complex:
        return reals
    return np.stack([reals, RANDOM.permutation(reals)], -1).view(kind.numpy)[:, 0]


def same(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where all bits are equal. Any NaN equals any other."""
    assert found.dtype == wanted.dtype
    if found.dtype.kind == "c":
        return same(np.real(found), np.real(wanted)) & same(np.imag(found), np.imag(wanted))
    bits = f"u{found.dtype.itemsize}"
    return (found.view(bits) == wanted.view(bits)) | ((found != found) & (wanted != wanted))


def simplified(graph: rlx.Graph) -> rlx.Graph:
    return rlx.passes.run(graph.clone(), "builtin.module(rlx-simplify)")


_PARTS, _DIRECT_PARTS = 16, 6


def chains(source: DType, part: int | None = None) -> tuple[rlx.Graph, np.ndarray, list[tuple[str, str]]]:
    """Return a graph of all casts of a dtype by way of another one, or of a part of them."""
    x = edges(source)
    g: Any = rlx.Graph("chains")
    argument = g.input("x", x.shape, source)
    pairs = [(middle, to) for middle in NAMES for to in NAMES]
    if part is not None:
        pairs = shares(pairs, _PARTS, lambda pair: pair[0])[part]
    g.set_outputs([g.cast(g.cast(argument, middle), to) for middle, to in pairs])
    return g, x, pairs


def check(names: Any, found: Any, wanted: Any, x: Any) -> None:
    for name, one, other in zip(names, found, wanted, strict=True):
        equal = same(one, other)
        assert equal.all(), f"{name} of {x[~equal][:3]} gives {one[~equal][:3]}, not {other[~equal][:3]}"


def nearest(value: int, kind: DType) -> float:
    """Return an integer rounded once, to nearest and ties to even, in exact arithmetic."""
    digits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}[kind.name]
    shift = max(abs(value).bit_length() - digits, 0)
    whole, rest = divmod(abs(value), 1 << shift)
    whole += 2 * rest + whole % 2 > 1 << shift
    rounded = whole << shift
    return (float("inf") if rounded > kind.max else float(rounded)) * (-1 if value < 0 else 1)


@pytest.mark.parametrize("to", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", [d.name for d in DTYPES if d.is_integer])
def test_an_integer_is_rounded_once(name: str, to: str) -> None:
    x = edges(rlx.dtype(name))
    g: Any = rlx.Graph("direct")
    g.set_outputs([g.cast(g.input("x", x.shape, name), to)])
    exact = np.array([nearest(int(v), rlx.dtype(to)) for v in x]).astype(rlx.dtype(to).numpy)
    check([to], rlx.evaluate(g, {"x": x}), [exact], x)


@drawn("name", NAMES, of_each=8)
def test_chains_of_casts_are_simplified_to_the_same_bits(name: str) -> None:
    g, x, pairs = chains(rlx.dtype(name))
    check(pairs, rlx.evaluate(simplified(g), {"x": x}), rlx.evaluate(g, {"x": x}), x)


@drawn("share", range(_DIRECT_PARTS))
def test_the_cpu_casts_to_the_same_bits(share: int) -> None:
    g: Any = rlx.Graph("direct")
    arrays = {name: edges(rlx.dtype(name)) for name in NAMES}
    pairs = shares([(name, to) for name in NAMES for to in NAMES], _DIRECT_PARTS, lambda pair: pair[0])[share]
    inputs = {name: g.input(name, x.shape, name) for name, x in arrays.items()}
    g.set_outputs([g.cast(inputs[name], to) for name, to in pairs])
    found = rlx.Session(arch="x86-64-v2", threads=1).compile(g).run(arrays)
    for (name, to), one, wanted in zip(pairs, found, rlx.evaluate(g, arrays), strict=True):
        check([(name, to)], [one], [wanted], arrays[name])


@pytest.mark.slow
@drawn("way", [f"{name} {i} on {arch}" for arch in ("x86-64-v2", "x86-64-v3") for name in NAMES for i in range(_PARTS)])
def test_the_cpu_casts_chains_to_the_same_bits(way: str) -> None:
    """Compiled casts have the same bits before and after `rlx-simplify`. MLIR also folds chains, and LLVM fuses them."""
    name, part, _, arch = way.split()
    g, x, pairs = chains(rlx.dtype(name), int(part))
    wanted = rlx.evaluate(g, {"x": x})
    for graph in (g, simplified(g)):
        check(pairs, rlx.Session(arch=arch, threads=1).compile(graph, opt=0).run({"x": x}), wanted, x)


@pytest.mark.parametrize("name", NAMES)
def test_reductions_of_single_elements_are_simplified_to_the_same_bits(name: str) -> None:
    kind = rlx.dtype(name)
    x = edges(kind)
    if kind.is_complex:  # all pairs of special values
        parts = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 1.5, -3e38], kind.part.numpy)
        x = np.stack(np.meshgrid(parts, parts), -1).reshape(-1, 2).view(kind.numpy)[:, 0]
    kinds = ["sum", "prod", "max", "min", "mean"]
    kinds = ["max", "min"] if kind.is_bool else kinds[:4] if kind.is_integer else kinds
    kinds = ["sum", "prod", "mean"] if kind.is_complex else kinds
    g: Any = rlx.Graph("ones")
    argument = g.reshape(g.input("x", x.shape, kind), (1, len(x), 1))
    ways = [(name, axes) for name in kinds for axes in ([], [0], [0, 2])]
    results = [g.reduce(name, argument, axes=axes) for name, axes in ways]
    g.set_outputs([g.reshape(r, x.shape) for r in results])
    outcomes = [rlx.evaluate(graph, {"x": x}) for graph in (simplified(g), g)]
    if kind.is_inexact:  # sums start from 0, which turns -0 into 0; `rlx-simplify` keeps -0
        outcomes = [
            [y + np.zeros_like(y) if w in ("sum", "mean") else y for (w, _), y in zip(ways, ys, strict=True)]
            for ys in outcomes
        ]
    check(ways, *outcomes, x)
