"""How far a result may lie from the evaluator's: one table, with reasons.

A result `r` is right when `|r - e| <= factor·(ulps·ulp(e) + noise_factor·noise)`, where `e` is the evaluator's result on the
same inputs, `ulp` the gap between neighbouring numbers of the dtype at `|e|`, and `noise` how far the result moves when every
input and every intermediate result is rounded at random (stochastic arithmetic): what cancellation and accumulation cost
any program that computes this. For a sum it is in proportion to the sum of the absolute values. Elementwise ops have no such
excuse, so their noise is 0. `factor` is `Sample.tolerance`. NaN and infinities have to be where the evaluator has them, and
integers, bools and moved values are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx.ir.dtype import DType, dtype


@dataclass(frozen=True)
class Tolerance:
    """Limits for one dtype."""

    ulps: float
    noise_factor: float
    reason: str


TOLERANCES: dict[str, Tolerance] = {
    "f64": Tolerance(4, 12, "library functions good to 2 ulp, and the evaluator rounds in f64 too"),
    "f32": Tolerance(4, 12, "the evaluator rounds once from f64; polynomials of the code generator are good to 4 ulp"),
    "f16": Tolerance(1, 12, "computed in f32 and rounded once: at most the neighbour"),
    "bf16": Tolerance(1, 12, "computed in f32 and rounded once: at most the neighbour"),
    "c64": Tolerance(8, 12, "parts are f32, and an error of the larger part spills into the other: ulp of the modulus"),
}
EXACT = Tolerance(0, 0, "integers, bools and values that are only moved")


def tolerance_of(kind: DType) -> Tolerance:
    """The limits for results of a dtype."""
    return TOLERANCES.get(kind.name, EXACT)


def ulp(values: np.ndarray) -> np.ndarray:
    """The gap to the next number at each value (complex: at its modulus), in f64; at least that of the smallest normal."""
    kind = dtype(values.dtype)
    smallest = _SMALLEST_NORMAL[kind.name]
    magnitude = np.abs(values.astype(np.complex128 if kind.is_complex else np.float64))
    magnitude = np.where(np.isfinite(magnitude), magnitude, 1.0)
    return np.exp2(np.floor(np.log2(np.maximum(magnitude, smallest)))) * kind.eps


_SMALLEST_NORMAL = {"f64": 2.0**-1022, "f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14, "c64": 2.0**-126}


def mismatch(
    got: np.ndarray,
    expected: np.ndarray,
    *,
    factor: float = 1.0,
    noise: np.ndarray | None = None,
    exact: bool = False,
    signed_zeros: bool = False,
) -> str | None:
    """What is wrong with a result, or None.

    Args:
        got: The result.
        expected: The evaluator's.
        factor: Multiplies the tolerance.
        noise: How far rounding may move each element; None is not at all. NaN excuses the element.
        exact: Allow no difference at all.
        signed_zeros: Tell 0 and -0 apart.
    """
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"is {got.dtype}{list(got.shape)} instead of {expected.dtype}{list(expected.shape)}"
    kind = dtype(expected.dtype)
    if not kind.is_inexact:
        wrong = got != expected
        if noise is not None:
            wrong &= noise == 0
        return _described(wrong, got, expected)
    tolerance = EXACT if exact else tolerance_of(kind)
    with np.errstate(all="ignore"):
        wide = np.complex128 if kind.is_complex else np.float64
        error = np.abs(got.astype(wide) - expected.astype(wide))
        allowed = tolerance.ulps * ulp(expected)
        if noise is not None:
            allowed = allowed + tolerance.noise_factor * noise
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        finite = np.isfinite(got) & np.isfinite(expected)
        wrong = ~same & ~(finite & (error <= factor * allowed))
        if noise is not None:
            wrong &= ~np.isnan(noise)
        if signed_zeros and not kind.is_complex:
            wrong |= (expected == 0) & (got == 0) & (np.signbit(got) != np.signbit(expected))
        worst = np.where(wrong & finite, error / np.maximum(ulp(expected), 1e-300), 0)
    return _described(wrong, got, expected, f", up to {worst.max():.3g} ulp" if worst.size and worst.max() else "")


def _described(wrong: np.ndarray, got: np.ndarray, expected: np.ndarray, more: str = "") -> str | None:
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    places = [tuple(map(int, p)) for p in np.argwhere(wrong)[:3]]
    shown = "; ".join(f"{list(p)}: {got[p]!r} instead of {expected[p]!r}" for p in places)
    return f"{count} of {expected.size} elements differ{more}: {shown}"


def spread(runs: Sequence[np.ndarray]) -> np.ndarray:
    """How far each element moves between noisy runs, in f64; NaN where it is finite in some and not in others.

    For integers and bools 1 where the runs disagree: there the element hangs on a rounding.
    """
    first = runs[0]
    kind = dtype(first.dtype)
    if not kind.is_inexact:
        return np.any([run != first for run in runs[1:]], axis=0).astype(np.float64)
    with np.errstate(all="ignore"):
        wide = np.stack([run.astype(np.complex128 if kind.is_complex else np.float64) for run in runs])
        finite = np.isfinite(wide)
        moved = np.abs(wide - wide[0]).max(axis=0)
        moved = np.where(finite.all(axis=0), moved, np.nan)
        agreeing = np.all((wide == wide[0]) | (np.isnan(wide) & np.isnan(wide[0])), axis=0)
    return np.where(agreeing, 0.0, moved)
