"""The methods of tensors against those of NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ops.references import random
from tests.ops.test_spectral import built

X = random("f32", (2, 1, 4))
CALLS: list[Callable[[Any], Any]] = [
    *(
        lambda x, n=name: getattr(x, n)(axis=(0, -1), keepdims=True)
        for name in ("sum", "mean", "max", "min", "prod", "any", "all", "var", "std")
    ),
    lambda x: x.sum(),
    lambda x: x.mean(1),
    lambda x: x.flatten(),
    lambda x: x.ravel(),
    lambda x: x.squeeze(),
    lambda x: x.squeeze(1),
    lambda x: x.swapaxes(0, -1),
    lambda x: x.transpose(),
    lambda x: x.transpose(1, 0, 2),
    lambda x: x.transpose((2, 0, 1)),
]


@pytest.mark.parametrize("call", CALLS)
def test_gives_what_an_array_gives(call: Callable[[Any], Any]) -> None:
    (got,), expected = built(lambda g, x: call(x), X), np.asarray(call(X.astype(np.float64)))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-7)
