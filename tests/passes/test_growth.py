"""The work of compiling grows linearly with the number of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rlx
from rlx.targets.compilation import Compilation
from rlx.targets.options import CompileOptions
from rlx.targets.registry import target_of
from tests.growth import check_linear

_DEPTHS = 3, 6


def _encoder(g: Any, x: Any, i: int) -> Any:
    """A layer with residuals. Its kernels share no memory with their operands."""
    q, k, v = (x @ g.param(f"{n}{i}", (16, 16)) for n in "qkv")
    heads = g.reshape(g.attention(*(g.reshape(p, (1, 8, 16)) for p in (q, k, v)), num_heads=2, head_dim=8), (8, 16))
    x = g.layer_norm(x + heads @ g.param(f"o{i}", (16, 16)))
    return g.layer_norm(x + g.gelu(x @ g.param(f"f{i}", (16, 32))) @ g.param(f"b{i}", (32, 16)))


def _convolutions(g: Any, x: Any, i: int) -> Any:
    image = g.reshape(x, (1, 2, 8, 8))
    return g.reshape(g.relu(g.conv(image, g.param(f"w{i}", (2, 2, 3, 3)), padding=1) + image), (8, 16))


def _slices(g: Any, x: Any, i: int) -> Any:
    """Ops that may share the memory of their operands, each used twice."""
    return g.concat([g.narrow(x, 0, 4, 4), g.narrow(x, 0, 0, 4)], 0) + x * g.param(f"w{i}", (16,))


def _states(g: Any, x: Any, i: int) -> Any:
    state = g.state(f"s{i}", (8, 16))
    g.update(state, state * 0.9 + x)
    return g.softmax(x + state)


def _elementwise(g: Any, x: Any, i: int) -> Any:
    return g.sin(x * 0.5) + g.tanh(x)


_LAYERS: dict[str, Callable[[Any, Any, int], Any]] = {
    f.__name__.strip("_"): f for f in (_encoder, _convolutions, _slices, _states, _elementwise)
}


def _work(layer: Callable[[Any, Any, int], Any], depth: int, target: str) -> Callable[[], Any]:
    """Return the compilation of a graph down to the input of the target's compiler."""
    g: Any = rlx.Graph("layers")
    x = g.embedding(g.param("table", (32, 16)), g.input("ids", (8,), "i32"))
    for i in range(depth):
        x = layer(g, x, i)
    g.set_outputs([g.tanh(x)])  # no memory of the layers leaves the function
    options = CompileOptions(kernels="all" if target == "cpu" else "auto")
    return Compilation(g, target_of(target), options).lowered


@pytest.mark.parametrize("target", ["cpu", "xla"])
@pytest.mark.parametrize("name", _LAYERS)
def test_passes_take_linear_time(name: str, target: str) -> None:
    layer = _LAYERS[name]
    _work(layer, 1, target)()  # imports, and what is computed once
    check_linear(lambda depth: _work(layer, depth, target), *_DEPTHS)
