"""Functions of real numbers on integers and bools: their results equal those of the same numbers as floats.

Differences of integers wrap, and integers cannot be weights between 0 and 1. These functions must convert their
operands to floats first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.dialect.dtypes import GROUPS
from tests.drawing import drawn

Call = Callable[..., Any]
INTEGERS = ("bool", *GROUPS["integers"])
ONE = [
    "atan",
    "asinh",
    "celu",
    "cosh",
    "deg2rad",
    "digamma",
    "elu",
    "erf",
    "erfc",
    "exp2",
    "expm1",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "lgamma",
    "log1p",
    "log_sigmoid",
    "mean",
    "median",
    "mish",
    "norm",
    "rad2deg",
    "reciprocal",
    "relu6",
    "rsqrt",
    "selu",
    "sigmoid",
    "silu",
    "sinc",
    "soft_sign",
    "softmin",
    "softplus",
    "std",
    "tanh",
    "var",
    "log_softmax",
    "logcumsumexp",
    "logsumexp",
    "nanmean",
    "average",
    "normalize",
]
TWO = [
    "atan2",
    "copysign",
    "cosine_similarity",
    "hinge_embedding_loss",
    "huber_loss",
    "hypot",
    "isclose",
    "l1_loss",
    "logaddexp",
    "mse_loss",
    "pairwise_distance",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "xlogy",
]
CALLS: dict[str, tuple[int, Call]] = {
    **{name: (1, lambda g, x, name=name: getattr(g, name)(x)) for name in ONE},
    **{name: (2, lambda g, x, y, name=name: getattr(g, name)(x, y)) for name in TWO},
    "quantile": (1, lambda g, x: g.quantile(x, 0.3, axis=0)),
    "norm of order 1": (1, lambda g, x: g.norm(x, 1, axis=1)),
    "norm of order inf": (1, lambda g, x: g.norm(x, np.inf, axis=1)),
    "norm of order 3": (1, lambda g, x: g.norm(x, 3, axis=1)),
    "lerp": (2, lambda g, x, y: g.lerp(x, y, 0.3)),
    "avg_pool1d": (1, lambda g, x: g.avg_pool1d(x[None], 2)),
    "lp_pool1d": (1, lambda g, x: g.lp_pool1d(x[None], 2, 2)),
    "adaptive_avg_pool1d": (1, lambda g, x: g.adaptive_avg_pool1d(x[None], 4)),
    "interp": (1, lambda g, x: g.interp(x, np.array([0, 1, 2, 50], np.float32), np.array([1, 5, 2, 3], np.float32))),
    "cross_entropy": (1, lambda g, x: g.cross_entropy(x, np.array([0, 1, 5, 2], np.int32))),
    "batch_norm": (1, lambda g, x: g.batch_norm(x, training=True)),
    "glu": (1, lambda g, x: g.glu(x, 1)),
    "power": (1, lambda g, x: x**1.5 + 1 / x + x**-1.0),
    "divide": (2, lambda g, x, y: x / y),
}


def _array(name: str, number: int) -> np.ndarray:
    """Return small integers, and the least and the greatest."""
    kind = rlx.dtype(name)
    values = np.random.default_rng(number).integers(0 if not kind.is_signed else -5, 2 if kind.is_bool else 6, (4, 6))
    x = values.astype(kind.numpy)
    if not kind.is_bool:
        x[number, 0], x[1 - number, 0], x[number, 1], x[number, 2] = kind.min, kind.max, kind.max, kind.min
    return x


def _evaluated(call: Call, arrays: list[np.ndarray]) -> np.ndarray:
    with rlx.eager():
        return np.asarray(call(rlx.ops, *(rlx.ops.constant(a) for a in arrays)))


@drawn("name", INTEGERS, of_each=4)
def test_integers_count_as_the_floats_that_they_are(name: str) -> None:
    arrays = [_array(name, 0), _array(name, 1)]
    for function, (count, call) in CALLS.items():
        exact = [a.astype(rlx.promote(name, "f32").numpy) for a in arrays[:count]]
        with np.errstate(all="ignore"):
            got, expected = _evaluated(call, arrays[:count]), _evaluated(call, exact)
        assert got.dtype == expected.dtype, function
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=f"{function} of {name}")


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_never_nan(name: str) -> None:
    """Without NaN, reductions that ignore NaN equal the other reductions to the last digit."""
    x = _array(name, 0)
    for kind in ("sum", "prod", "max", "min"):
        for axis in (None, 0, (0, 1)):
            got, expected = (
                _evaluated(lambda g, t, f=f, a=axis: getattr(g, f)(t, a), [x]) for f in (f"nan{kind}", kind)
            )
            assert got.dtype == expected.dtype and np.array_equal(got, expected), kind
