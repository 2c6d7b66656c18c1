"""Derivatives and batches of convolutions and their gradients compared with JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.ops.references import random, run
from tests.transforms.against_jax import check, check_second, graph_of
from tests.transforms.checks import check_vmap

_LAYOUTS = {3: ("NCH", "OIH", "NCH"), 4: ("NCHW", "OIHW", "NCHW"), 5: ("NCHWD", "OIHWD", "NCHWD")}
# x, w, stride, padding, dilation, groups
_CASES: list[tuple[Any, ...]] = [
    ((2, 3, 6, 5), (4, 3, 3, 2), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 3, 7, 8), (4, 3, 3, 3), (2, 3), (1, 1, 2, 0), (1, 1), 1),  # no window reads the last positions
    ((1, 4, 9, 7), (6, 2, 2, 3), (3, 2), (0, 2, 1, 1), (2, 1), 2),
    ((2, 4, 7, 7), (4, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 4),
    ((2, 4, 8, 9), (8, 1, 2, 2), (2, 2), (3, 0, 0, 3), (3, 2), 4),
    ((2, 3, 5, 5), (4, 3, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 4, 5, 5), (6, 2, 1, 1), (1, 1), (1, 0, 0, 1), (1, 1), 2),
    ((1, 2, 5, 5), (3, 2, 1, 1), (3, 4), (0, 0, 0, 0), (1, 1), 1),
    ((2, 4, 9), (6, 2, 3), (2,), (1, 2), (1,), 2),
    ((2, 4, 9), (6, 2, 3), (3,), (0, 4), (2,), 2),
    ((1, 2, 5, 4, 3), (3, 2, 2, 2, 2), (1, 2, 1), (1, 0, 0, 1, 1, 1), (2, 1, 1), 1),
    ((2, 4, 4, 3, 5), (4, 2, 1, 2, 2), (2, 2, 3), (0, 0, 1, 0, 0, 2), (1, 1, 2), 2),
    ((1, 1, 3, 4), (1, 1, 3, 4), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((0, 3, 6), (4, 3, 2), (1,), (0, 0), (1,), 1),
    ((2, 3, 1), (4, 3, 2), (1,), (0, 0), (1,), 1),  # no window fits
]
# x, w, stride, padding, output_padding, dilation, groups
_TRANSPOSED: list[tuple[Any, ...]] = [
    ((2, 3, 4, 3), (3, 2, 3, 2), (2, 1), (1, 0, 0, 1), (1, 0), (1, 1), 1),
    ((2, 4, 5), (4, 3, 4), (2,), (1, 1), (0,), (1,), 2),
    ((1, 4, 3), (4, 1, 3), (3,), (5, 0), (2,), (2,), 4),
    ((1, 2, 3), (2, 2, 3), (2,), (1, 0), (5,), (1,), 1),  # more positions at the end than a stride
    ((1, 2, 2, 3, 2), (2, 3, 2, 1, 2), (2, 2, 1), (0,) * 6, (0, 1, 0), (1, 1, 2), 1),
]


def _attributes(case: Any) -> dict[str, Any]:
    return dict(zip(("stride", "padding", "dilation", "groups"), (*case[2:4], *case[-2:]), strict=True))


def _conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    pads = list(zip(padding[::2], padding[1::2], strict=True))
    return jax.lax.conv_general_dilated(
        x,
        w,
        stride,
        pads,
        rhs_dilation=dilation,
        dimension_numbers=_LAYOUTS[x.ndim],
        feature_group_count=groups,
        precision="highest",
    )


def _operands(case: Any, name: str = "f64") -> tuple[np.ndarray, np.ndarray]:
    return random(name, case[0], seed=1), random(name, case[1], seed=2)


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_conv(case: Any) -> None:
    attributes = _attributes(case)
    check(
        lambda g, x, w: g.emit("conv", (x, w), **attributes), lambda x, w: _conv(x, w, **attributes), *_operands(case)
    )


@pytest.mark.parametrize("case", [_CASES[i] for i in (2, 4, 9, 10)], ids=str)
def test_gradients_of_gradients_of_conv(case: Any) -> None:
    attributes = _attributes(case)

    def build(g: rlx.Graph, x: Any, w: Any) -> Any:
        return g.tanh(g.emit("conv", (x * 0.1, w), **attributes))

    check_second(build, lambda x, w: jnp.tanh(_conv(x * 0.1, w, **attributes)), *_operands(case))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_narrow_floats_are_rounded_once(name: str) -> None:
    case = _CASES[1]
    attributes, tolerance = _attributes(case), {"f16": 1e-3, "bf16": 8e-3}[name]

    def build(g: rlx.Graph, x: Any, w: Any) -> Any:
        return g.emit("conv", (x, w), **attributes)

    check(build, lambda x, w: _conv(x, w, **attributes), *_operands(case, name), tolerance=tolerance)


def _transposed(case: Any) -> Any:
    """Return `conv_transpose` as JAX's gradient of a convolution. Some of its windows have no effect."""
    attributes, extra = _attributes(case), case[4]

    def formula(x: Any, w: Any) -> Any:
        shape = run("conv_transpose", *_operands(case), **attributes, output_padding=extra).shape
        more = [(0, e // s) for e, s in zip(extra, attributes["stride"], strict=True)]
        image = jnp.zeros(shape, x.dtype)
        return jax.vjp(lambda v: _conv(v, w, **attributes), image)[1](jnp.pad(x, [(0, 0), (0, 0), *more]))[0]

    return formula


@pytest.mark.parametrize(
    ("case", "order"),
    [(c, check) for c in _TRANSPOSED] + [(_TRANSPOSED[i], check_second) for i in (1, 3)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_conv_transpose(case: Any, order: Any) -> None:
    attributes = {**_attributes(case), "output_padding": case[4]}

    def build(g: rlx.Graph, x: Any, w: Any) -> Any:
        return g.emit("conv_transpose", (x, w), **attributes)

    order(build, _transposed(case), *_operands(case))


def test_sizes_may_be_symbols() -> None:
    attributes: Any = {"stride": (2, 3), "padding": (0, 1, 2, 0), "dilation": (1, 2), "groups": 2}
    graph = rlx.Graph()
    x = graph.input("x", ("n", 4, "h", 9), "f64")
    w = graph.input("w", (6, 2, 3, 2), "f64")
    graph.set_outputs([graph.emit("conv", (x, w), **attributes)])
    pulled = rlx.vjp(graph, ["x", "w"])
    for n, h in ((1, 3), (2, 8), (3, 9), (0, 5)):
        image, kernel = _operands(((n, 4, h, 9), (6, 2, 3, 2)))
        dy = random("f64", run("conv", image, kernel, **attributes).shape, seed=3)
        name = pulled.arguments[-1].name
        got = rlx.evaluate(pulled, {"x": image, "w": kernel, name: dy})[1:]
        static = graph_of(lambda g, x, w: g.emit("conv", (x, w), **attributes), (image, kernel))
        values = {"x0": image, "x1": kernel, name: dy}
        for ours, expected in zip(got, rlx.evaluate(rlx.vjp(static, ["x0", "x1"]), values)[1:], strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-12)


# --- batches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [{"x0": 0}, {"x1": 0}, {"x0": 1, "x1": 2}])
@pytest.mark.parametrize("transposed", [False, True])
def test_batches_need_no_loop(transposed: bool, axes: dict[str, int]) -> None:
    case = _TRANSPOSED[1] if transposed else _CASES[2]
    op, attributes = "conv_transpose" if transposed else "conv", _attributes(case)
    if transposed:
        attributes["output_padding"] = case[4]
    operands = _operands(case)
    graph = graph_of(lambda g, x, w: g.emit(op, (x, w), **attributes), operands)
    values = {"x0": operands[0], "x1": operands[1]}
    check_vmap(graph, values, axes)
    empty = {name: np.zeros(np.insert(values[name].shape, axis, 0)) for name, axis in axes.items()}
    shape = (0, *graph.outputs[0].shape.static)
    assert rlx.evaluate(rlx.vmap(graph, axes, 0), {**values, **empty})[0].shape == shape
    assert "scan" not in str(rlx.vmap(graph, axes, 3))


def test_a_batch_of_kernels_of_unknown_size() -> None:
    case = _CASES[3]
    operands = _operands(case)
    graph = graph_of(lambda g, x, w: g.emit("conv", (x, w), **_attributes(case)), operands)
    x, w = random("f64", (3, *case[0])), random("f64", (3, *case[1]), seed=1)
    expected = [run("conv", *pair, **_attributes(case)) for pair in zip(x, w, strict=True)]
    batched = rlx.vmap(graph, ["x0", "x1"], "b")
    np.testing.assert_allclose(rlx.evaluate(batched, {"x0": x, "x1": w})[0], expected, rtol=1e-12)


def test_a_gradient_for_each_example() -> None:
    case = _CASES[1]
    graph = rlx.vjp(
        graph_of(lambda g, x, w: g.emit("conv", (x, w), **_attributes(case)), _operands(case)), ["x0", "x1"]
    )
    dy = graph.arguments[-1]
    values = {"x0": random("f64", case[0]), "x1": random("f64", case[1]), dy.name: random("f64", dy.shape.static)}
    check_vmap(graph, values, {"x0": 0, dy.name: 0})
