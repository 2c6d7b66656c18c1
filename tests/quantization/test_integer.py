"""Integer-only graphs: compared with the floats that they represent, and equal to the bit on every compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import rlx
from rlx.ir.op import opview
from rlx.ir.shape import shape_of
from rlx.ops.quantization.requantize import BITS
from rlx.passes import run
from rlx.quantization.integer import primitive_graph
from tests.drawing import drawn
from tests.quantization.networks import NETWORKS, batches, integer_inputs, integer_network, network, weights

# The largest error of a result, in steps of its own scale. Rounding errors accumulate.
_STEPS = 5


@pytest.mark.parametrize("name", NETWORKS)
def test_results_are_those_of_the_floats(name: str) -> None:
    graph, integers = network(name), integer_network(name)
    params, known = weights(graph, 0), rlx.quantizations(integers)
    for op in opview.operations(integers.function.entry_block):
        assert not any(shape_of(v).dtype.is_inexact for v in (*op.operands, *op.results)), op
    for batch in batches(graph, 4, 1):  # the batches of the calibration: nothing is clipped
        expected = rlx.evaluate(graph, batch | params)
        got = rlx.evaluate(integers, integer_inputs(integers, batch))
        for output, wanted, array in zip(integers.outputs, expected, got, strict=True):
            if output.name not in known:
                np.testing.assert_array_equal(array, wanted)
                continue
            off = np.abs(known[output.name].dequantize(array) - wanted) / known[output.name].scale
            assert off.max() < _STEPS and np.median(off) < 2, (output.name, off.max())


@drawn("share", range(3))
@drawn("device", ["cpu", "xla"])
def test_compilers_give_the_same_bits(device: str, share: int) -> None:
    for i, name in list(enumerate(NETWORKS))[share::3]:
        mode = list(BITS)[i % len(BITS)]
        integers = integer_network(name, symmetric=i % 2 == 1, mode=mode, bits=(8, 4, 2)[i % 3])
        program = rlx.Session(device).compile(integers)
        for batch in batches(network(name), 2, 99):
            given = integer_inputs(integers, batch)
            for got, expected in zip(program.run(given), rlx.evaluate(integers, given), strict=True):
                np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize("name", ["u8", "i8"])
@pytest.mark.parametrize("scaled", [lambda x: x / 255, lambda x: x * 0.0078125, lambda x: 3 * x, lambda x: x])
def test_images_of_integers_are_inputs_as_they_are(name: str, scaled: Any) -> None:
    """A cast to floats and a positive factor only change the represented values, at no cost."""
    g = rlx.Graph("image")
    image = g.input("image", (1, 3, 8, 8), dtype=name)
    w = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    g.set_outputs([g.relu(g.conv(scaled(g.cast(image, "f32")), g.constant(w), padding=1))])
    limits = np.iinfo(image.dtype.numpy)
    pixels = [
        np.random.default_rng(i).integers(limits.min, limits.max, (1, 3, 8, 8), image.dtype.numpy) for i in range(3)
    ]
    integers = rlx.integer_only(g, rlx.observe_ranges(g, [{"image": p} for p in pixels], device=None))
    kinds = [op.name for op in opview.operations(integers.function.entry_block)]
    assert set(kinds) == {"rlx.constant", "rlx.q_conv2d", "rlx.requantize", "func.return"}
    known = rlx.quantizations(integers)
    assert known["image"].scale == 1
    ends = np.array([limits.min, limits.max], image.dtype.numpy)
    np.testing.assert_array_equal(known["image"].dequantize(known["image"].quantize(ends)), ends)
    for p in pixels:
        (got,) = rlx.evaluate(integers, {"image": known["image"].quantize(p)})
        (wanted,) = rlx.evaluate(g, {"image": p})
        (output,) = [known[o.name] for o in integers.outputs]
        assert np.abs(output.dequantize(got) - wanted).max() < _STEPS * output.scale


@pytest.mark.parametrize("factor", [-0.5, 0.0, 1e-45, 1e38])
def test_other_factors_are_products(factor: float) -> None:
    g = rlx.Graph("factor")
    x = g.input("x", (4, 5))
    g.set_outputs([x * factor])
    batch = {"x": np.linspace(-2, 2, 20, dtype=np.float32).reshape(4, 5)}
    integers = rlx.integer_only(g, rlx.observe_ranges(g, [batch], device=None))
    (got,) = rlx.evaluate(integers, integer_inputs(integers, batch))
    known = rlx.quantizations(integers)[integers.outputs[0].name]
    wanted = rlx.evaluate(g, batch)[0]
    np.testing.assert_allclose(known.dequantize(got), wanted, atol=_STEPS * known.scale)


def _constants(graph: rlx.Graph, op: str, operand: int) -> list[np.ndarray]:
    found = [o for o in opview.operations(graph.function.entry_block) if o.name == f"rlx.{op}"]
    return [opview.attributes_of(o.operands[operand].owner.operation)["value"] for o in found]


@pytest.mark.parametrize(("bits", "most"), [(8, 127), (4, 7), (2, 1)])
def test_weights_have_few_bits(bits: int, most: int) -> None:
    other = {8: 2, 4: 8, 2: 4}[bits]
    graph = integer_network("convolution", bits=bits, layers={"c1": other})
    first, second = _constants(graph, "q_conv2d", 1)
    assert np.abs(first).max() == {8: 127, 4: 7, 2: 1}[other]
    assert np.abs(second).max() == most and np.abs(_constants(graph, "q_matmul", 1)[0]).max() == most


def test_weights_as_trained_keep_their_grid() -> None:
    """fake_quantize of weights, with a separate scale: the integers are those of training."""
    g = rlx.Graph("trained")
    w = g.fake_quantize(g.param("w", (6, 3)), g.param("s", (3,)), bits=4, axis=1, scale_mode="fixed")
    g.set_outputs([g.fake_quantize(g.input("x", (2, 6))) @ w])
    scale = np.array([0.5, 0.25, 0.1], np.float32)
    steps = np.random.default_rng(0).integers(-7, 8, (6, 3))
    params = {"w": (steps * scale).astype(np.float32) + np.float32(0.01), "s": scale}
    ranges = rlx.observe_ranges(g, [{"x": np.ones((2, 6), np.float32)}], params=params, device=None)
    (weights_,) = _constants(rlx.integer_only(g, ranges, params=params), "q_matmul", 1)
    np.testing.assert_array_equal(weights_, steps)


def test_norms_are_folded_and_the_floats_stay_the_same() -> None:
    graph = network("convolution")
    folded, params = primitive_graph(graph, "test"), weights(graph, 3)
    behind = [o.name for o in opview.operations(folded.function.entry_block)]
    assert behind.count("rlx.conv") == 2 and "rlx.batch_norm_inference" not in behind
    for batch in batches(graph, 2, 5):
        (expected,), (got,) = (rlx.evaluate(g, batch | params) for g in (graph, folded))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_files_and_passes_give_the_same(tmp_path: Path) -> None:
    """The function is equivalent to passes over files."""
    graph = network("convolution")
    params = weights(graph, 0)
    ranges = rlx.observe_ranges(graph, batches(graph, 12, 1), params=params, device=None)
    ranges.save(tmp_path / "ranges.json")
    safetensors.numpy.save_file(params, tmp_path / "params.safetensors")
    text = (
        f"rlx-quantize-values{{ranges={tmp_path}/ranges.json bits=8 fc=4}},"
        f"rlx-bind-params{{file={tmp_path}/params.safetensors}},rlx-quantize-integer,rlx-constant-fold{{max-elements=16777216}},rlx-simplify,canonicalize,cse,"
        "rlx-quantize-boundary,canonicalize"
    )
    by_passes = run(primitive_graph(graph, "test"), text)
    assert str(by_passes) == str(rlx.integer_only(graph, ranges, params=params, layers={"fc": 4}))
    assert rlx.quantizations(rlx.parse(str(by_passes))) == rlx.quantizations(by_passes)


def test_one_parameter_may_be_bound(tmp_path: Path) -> None:
    g = rlx.Graph("two")
    g.set_outputs([g.input("x", (2,)) * g.param("a", (2,)) + g.param("b", (2,))])
    np.savez(tmp_path / "w.npz", a=np.array([3, 4], np.float32), b=np.zeros(3, np.float32))
    bound = run(g, f"rlx-bind-params{{file={tmp_path}/w.npz names=a}}")
    assert [a.name for a in bound.arguments] == ["x", "b"]
    given = {"x": np.array([1, 2], np.float32), "b": np.array([5, 6], np.float32)}
    np.testing.assert_array_equal(rlx.evaluate(bound, given)[0], [8, 14])
    with pytest.raises(rlx.Error, match="param 'b' is f32\\[2\\], its value f32\\[3\\]"):
        run(g, f"rlx-bind-params{{file={tmp_path}/w.npz}}")


def test_what_has_no_form_in_integers_is_listed() -> None:
    g = rlx.Graph("norms")
    x = g.input("x", (2, 8))
    h = g.layer_norm(x, g.param("s", (8,)), g.param("b", (8,)))
    g.set_outputs([g.cumsum(h, 1)])
    params = weights(g, 0)
    ranges = rlx.observe_ranges(g, batches(g, 2, 0), params=params, device=None)
    with pytest.raises(
        rlx.UnsupportedError, match=r"(?s)without a form in integers:.*cumsum at .*test_integer\.py:\d+"
    ):
        rlx.integer_only(g, ranges, params=params)
    mixed = rlx.integer_only(g, ranges, params=params, allow_float=True)
    given = integer_inputs(mixed, batches(g, 1, 0)[0])
    assert np.isfinite(rlx.evaluate(mixed, given)[0]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 3}, "weights have 8, 4 or 2 bits, not 3"),
        ({"layers": {"fd": 4}}, r"there is no product 'fd'\n  hint: products: c1, c2, fc"),
        ({"layers": {"fc": 5}}, "weights have 8, 4 or 2 bits, not 5"),
        ({"mode": "triple"}, "mode must be one of double, single, short, got 'triple'"),
        ({"layers": ["fc"]}, "layers is a mapping of names to bits, got list"),
        ({"ranges": None}, "ranges must be ValueRanges, got NoneType"),
        ({"ranges": {}}, "ranges must be ValueRanges, got dict"),
        ({"params": {}}, "param 'c1' is missing"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], message: str) -> None:
    graph = network("convolution")
    params = weights(graph, 0)
    ranges = rlx.observe_ranges(graph, batches(graph, 1, 1), params=params, device=None)
    with pytest.raises(rlx.Error, match=message):
        rlx.integer_only(graph, **{"ranges": ranges, "params": params, **options})


def test_ranges_of_another_graph_are_refused(tmp_path: Path) -> None:
    graph, other = network("convolution"), network("residual")
    ranges = rlx.observe_ranges(other, batches(other, 1, 1), params=weights(other, 0), device=None)
    with pytest.raises(rlx.Error, match="values, the ranges are of"):
        rlx.integer_only(graph, ranges, params=weights(graph, 0))
    with pytest.raises(rlx.Error, match="there is no batch"):
        rlx.observe_ranges(graph, [], params=weights(graph, 0), device=None)
    wrong = [{"x": np.full((1, 1, 12, 12), np.nan, np.float32)}]
    with pytest.raises(rlx.Error, match="batch 1: input 'x' holds NaN"):
        rlx.observe_ranges(graph, wrong, params=weights(graph, 0), device=None)
    (tmp_path / "x.json").write_text(
        '{"format": "rlx value ranges, 1", "method": "minmax", "batches": 1, "values": [[1]]}'
    )
    with pytest.raises(rlx.Error, match="is damaged"):
        rlx.ValueRanges.load(tmp_path / "x.json")


def test_sizes_have_to_be_known() -> None:
    """The hint names all symbols of the graph, and the call in it works."""
    g = rlx.Graph("symbolic")
    g.set_outputs([g.input("x", ("batch", "rows", 4)) @ g.param("w", (4, 3))])
    params = weights(g, 0)
    ranges = rlx.observe_ranges(g, [{"x": np.ones((2, 1, 4), np.float32)}], params=params, device=None)
    with pytest.raises(rlx.UnsupportedError, match="unknown: batch, rows") as caught:
        rlx.integer_only(g, ranges, params=params)
    hint = str(caught.value.hint)
    assert "--bind=batch=1 --bind=rows=1" in hint and "bind={'batch': 1, 'rows': 1}" in hint
    typed = hint[hint.index("rlx.passes.run(") :]
    integers = rlx.integer_only(eval(typed, {"rlx": rlx, "graph": g}), ranges, params=params)
    assert integers.inputs[0].shape.static == (1, 1, 4)
    bound = rlx.integer_only(g, ranges, params=params, bind={"batch": 1, "rows": 1})
    assert bound.text() == integers.text()
    batches = [{"x": np.ones((1, 1, 4), np.float32)}]
    found = rlx.search_bits(
        g, ranges, batches, params=params, max_bytes=6, bind={"batch": 1, "rows": 1}, progress=False
    )
    assert sum(-(-12 * bits // 8) for bits in found.layers.values()) <= 6
    with pytest.raises(rlx.UnsupportedError, match="unknown: rows"):
        rlx.integer_only(g, ranges, params=params, bind={"batch": 1})
    with pytest.raises(rlx.Error, match="the graph has no symbol size; it has batch, rows"):
        rlx.integer_only(g, ranges, params=params, bind={"size": 1})
    with pytest.raises(rlx.Error, match="bind: the size of batch must be an integer"):
        rlx.integer_only(g, ranges, params=params, bind={"batch": "1"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("c1", np.nan, "param 'c1' holds NaN or infinity"),
        ("fc", np.inf, "param 'fc' holds NaN or infinity"),
        ("norm.v", -5.0, "the weights of 'c2' hold NaN or infinity, with what multiplies them"),
        ("none", 0.0, "there is no parameter 'none'"),
    ],
)
def test_weights_are_finite(name: str, number: float, message: str) -> None:
    """The weights, and their products with the factors of norms. A negative variance has no root."""
    graph = network("convolution")
    params = weights(graph, 0)
    ranges = rlx.observe_ranges(graph, batches(graph, 1, 1), params=params, device=None)
    array = np.array(params.get(name, np.zeros(1, np.float32)))
    array.flat[0] = number
    with pytest.raises(rlx.Error, match=message):
        rlx.integer_only(graph, ranges, params=params | {name: array})


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_constants_beside_values_may_have_no_integer(number: float) -> None:
    """The error for a parameter that became NaN or infinite after the ranges were observed names the op that reads it."""
    ops: dict[str, Any] = {
        "sum": lambda g, x, b: x + b,
        "bias": lambda g, x, b: x @ np.eye(4, dtype=np.float32) + b,
        "max": lambda g, x, b: g.maximum(x, b),
        "concat": lambda g, x, b: g.concat([x, b], axis=0),
    }
    for name, op in ops.items():
        g: Any = rlx.Graph(name)
        g.set_outputs([op(g, g.relu(g.input("x", (2, 4))), g.param("b", (1, 4)))])
        ranges = rlx.observe_ranges(g, batches(g, 2, 0), params={"b": np.ones((1, 4), np.float32)}, device=None)
        params = {"b": np.array([[number, 1, 2, 3]], np.float32)}
        if number == np.inf and name in ("max", "concat"):
            rlx.integer_only(g, ranges, params=params)
            continue
        with pytest.raises(rlx.UnsupportedError, match="finite constants"):
            rlx.integer_only(g, ranges, params=params)


def test_quantisation_of_arrays_is_that_of_the_op() -> None:
    """Arrays are quantised as by the op, also floats without an integer, and without a NumPy warning."""
    quantization = rlx.quantizations(integer_network("convolution"))["x"]
    x = np.array([np.nan, np.inf, -np.inf, 1e38, -1e38, 0.5, 0.0], np.float32)
    g: Any = rlx.Graph("op")
    g.set_outputs([g.quantize(g.input("x", x.shape), quantization.scale, quantization.zero_point)])
    np.testing.assert_array_equal(quantization.quantize(x), rlx.evaluate(g, {"x": x})[0])
    assert quantization.quantize(np.nan) == quantization.zero_point and quantization.quantize(1e300) == 127
    with pytest.raises(rlx.Error, match="dequantize takes integers, got float64"):
        quantization.dequantize(np.nan)


def test_only_what_the_user_wrote_is_listed() -> None:
    g = rlx.Graph("sorted")
    g.set_outputs([g.sort(g.input("x", (4,)))])
    ranges = rlx.observe_ranges(g, batches(g, 2, 0), device=None)
    with pytest.raises(rlx.UnsupportedError) as caught:
        rlx.integer_only(g, ranges)
    assert "quantize at" not in str(caught.value) and "argsort at" in str(caught.value)


def test_floats_for_an_integer_input_are_to_be_quantised() -> None:
    """A cast of the floats would truncate them: the hint has a call that gives the integers of the input's scale."""
    g: Any = rlx.Graph("doubled")
    x, u, n = g.input("x", (3,), "i8"), g.input("u", (3,), "u8"), g.input("n", (3,), "i8")
    g.set_outputs({"y": x + x, "v": u + u, "m": n + n})
    text = str(g).replace(
        '{rlx.name = "m"})', '{rlx.name = "m"}) attributes {rlx.quantized = {u = [0.25, 3], x = [0.5, -2]}}'
    )
    graph, floats = rlx.parse(text), np.array([0.5, 1.0, -70.0], np.float32)
    assert graph.inputs[0].quantized == (0.5, -2) and graph.inputs[2].quantized is None
    right = {"x": np.array([-1, 0, -128], np.int8), "u": np.zeros(3, np.uint8), "n": np.zeros(3, np.int8)}
    program = rlx.Session().compile(graph)
    for call in (lambda values: rlx.evaluate(graph, values), program.run):
        call(right)
        for name, expected in (("x", [-1, 0, -128]), ("u", [5, 7, 0])):
            for given in (floats, floats.astype(np.float64), floats.astype(np.int32)):
                with pytest.raises(rlx.Error, match=f"input '{name}' must be") as caught:
                    call({**right, name: given})
                assert caught.value.hint is not None
                code, _, rest = caught.value.hint.removeprefix("quantise it with ").partition(": ")
                if given is not floats:
                    assert ("if it already has these integers, cast it" in rest) == (given.dtype.kind == "i")
                    continue
                got = eval(code, {"rlx": rlx, "numpy": np, "graph": graph, "x": given})
                np.testing.assert_array_equal(got, np.array(expected, got.dtype))
                call({**right, name: got})
        with pytest.raises(rlx.Error, match=r"hint: cast it with \.astype"):
            call({**right, "n": floats})


def test_an_artifact_keeps_the_scale_of_an_input(tmp_path: Path) -> None:
    compiled = rlx.Session().compile(integer_network(next(iter(NETWORKS))))
    compiled.save(tmp_path / "net.rlxa")
    for program in (compiled, rlx.load(tmp_path / "net.rlxa")):
        (argument, *_) = program.inputs
        with pytest.raises(rlx.Error, match=r"quantise it with rlx\.quantizations"):
            program.run({argument.name: np.zeros(argument.shape.static, np.float32)})
