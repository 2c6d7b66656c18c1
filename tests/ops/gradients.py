"""Two checks of gradient ops: against `jax.vjp` of a formula, and against differences of RLX's forward evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from rlx.ir.dtype import dtype
from tests.ops.references import agree, in_jax, jitted, run

_STEP = 1e-5
_DIRECTIONS = 2


def vjp(formula: Callable[..., Any], arrays: Sequence[Any], cotangent: np.ndarray, index: int) -> np.ndarray:
    """Return JAX's gradient of `sum(formula(*arrays)·cotangent)` with respect to one of the arrays."""

    def pulled_back(*given: Any) -> Any:
        *values, dy = given

        def of_one(value: Any) -> Any:
            return formula(*values[:index], value, *values[index + 1 :])

        return jax.vjp(of_one, values[index])[1](dy)[0]

    return in_jax(jitted(pulled_back), *arrays, cotangent)


def check_with_jax(
    got: np.ndarray,
    formula: Callable[..., Any],
    arrays: Sequence[Any],
    cotangent: np.ndarray,
    index: int,
    factor: float = 4.0,
) -> None:
    """Check that the f64 gradient equals JAX's.

    Rounding errors are those of sums of numbers like the largest of the gradient or of the cotangent.
    """
    expected = vjp(formula, arrays, cotangent, index)
    largest = max(np.abs(expected).max(initial=0), np.abs(cotangent).max(initial=0))
    agree(got, expected, factor=factor, noise=np.finfo(np.float64).eps * largest)


def check_with_differences(
    got: np.ndarray, forward: Callable[[np.ndarray], np.ndarray], at: np.ndarray, cotangent: np.ndarray
) -> None:
    """Check that `<got, u>` is the central difference of `<forward(at + h·u), cotangent>` along random directions `u`."""
    assert got.dtype == np.float64 and got.shape == at.shape
    rng = np.random.default_rng(7)
    for _ in range(_DIRECTIONS):
        direction = rng.standard_normal(at.shape)
        ahead, behind = (float((forward(at + s * _STEP * direction) * cotangent).sum()) for s in (1, -1))
        terms = got * direction
        allowed = 1e-6 * float(np.abs(terms).sum()) + 1e-8
        assert abs((ahead - behind) / (2 * _STEP) - float(terms.sum())) <= allowed


def check_twice(
    got: np.ndarray,
    op: str,
    formula: Callable[..., Any],
    arrays: Sequence[Any],
    cotangent: np.ndarray,
    index: int = 0,
    factor: float = 4.0,
    **attributes: Any,
) -> None:
    """Run both checks of a gradient with respect to one operand.

    Args:
        got: The gradient.
        op: The forward op.
        formula: The same function in JAX, of all operands; absent operands are None.
        arrays: The operands, f64 where they are floats.
        cotangent: The cotangent of the result.
        index: The index of the operand.
        factor: A factor for the allowed rounding errors.
        attributes: The attributes of the forward op.
    """
    check_with_jax(got, formula, arrays, cotangent, index, factor)

    def forward(value: np.ndarray) -> np.ndarray:
        return run(op, *arrays[:index], value, *arrays[index + 1 :], **attributes)

    check_with_differences(got, forward, arrays[index], cotangent)


def check_rounded_once(op: str, *operands: np.ndarray | None, factor: float = 1.0, **attributes: Any) -> None:
    """Check that a narrow result equals the f64 result of the same numbers, up to f32 errors, rounded once."""
    got = run(op, *operands, **attributes)
    exact = run(op, *(_widened(o) for o in operands), **attributes)
    room = np.finfo(np.float32).eps * np.abs(exact).max(initial=0)
    agree(got, exact.astype(got.dtype), factor=factor, noise=np.array(room))


def _widened(operand: np.ndarray | None) -> np.ndarray | None:
    return operand.astype(np.float64) if operand is not None and dtype(operand.dtype).is_float else operand
