"""The table of tolerances for results, with reasons.

A result `r` is correct if `|r - e| <= factor·(ulps·ulp(e) + noise_factor·noise)`. Here `e` is the evaluator's result on
the same inputs, `ulp` the gap between neighbouring numbers of the dtype at `|e|`, and `noise` how far the result moves
when every input and every intermediate result is rounded at random (stochastic arithmetic). The noise is the cost of
cancellation and accumulation in any program for this computation. For a sum it is proportional to the sum of the
absolute values. Elementwise ops have noise 0, unless their own formula cancels (`functions.internal_error`). `factor`
is `Sample.tolerance`. NaN and infinities must be at the same positions as in the evaluator's result. Integers, bools
and moved values are exact.

Compiled code treats denormals as zeros (IREE's runtime and XLA's CPU client configure the CPU accordingly). The table
allows this: a result below the smallest normal number may be 0, and a result may be the evaluator's result on inputs
whose denormals are 0.

Both implementations have the same table, except for functions that one of them computes less exactly (`FUNCTIONS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dtype import DType, dtype


@dataclass(frozen=True)
class Tolerance:
    """Limits for one dtype.

    Attributes:
        ulps: The error in ulps that every result may have.
        noise_factor: A factor for the effect of rounding.
        flushes: Whether a denormal may count as 0.
        reason: The reason.
    """

    ulps: float
    noise_factor: float
    flushes: bool
    reason: str


TOLERANCES: dict[str, Tolerance] = {
    "f64": Tolerance(2, 4, True, "elementary functions are good to 1 ulp, and the evaluator rounds in f64 too"),
    "f32": Tolerance(
        2, 4, True, "elementary functions are good to 1 ulp, tanh and tan to 2; the evaluator rounds once"
    ),
    "f16": Tolerance(1, 4, False, "computed in f32, where its denormals are normal, and rounded once"),
    "bf16": Tolerance(1, 4, True, "computed in f32 and rounded once: at most the neighbour"),
    "c64": Tolerance(3, 4, True, "parts are f32, and an error of one spills into the other: ulp of the modulus"),
    "c128": Tolerance(4, 4, True, "parts are f64, and an error of one spills into the other: ulp of the modulus"),
}
# Factors by the kind of an activation, from errors measured on 1.6 million f32 and f64 numbers of all sizes with jaxlib
# 0.10.2: exp 5.3 ulp (next to its overflow; 2 elsewhere), tanh 4.6 in f32 and 6.5 in f64, sigmoid and silu 2.8; of the
# functions composed of them sinh 5.8, expm1 5.2, erfc 4.1, cosh 3.7 and the others have less.
FUNCTIONS: dict[str, dict[str, float]] = {
    "iree": {},
    "xla": {
        **{"exp": 3.0, "tanh": 3.5, "sigmoid": 1.5, "silu": 1.5},
        **{"expm1": 3.0, "log1p": 1.5, "log2": 1.3, "log10": 1.6, "cbrt": 2.0, "erf": 1.3, "erfc": 2.5, "asin": 1.4},
        **{"sinh": 3.5, "cosh": 2.2, "asinh": 1.6, "acosh": 2.0, "atanh": 2.0},
    },
}
EXACT = Tolerance(0, 0, False, "integers, bools and values that are only moved")


def tolerance_of(kind: DType) -> Tolerance:
    """Return the limits for results of a dtype."""
    return TOLERANCES.get(kind.name, EXACT)


def ulp(values: np.ndarray) -> np.ndarray:
    """Return the gap to the next number at each value, in f64; at least that of the smallest normal.

    For complex numbers it is the gap at the modulus.
    """
    kind = dtype(values.dtype)
    smallest = _smallest_normal(kind)
    magnitude = np.abs(values.astype(np.complex128 if kind.is_complex else np.float64))
    magnitude = np.where(np.isfinite(magnitude), magnitude, 1.0)
    return np.exp2(np.floor(np.log2(np.maximum(magnitude, smallest)))) * kind.eps


def _smallest_normal(kind: DType) -> float:
    layout = kind.part.float_format
    assert layout is not None
    return 2.0 ** (1 - layout.bias)


def flushed(array: np.ndarray) -> np.ndarray:
    """Return the array with zeros for values that compiled code may treat as 0."""
    kind = dtype(array.dtype)
    if not kind.is_inexact or not tolerance_of(kind).flushes:
        return array
    if kind.is_complex:
        return flushed(array.view(kind.part.numpy)).view(array.dtype) if array.ndim else array
    with np.errstate(all="ignore"):
        return np.where(np.abs(array) < _smallest_normal(kind), np.copysign(array.dtype.type(0), array), array)


@dataclass(frozen=True)
class Comparison:
    """The comparison of results.

    Attributes:
        factor: A factor for the tolerance.
        exact: Whether no difference is allowed.
        signed_zeros: Whether 0 and -0 differ.
    """

    factor: float = 1.0
    exact: bool = False
    signed_zeros: bool = False

    def mismatch(
        self,
        got: np.ndarray,
        expected: np.ndarray,
        noise: np.ndarray | None = None,
        alternative: np.ndarray | None = None,
    ) -> str | None:
        """Return the problem of a result, or None.

        Args:
            got: The result.
            expected: The evaluator's result.
            noise: How far rounding may move each element; None means not at all. NaN accepts any value of the element.
            alternative: Another acceptable result of the evaluator.
        """
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return f"is {got.dtype}{list(got.shape)} instead of {expected.dtype}{list(expected.shape)}"
        wrong = self._wrong(got, expected, noise)
        if alternative is not None:
            wrong &= self._wrong(got, alternative, noise)
        return _described(wrong, got, expected)

    def _wrong(self, got: np.ndarray, expected: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        kind = dtype(expected.dtype)
        if not kind.is_inexact:
            return (got != expected) if noise is None else (got != expected) & (noise == 0)
        if kind.storage:
            got, expected, kind = got.astype(np.float32), expected.astype(np.float32), dtype("f32")
            return ~((got == expected) | (np.isnan(got) & np.isnan(expected)))
        with np.errstate(all="ignore"):
            error = np.abs(_wide(got) - _wide(expected))
            same = (got == expected) | (np.isnan(got) & np.isnan(expected))
            finite = np.isfinite(got) & np.isfinite(expected)
            if kind.is_complex:  # which part overflows, and to which value, is a matter of convention
                same |= ~np.isfinite(got) & ~np.isfinite(expected)
            wrong = ~same & ~(finite & (error <= self.factor * self._allowed(expected, kind, noise)))
            if noise is not None:
                wrong &= ~np.isnan(noise)
            if self.signed_zeros and not kind.is_complex:
                wrong |= (expected == 0) & (got == 0) & (np.signbit(got) != np.signbit(expected))
        return wrong

    def _allowed(self, expected: np.ndarray, kind: DType, noise: np.ndarray | None) -> Any:
        tolerance = EXACT if self.exact else tolerance_of(kind)
        allowed: Any = tolerance.ulps * ulp(expected)
        if noise is not None:
            allowed = allowed + tolerance.noise_factor * noise
        return allowed + _smallest_normal(kind) if tolerance.flushes else allowed


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if dtype(array.dtype).is_complex else np.float64)


def _described(wrong: np.ndarray, got: np.ndarray, expected: np.ndarray) -> str | None:
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    worst = ""
    if dtype(expected.dtype).is_inexact:
        with np.errstate(all="ignore"):
            ulps = np.abs(_wide(got) - _wide(expected)) / np.maximum(ulp(expected), 1e-300)
        ulps = ulps[wrong & np.isfinite(ulps)]
        worst = f", by up to {ulps.max():.3g} ulp" if ulps.size else ""
    places = [tuple(map(int, p)) for p in np.argwhere(wrong)[:3]]
    shown = "; ".join(f"{list(p)}: {got[p]!r} instead of {expected[p]!r}" for p in places)
    return f"{count} of {expected.size} elements differ{worst}: {shown}"


def spread(runs: Sequence[np.ndarray]) -> np.ndarray:
    """Return how far each element moves between noisy runs, in f64; NaN if it is finite in some runs only.

    For integers and bools it is 1 where the runs disagree: the element then depends on a rounding.
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
