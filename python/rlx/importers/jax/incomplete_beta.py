"""Derivatives of the regularised incomplete beta function. JAX only has the derivative with respect to the last argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.support.packages import import_package

# The number of pairs of terms of the continued fraction. It needs about sqrt(max(a, b)); 100 suffice for shapes of
# thousands.
_PAIRS = 100


def tangent(bound: Callable[..., Any], args: Sequence[Any], moved: Sequence[Any]) -> Any:
    """Return the tangent of the function for the arguments a, b and x.

    Args:
        bound: JAX's function, which is differentiated with respect to x.
        args: a, b and x, of one shape and dtype.
        moved: Their tangents.
    """
    jax, jnp = import_package("jax", "rlx.from_jax"), import_package("jax.numpy", "rlx.from_jax")
    a, b, x = args
    wide = jnp.promote_types(x.dtype, jnp.float32)
    of_shapes = [jax.jvp(f, (v.astype(wide),), (jnp.ones(v.shape, wide),))[1] for f, v in _by_shapes(a, b, x, wide)]
    of_x = jax.jvp(lambda x: bound(a, b, x)[0], (x,), (jnp.ones_like(x),))[1]
    return sum(p.astype(x.dtype) * t for p, t in zip([*of_shapes, of_x], moved, strict=True))


def _by_shapes(a: Any, b: Any, x: Any, dtype: Any) -> list[tuple[Callable[[Any], Any], Any]]:
    """Return the function of `a` alone and of `b` alone, each with the point at which to differentiate it."""
    wide_a, wide_b, wide_x = (v.astype(dtype) for v in (a, b, x))
    return [(lambda a: _value(a, wide_b, wide_x), a), (lambda b: _value(wide_a, b, wide_x), b)]


def _value(a: Any, b: Any, x: Any) -> Any:
    """Return the function as a continued fraction (DLMF 8.17.22) with a fixed number of terms.

    This form has derivatives with respect to all three arguments.
    """
    jnp, lax = import_package("jax.numpy", "rlx.from_jax"), import_package("jax.lax", "rlx.from_jax")
    is_turned = x > (a + 1) / (a + b + 2)  # the complement converges faster here
    a, b, x = jnp.where(is_turned, b, a), jnp.where(is_turned, a, b), jnp.where(is_turned, 1 - x, x)

    def with_two_terms(step: Any, rest: Any) -> Any:
        m = (_PAIRS - step).astype(x.dtype)
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        return 1 + even / (1 + odd / rest)

    rest = lax.fori_loop(0, _PAIRS, with_two_terms, jnp.ones_like(x))
    fraction = 1 - (a + b) * x / ((a + 1) * rest)
    is_inside = x > 0
    log_beta = lax.lgamma(a + 1) + lax.lgamma(b) - lax.lgamma(a + b)
    first = jnp.exp(a * jnp.log(jnp.where(is_inside, x, 1)) + b * jnp.log1p(-x) - log_beta)
    part = jnp.where(is_inside, first / fraction, 0)
    return jnp.where(is_turned, 1 - part, part)
