"""Vulkan: programs with known defects are rejected. Other programs are correct, in repeated runs if there is a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.compilation import Compilation
from rlx.targets.iree import targets
from rlx.targets.iree.devices import devices
from rlx.targets.iree.program import load
from tests.targets.iree.iree_text import iree_text

TARGET = targets.target("vulkan")
HAS_DEVICE = any(d.driver == "vulkan" and d.available for d in devices())


def legal(build: Callable[[Any], Any]) -> Any:
    g = rlx.Graph("g")
    g.set_outputs(build(g))
    return Compilation(g, TARGET).lir


@pytest.mark.parametrize("dtype", ["f64", "i64", "f16", "bf16", "i8", "u8", "i16"])
@pytest.mark.parametrize("kind", ["input", "param", "state"])
def test_dtypes_of_arguments_are_checked(dtype: str, kind: str) -> None:
    """The dtypes of arguments are checked, even if a cast hides them."""
    with pytest.raises(rlx.UnsupportedError, match=f"{kind} 'a' is {dtype}"):
        legal(lambda g: g.cast(getattr(g, kind)("a", (4,), dtype), "f32"))


def test_results_and_what_is_between_are_checked() -> None:
    with pytest.raises(rlx.UnsupportedError, match=r"test_vulkan.py:\d+: rlx.cast gives i8"):
        legal(lambda g: g.cast(g.cast(g.input("x", (4,)), "i8"), "f32"))
    with pytest.raises(rlx.UnsupportedError, match=r"f32\[0, 4\], which is empty"):
        legal(lambda g: g.mean(g.input("x", (0, 4)), 0))


@pytest.mark.parametrize("size", [12, "n"])
def test_nothing_is_fused_behind_a_reduction(size: Any) -> None:
    g = rlx.Graph("g")
    x = g.input("x", (5, size))
    g.set_outputs([x - g.mean(x, 0), x / g.max(x, 1, keep_dims=True)])
    text = iree_text(g, TARGET)
    assert text.count("util.optimization_barrier") == 2
    assert "storage = b32|b8" in text


def _programs() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    x, flags = ("x", (5, 12)), ("m", (15,), "bool")
    ids = ("i", (7,), "i32")
    return {
        "centred": (lambda g, x: x - g.mean(x, 0), {"x": x}),
        "softmax": (lambda g, x: g.softmax(x, axis=0), {"x": x}),
        "layer_norm": (lambda g, x: g.layer_norm(x, np.ones(12, "f4"), np.zeros(12, "f4")), {"x": x}),
        "product": (lambda g, x: g.relu(g.matmul(x, g.transpose(x)) + 1.0), {"x": x}),
        "bools": (lambda g, m: g.reverse(m, (0,)), {"m": flags}),
        "masks": (lambda g, x: g.where(g.reverse(x > 0, (0, 1)), x, 0.0), {"x": x}),
        "order": (lambda g, x: g.sort(x, 1), {"x": x}),
        "sums": (lambda g, x: g.cumsum(x, 1), {"x": x}),
        "integers": (lambda g, i: g.sort(i * 3 - g.max(i), 0), {"i": ids}),
        "long_order": (lambda g, v: g.argsort(v, 0), {"v": ("v", (67,))}),
        "rounding": (lambda g, x: g.round(x), {"x": x}),
        "remainders": (lambda g, x: g.emit("binary", (x, x * 0.37), kind="rem"), {"x": x}),
    }


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DEVICE, reason="no Vulkan device")
def test_runs_are_right_again_and_again() -> None:
    """All cases are one program, which is compiled once. Races do not occur in every run."""
    g, rng = rlx.Graph("all"), np.random.default_rng(0)
    outputs, arrays = {}, {}
    for name, (build, arguments) in _programs().items():
        tensors = []
        for argument, (_, shape, *kind) in arguments.items():
            tensor = g.input(f"{name}_{argument}", shape, *kind)
            arrays[tensor.name] = (rng.standard_normal(shape) * 9).astype(tensor.dtype.numpy)
            tensors.append(tensor)
        outputs[name] = build(g, *tensors)
    g.set_outputs(outputs)
    expected = rlx.evaluate(g, arrays)
    program = rlx.Session("vulkan").compile(g)
    for _ in range(20):
        for name, result, wanted in zip(outputs, program.run(arrays), expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DEVICE, reason="no Vulkan device")
def test_empty_inputs_are_refused() -> None:
    g = rlx.Graph("sizes")
    g.set_outputs([g.sum(g.input("x", ("n", 4)), 0)])
    program = rlx.Session("vulkan").compile(g)
    assert program.run({"x": np.ones((3, 4), np.float32)})[0].tolist() == [3] * 4
    with pytest.raises(rlx.ExecutionError, match=r"input 'x' is empty, \[0, 4\]"):
        program.run({"x": np.ones((0, 4), np.float32)})


def _classifier() -> Any:
    g: Any = rlx.Graph("cnn")
    x, labels = g.input("x", (4, 1, 8, 8)), g.input("labels", (4,), rlx.i32)
    h = g.max_pool2d(g.relu(g.conv2d(x, g.param("first", (3, 1, 3, 3)), padding=1)), 2)
    h = g.max_pool2d(g.relu(g.conv2d(h, g.param("second", (4, 3, 3, 3)), padding=1)), 2)
    logits = g.reshape(h, (4, 16)) @ g.param("w", (16, 5)) + g.param("b", (5,))
    g.set_outputs({"loss": g.mean(g.softmax_cross_entropy_with_logits(logits, labels))})
    return g


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DEVICE, reason="no Vulkan device")
def test_convolutions_are_trained_like_by_the_evaluator() -> None:
    """States are overwritten in place: the second step and later ones showed races. Three runs give the same bits."""
    rng = np.random.default_rng(0)
    graph = _classifier()
    weights = {a.name: 0.3 * rng.standard_normal(a.shape.static).astype(np.float32) for a in graph.params}
    batches = [
        {"x": rng.standard_normal((4, 1, 8, 8)).astype(np.float32), "labels": rng.integers(0, 5, 4).astype(np.int32)}
        for _ in range(5)
    ]

    def trained(device: str) -> tuple[list[float], dict[str, np.ndarray]]:
        step = rlx.train.TrainStep(_classifier(), rlx.train.AdamW(0.05), params=weights, device=device)
        return [step(batch)["loss"] for batch in batches], step.params()

    runs = [trained("vulkan") for _ in range(3)]
    losses, params = trained("numpy")
    np.testing.assert_allclose(runs[0][0], losses, rtol=1e-5)
    for name, value in params.items():
        np.testing.assert_allclose(runs[0][1][name], value, rtol=1e-4, atol=1e-5, err_msg=name)
        assert all(run[1][name].tobytes() == runs[0][1][name].tobytes() for run in runs), name


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DEVICE, reason="no Vulkan device")
def test_later_calls_use_their_own_buffers() -> None:
    """The driver replays recorded commands with the buffers of an earlier call. Quirk: `replayed-buffers`."""
    g: Any = rlx.Graph("calls")
    cache, rows, start = g.input("cache", (1, 6, 2)), g.input("rows", (1, 1, 2)), g.input("start", (1,), rlx.i32)
    count, limit = g.input("count", (), rlx.i32), g.input("limit", ())
    larger = g.if_(count > 2, lambda: limit * 2.0, lambda: limit - 1.0)
    g.set_outputs([g.update_cache(cache, rows, start), larger])
    program = rlx.Session("vulkan").compile(g)
    rng = np.random.default_rng(1)
    used = []  # arrays of each call stay alive, so that the next call has other addresses
    for call in range(8):
        arrays = {
            "cache": rng.standard_normal((1, 6, 2)).astype(np.float32),
            "rows": rng.standard_normal((1, 1, 2)).astype(np.float32),
            "start": np.array([call % 6], np.int32),
            "count": np.array(call, np.int32),
            "limit": np.array(call + 0.5, np.float32),
        }
        results = program.run(arrays)
        used.append((arrays, results))
        for result, expected in zip(results, rlx.evaluate(g, arrays), strict=True):
            np.testing.assert_array_equal(result, expected)


def _attention_with_cache() -> Any:
    """One position of attention. Its keys and values are written to a cache in place."""
    g: Any = rlx.Graph("decoder")
    x, position = g.input("x", (1, 1, 8)), g.input("position", (), rlx.i32)
    caches = {}
    for name in ("keys", "values"):
        cache = g.state(name, (1, 6, 8))
        row = x @ g.param(f"w_{name}", (8, 8))
        caches[name] = g.dynamic_update_slice(cache, row, [0, position, 0])
        g.update(cache, caches[name])
    scores = (x @ g.param("w_query", (8, 8))) @ g.transpose(caches["keys"], (0, 2, 1))
    scores = g.where(g.iota((6,), dtype=rlx.i32) <= position, scores, -1e9)
    last = g.dynamic_slice(caches["keys"], [0, position, 0], [1, 1, 8])
    g.set_outputs([g.softmax(scores, axis=-1) @ caches["values"], last])
    return g


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DEVICE, reason="no Vulkan device")
def test_a_decoder_updates_its_cache_in_place() -> None:
    rng = np.random.default_rng(0)
    weights = {f"w_{n}": rng.standard_normal((8, 8)).astype(np.float32) for n in ("query", "keys", "values")}
    tokens = rng.standard_normal((6, 1, 1, 8)).astype(np.float32)
    expected, got = (rlx.Session(d).compile(_attention_with_cache(), params=weights) for d in ("numpy", "vulkan"))
    for position, x in enumerate(tokens):
        arrays = {"x": x, "position": np.array(position, np.int32)}
        for result, wanted in zip(got.run(arrays), expected.run(arrays), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DEVICE, reason="no Vulkan device")
def test_features_of_the_device_are_checked_when_a_program_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    g: Any = rlx.Graph("bytes")
    g.set_outputs([g.sort(g.input("x", (3, 9), "i8"), 1)])
    artifact = Compilation(g, targets.target("vulkan", "desktop")).artifact()
    rows = np.arange(27, dtype=np.int8).reshape(3, 9)
    np.testing.assert_array_equal(load(artifact, {}).call([rows[:, ::-1].copy()])[0], rows)
    monkeypatch.setattr("rlx.targets.iree.devices.core_features", lambda: frozenset({"shaderInt16"}))
    with pytest.raises(rlx.ExecutionError, match="lacks shaderInt64, which programs use"):
        load(artifact, {})
