"""The lowering of modules to StableHLO."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.ir.text.modules import parse_module
from rlx.targets.stablehlo import lower_module


def test_all_kinds_of_arguments_stay_arguments_and_updates_stay_results() -> None:
    g = rlx.Graph("counted")
    x, w, steps = g.input("x", (2, 3)), g.param("w", (3,)), g.state("steps", (), "i32")
    g.set_outputs({"y": x * w})
    g.update(steps, steps + 1)
    lowered = lower_module(g.module)
    assert (
        "func.func @counted(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>, %arg2: tensor<i32>) "
        "-> (tensor<2x3xf32>, tensor<i32>)"
    ) in str(lowered)
    assert "rlx" not in str(lowered)
    named = lowered.operation.get_asm(enable_debug_info=True)
    assert all(f'"{name}"' in named for name in ("x", "w", "steps"))  # names of arguments are kept as their locations
    assert "test_function.py" in named


def test_every_function_of_a_module_is_lowered() -> None:
    function = 'func.func @{0}(%x: tensor<2xui8>) -> tensor<2xui8> {{ %0 = "rlx.binary"(%x, %x) {{kind = "{1}"}} '
    function += ": (tensor<2xui8>, tensor<2xui8>) -> tensor<2xui8> return %0 : tensor<2xui8> }}"
    two = function.format("a", "add") + function.format("b", "max")
    lowered = str(lower_module(parse_module(f"module {{ {two} }}")))
    assert "@a(" in lowered and "stablehlo.add" in lowered
    assert "@b(" in lowered and "stablehlo.maximum" in lowered
    assert "tensor<2xui8>" in lowered


def test_symbols_are_refused_with_what_to_do() -> None:
    g = rlx.Graph("symbolic")
    x = g.input("x", ("batch", 4))
    g.set_outputs([g.relu(x)])
    with pytest.raises(rlx.UnsupportedError, match=r"the size of batch is a symbol") as caught:
        lower_module(g.module)
    assert caught.value.hint is not None
    assert "--bind=batch=128" in caught.value.hint
    bound = rlx.passes.run(g, "builtin.module(rlx-bind{batch=3})")
    assert "tensor<3x4xf32>" in str(lower_module(bound.module))


def test_ops_without_a_rule_are_listed_with_their_places() -> None:
    g = rlx.Graph("composite")
    x = g.input("x", (2, 4))
    y = g.softmax(x)
    g.set_outputs([g.rms_norm(y, g.param("w", (4,)))])
    with pytest.raises(rlx.UnsupportedError) as caught:
        lower_module(g.module)
    message = caught.value.message
    assert message.startswith("2 ops have no lowering to StableHLO:")
    assert "rlx.softmax" in message and "rlx.rms_norm" in message
    assert message.count("test_function.py:") == 2


def test_the_module_is_not_changed() -> None:
    g = rlx.Graph("kept")
    g.set_outputs([g.exp(g.input("x", (3,)))])
    before = str(g)
    lower_module(g.module)
    assert str(g) == before


@pytest.mark.parametrize(
    ("op", "told"),
    [
        ('%0 = rlx.dim_size() {size = ["n"]} : tensor<i32>', "the size of n is a symbol"),
        ('%0 = rlx.dim_size() {size = ["n * m"]} : tensor<i32>', "the size of m, n is a symbol"),
    ],
)
def test_a_symbol_that_only_an_attribute_has_is_named(op: str, told: str) -> None:
    graph = rlx.parse(f"func.func @main() -> tensor<i32> {{\n  {op}\n  return %0 : tensor<i32>\n}}\n")
    with pytest.raises(rlx.UnsupportedError, match=told):
        rlx.passes.run(graph, "rlx-to-stablehlo")


def test_a_function_without_a_body_is_left_out() -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}\n"
    graph = rlx.parse(text + "func.func private @elsewhere(tensor<2xf32>)\n")
    for pipeline in ("rlx-to-stablehlo", "rlx-to-linalg"):
        lowered = str(rlx.passes.run(graph.module, pipeline))
        assert "@main" in lowered
        assert "@elsewhere" not in lowered
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(rlx.Session("cpu").compile(graph, cache=False).run({"arg0": x})[0], x)
