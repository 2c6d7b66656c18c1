"""Classification, signs, rounding and neighbours of storage floats for all pairs of bit patterns: NumPy's, also compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES, WITH_ZERO, DType
from tests.drawing import drawn

FLOATS = [d for d in DTYPES if d.storage and d.is_float]


def pairs(kind: DType) -> tuple[np.ndarray, np.ndarray]:
    codes = np.arange(1 << kind.bits, dtype=np.uint8)
    return np.repeat(codes, codes.size).view(kind.numpy), np.tile(codes, codes.size).view(kind.numpy)


def wide(x: np.ndarray) -> np.ndarray:
    """Return values as f64, because NumPy does not recognise NaN of all dtypes."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


def results(kind: DType) -> tuple[rlx.Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a graph, its inputs, and its results; numbers are returned as values."""
    a, b = pairs(kind)
    x, y = wide(a), wide(b)
    g: Any = rlx.Graph("numbers")
    s, t = g.input("a", a.shape, kind), g.input("b", b.shape, kind)
    with np.errstate(all="ignore"):
        wanted = {
            "isnan": (g.isnan(s), np.isnan(x)),
            "isinf": (g.isinf(s), np.isinf(x)),
            "isfinite": (g.isfinite(s), np.isfinite(x)),
            "signbit": (g.signbit(s), np.signbit(x) & ~np.isnan(x)),
            "below 0": (s < 0.0, x < 0),
            "below infinity": (g.lt(s, math.inf), x < np.inf),
            "sign": (g.sign(s), np.sign(x)),
            "abs": (g.abs(s), np.abs(x)),
            "maximum": (g.maximum(s, t), np.maximum(x, y)),
            "minimum": (g.minimum(s, t), np.minimum(x, y)),
            "nextafter": (g.nextafter(s, t), wide(np.nextafter(a, b))),
            "padded": (g.pad(s, 1, value=1.0), np.pad(x, 1, constant_values=1.0)),
        }
        if kind.name in WITH_ZERO:  # otherwise values rounded to 0 are NaN
            wanted |= {"trunc": (g.trunc(s), np.trunc(x)), "round": (g.round(s), wide(np.rint(x).astype(a.dtype)))}
    if kind.name in WITH_ZERO and kind.float_format and kind.float_format.special != "finite":
        wanted["no NaN"] = (g.nan_to_num(s, posinf=1.0, neginf=-1.0), np.nan_to_num(x, posinf=1.0, neginf=-1.0))
    g.set_outputs({name: tensor for name, (tensor, _) in wanted.items()})
    return g, {"a": a, "b": b}, {name: array for name, (_, array) in wanted.items()}


def check(found: Any, wanted: dict[str, np.ndarray], kept: np.ndarray) -> None:
    for got, (name, array) in zip(found, wanted.items(), strict=True):
        rows = slice(1, -1) if name == "padded" else slice(None)
        np.testing.assert_array_equal(wide(got)[rows][kept], array[rows][kept], err_msg=name)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_evaluated(kind: DType) -> None:
    g, inputs, wanted = results(kind)
    check(rlx.evaluate(g, inputs), wanted, np.ones(inputs["a"].shape, bool))


@drawn("device", ["cpu", "xla"])
@drawn("kind", FLOATS, of_each=3, ids=str)
def test_compiled(kind: DType, device: str) -> None:
    """The least f8e8m0fnu is excluded: it is below the normal f32 numbers, which devices may treat as 0."""
    g, inputs, wanted = results(kind)
    kept = np.ones(inputs["a"].shape, bool)
    if kind.name == "f8e8m0fnu":
        kept = (inputs["a"].view(np.uint8) != 0) & (inputs["b"].view(np.uint8) != 0)
    check(rlx.Session(device).compile(g).run(inputs), wanted, kept)


# Functions of several ops, which are computed in f32 as a whole; rounding each step would be wrong.
OF_TWO: dict[str, Any] = {
    **{"floor_divide": np.floor_divide, "remainder": np.remainder, "fmod": np.fmod, "hypot": np.hypot},
    **{"logaddexp": np.logaddexp, "heaviside": np.heaviside},
    "copysign": lambda a, b: np.where(np.isnan(b), np.abs(a), np.copysign(a, b)),
}
OF_ONE: dict[str, Any] = {
    **{"sinc": np.sinc, "deg2rad": np.deg2rad, "trunc": np.trunc},
    "softplus": lambda a: np.logaddexp(a, np.float32(0)),
    "mish": lambda a: a * np.tanh(np.logaddexp(a, np.float32(0))),
    "soft_sign": lambda a: a / (1 + np.abs(a)),
}


@pytest.mark.parametrize("kind", [d for d in FLOATS if d.name in WITH_ZERO], ids=str)
def test_functions_are_rounded_once(kind: DType) -> None:
    a, b = pairs(kind)
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float32), b.astype(np.float32)
        wanted = {n: f(x, y) for n, f in OF_TWO.items()} | {n: f(x) for n, f in OF_ONE.items()}
        wanted["floor_divide"] = np.where(y == 0, x / y, wanted["floor_divide"])
        g: Any = rlx.Graph()
        s, t = g.input("a", a.shape, kind), g.input("b", b.shape, kind)
        g.set_outputs([getattr(g, n)(s, t) for n in OF_TWO] + [getattr(g, n)(s) for n in OF_ONE])
        for (name, array), got in zip(wanted.items(), rlx.evaluate(g, {"a": a, "b": b}), strict=True):
            assert got.dtype == kind.numpy, name
            # A product in f32 may end next to a half, where either neighbour is correct.
            allowed = [wide((array * np.float32(1 + step)).astype(kind.numpy)) for step in (0, -1e-6, 1e-6)]
            value = wide(got)
            right = np.logical_or.reduce([(value == w) | (np.isnan(value) & np.isnan(w)) for w in allowed])
            # Infinite quotients have no remainder, as in Python; f4e2m1fn has no NaN.
            right |= np.isinf(y) if name in ("floor_divide", "remainder") else False
            right |= np.isnan(array) if kind.name == "f4e2m1fn" else False
            at = np.flatnonzero(~right)[:3]
            assert right.all(), (name, [(a[i], b[i], got[i], array[i]) for i in at])
