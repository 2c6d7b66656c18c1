"""`rlx.integer_only` of every function of one value: a single table, correct for each of the 256 integers."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import rlx
from rlx.ops import surface
from tests.drawing import drawn

# Elementwise functions of several ops, some with a choice. Functions of one op are kinds of `activation`.
COMPOSED = (
    *("leaky_relu", "elu", "selu", "celu", "softplus", "mish", "sign", "hard_swish", "hardtanh", "relu6", "softsign"),
    *("log_sigmoid", "hardshrink", "softshrink", "threshold", "hard_sigmoid", "prelu", "tanhshrink"),
)


def functions() -> dict[str, Any]:
    """Return the functions that the package has, by name."""
    kinds = set(surface.kinds()["activation"])
    helpers = {name for name in COMPOSED if name in surface.helpers()}
    return {name: getattr(rlx.ops, name) for name in sorted(kinds | helpers) if _takes_one(getattr(rlx.ops, name))}


def _takes_one(function: Any) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    return all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in parameters[1:])


def test_the_named_ones_exist() -> None:
    assert {"leaky_relu", "elu", "selu", "celu", "softplus", "mish", "sign"} <= functions().keys()


@drawn("name", sorted(functions()), of_each=4)
def test_a_function_of_one_value_is_right_at_every_integer(name: str) -> None:
    g: Any = rlx.Graph(name)
    g.set_outputs({"y": functions()[name](g.input("x", (1, 256)))})
    x = np.linspace(-3, 3, 256, dtype=np.float32)[None]
    (y,) = rlx.evaluate(g, {"x": x})
    x = np.where(np.isfinite(y), x, x[np.isfinite(y)][0])  # a range consists of finite numbers
    integers = rlx.integer_only(g, rlx.observe_ranges(g, [{"x": x}]))
    points = rlx.quantizations(integers)
    codes = np.arange(-128, 128, dtype=np.int8)[None]
    (found,) = rlx.evaluate(integers, {"x": codes})
    numbers = (codes.astype(np.float32) - points["x"].zero_point) * np.float32(points["x"].scale)
    with np.errstate(all="ignore"):
        (wanted,) = rlx.evaluate(g, {"x": numbers})
    step, zero = points["y"].scale, points["y"].zero_point
    wanted = np.clip(wanted, (-128 - zero) * step, (127 - zero) * step)
    kept = np.isfinite(wanted)
    assert np.abs((found - float(zero)) * step - wanted)[kept].max() <= 1.01 * step
