"""Quantised graphs: close to the f32 graph, equivalent at every step, and correct at edge cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES, dtype
from rlx.ir.op import opview
from tests.drawing import drawn, graph_seed
from tests.quantization.test_calibrate import Arrays, batches, network, weights

_INTEGERS = "rlx-quantize-propagate,rlx-quantize-fold,rlx-quantize-propagate,canonicalize,cse"


def ops(graph: rlx.Graph) -> list[str]:
    return [opview.name_of(op) for op in opview.operations(graph.function.entry_block) if op.name.startswith("rlx.")]


def error(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(got - wanted) / max(np.linalg.norm(wanted), 1e-6))


def recorded(graph: rlx.Graph, data: list[Arrays], params: Arrays, **options: Any) -> rlx.CalibrationRecord:
    return rlx.calibrate(graph, data, params=params, device=None, **options)


_SCHEMES = [
    ({}, 0.02),
    ({"symmetric": True}, 0.03),
    ({"smooth": 0.0}, 0.02),
    ({"activations": "dynamic"}, 0.02),
    ({"activations": "none"}, 0.01),
    ({"activations": "none", "weights": "int4"}, 0.15),
    ({"activations": "none", "weights": "int4", "group": 4}, 0.12),
]


def test_products_with_transposed_weights() -> None:
    """They are quantised as products with the transposes, in any stored dtype."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 12)).astype(np.float32)
    for kind in ("f32", "bf16"):
        w = rng.standard_normal((7, 12)).astype(dtype(kind).numpy)

        def made(product: Any, kind: str = kind, w: np.ndarray = w) -> rlx.Graph:
            g: Any = rlx.Graph("g")
            g.set_outputs([product(g, g.input("x", (5, 12)), g.param("w", (7, 12), kind, value=w))])
            return g

        graphs = (
            made(lambda g, x, w: g.matmul_transposed(x, w)),
            made(lambda g, x, w: g.matmul(x, g.transpose(g.cast(w, "f32")))),
        )
        results = []
        for graph in graphs:
            record = rlx.calibrate(graph, [{"x": x}], device=None)
            assert set(record.entries) == {"w"}
            results.append(rlx.evaluate(rlx.quantize(graph, record), {"x": x})[0])
        np.testing.assert_array_equal(*results)


@drawn("scheme", range(len(_SCHEMES)), of_each=2)
def test_schemes_are_near(scheme: int) -> None:
    """Schemes are close to f32 on the evaluator, with weights rounded in the graph or passed as parameters, and compiled."""
    options, most = _SCHEMES[scheme]
    graph, params, data = network(), weights(), batches()
    record = recorded(graph, data, params)
    (wanted,) = rlx.evaluate(graph, data[0] | params)
    at_load = rlx.quantize(graph, record, **options)
    assert {a.name for a in at_load.params} == set(params)
    (first,) = rlx.evaluate(at_load, data[0] | params)
    assert 0 < error(first, wanted) < most
    known = rlx.quantize(graph, record, params=params, **options)
    assert "w.quantised" in known.weights and "w" not in {a.name for a in known.params}
    rest = {name: params[name] for name in ("b", "b2")}
    (second,) = rlx.evaluate(known, data[0] | rest)
    np.testing.assert_array_equal(first, second)
    (compiled,) = rlx.Session().compile(known, params=rest).run(data[0])
    np.testing.assert_allclose(compiled, first, rtol=1e-4, atol=1e-4)


def test_products_are_of_integers() -> None:
    graph, params, data = network(), weights(), batches()
    record = recorded(graph, data, params)
    names = ops(rlx.quantize(graph, record, params=params, smooth=0))
    assert "q_conv2d" in names and "q_matmul" in names
    assert not {"conv", "matmul", "dequantize"} & set(names)
    assert names.count("quantize") == 2  # the image, and the input of the second product
    kept = ops(rlx.quantize(graph, record, params=params, keep=["w"]))
    assert "conv" in kept and "q_conv2d" not in kept
    stored = rlx.quantize(graph, record, params=params).weights
    assert sum(v.nbytes for v in stored.values()) < 0.5 * sum(v.nbytes for n, v in params.items() if n in ("w", "w2"))
    assert ops(graph) == ops(network())  # the original graph is unchanged


def random_network(seed: int) -> tuple[rlx.Graph, Arrays, list[Arrays]]:
    """Return products with weights of many forms, with possible ops between them: reshapes, concatenations, relu, sums."""
    random = np.random.default_rng(seed)
    g = rlx.Graph("random")
    x = g.input("x", (6, 8))
    values, params = [x], Arrays()
    for number in range(int(random.integers(2, 6))):
        source = values[int(random.integers(len(values)))]
        inner, outer = source.shape.static[-1], int(random.choice([4, 8]))
        w = g.param(f"w{number}", (inner, outer) if number % 2 else (outer, inner))
        y = g.matmul(source, w) if number % 2 else g.dot_general(source, w, [source.rank - 1], [1])
        shift = g.param(f"b{number}", (outer,))
        y = [y, y + shift, g.relu(y + shift), g.relu(y)][int(random.integers(4))]
        if random.integers(2):
            y = g.reshape(y, (2, 3, outer)) if y.rank == 2 else g.reshape(y, (6, outer))
        if random.integers(2):
            y = g.concat([y, y], y.rank - 1) if random.integers(2) else g.narrow(y, y.rank - 1, 1, outer - 2)
        params[f"w{number}"] = random.standard_normal(w.shape.static).astype(np.float32)
        params[f"b{number}"] = random.standard_normal(outer).astype(np.float32)
        values.append(y)
    g.set_outputs(values[1:])
    return g, params, [{"x": random.standard_normal((6, 8)).astype(np.float32)} for _ in range(3)]


@pytest.mark.parametrize("number", range(12))
def test_passes_keep_the_meaning_of_rounded_graphs(number: int, seed: int, tmp_path: Any) -> None:
    """Equal to the bit, except for the order of sums and rounding of biases. One round of passes suffices."""
    graph, params, data = random_network(graph_seed(seed, number))
    path = tmp_path / "record.json"
    recorded(graph, data, params).save(path)
    smooth = number % 3 / 2
    inserted = rlx.passes.run(graph, f"rlx-quantize-insert{{record={path} smooth={smooth}}}")
    wanted = rlx.evaluate(graph, data[0] | params)
    rounded = rlx.evaluate(inserted, data[0] | params)
    for got, exact in zip(rounded, wanted, strict=True):
        assert error(got, exact) < 0.4  # this network may amplify the error
    moved = rlx.passes.run(inserted, "rlx-quantize-propagate")
    for got, before in zip(rlx.evaluate(moved, data[0] | params), rounded, strict=True):
        np.testing.assert_array_equal(got, before)
    folded = rlx.passes.run(moved, "rlx-quantize-fold{requantise=false}")
    assert "matmul" not in ops(folded) and "dot_general" not in ops(folded)
    for got, before, exact in zip(rlx.evaluate(folded, data[0] | params), rounded, wanted, strict=True):
        # A sum of floats was rounded, which may change a later integer by one.
        assert error(got, before) < 0.05 and error(got, exact) < 0.4
    bytes_ = rlx.passes.run(inserted, _INTEGERS)
    for got, exact in zip(rlx.evaluate(bytes_, data[0] | params), wanted, strict=True):
        assert error(got, exact) < 0.4
    assert str(rlx.passes.run(bytes_, _INTEGERS)) == str(bytes_)


def test_edges() -> None:
    """Channels and activations may be 0 everywhere, or constant."""
    g = rlx.Graph("edges")
    x = g.input("x", (4, 6))
    g.set_outputs([g.matmul(x, g.param("w", (6, 3)))])
    w = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    w[:, 1] = 0
    for values in (np.zeros((4, 6), np.float32), np.full((4, 6), 2.5, np.float32), np.full((4, 6), -1e-30, np.float32)):
        record = recorded(g, [{"x": values}], {"w": w})
        schemes: list[dict[str, Any]] = [
            {},
            {"symmetric": True},
            {"activations": "dynamic"},
            {"activations": "none", "weights": "int4"},
        ]
        for options in schemes:
            quantised = rlx.quantize(g, record, params={"w": w}, **options)
            (got,) = rlx.evaluate(quantised, {"x": values})
            np.testing.assert_allclose(got, values @ w, rtol=0.2, atol=0.05 * np.abs(values).max())
            assert (got[:, 1] == 0).all()


def test_in_onnx(seed: int) -> None:
    """The integers of a linear layer equal those of `QuantizeLinear` and `QLinearMatMul` in ONNX's reference."""
    pytest.importorskip("onnx")
    from tests.ops.test_quant import _in_onnx

    random = np.random.default_rng(graph_seed(seed, 0))
    x, w = (random.integers(-128, 128, dims).astype(np.int8) for dims in ((5, 16), (16, 4)))
    scales = 2.0 ** random.integers(-9, -5, 4).astype(np.float32)
    operands = (
        x,
        np.float32(2**-4),
        np.int8(7),
        w,
        scales.astype(np.float32),
        np.zeros(4, np.int8),
        np.float32(0.5),
        np.int8(-3),
    )
    wanted = _in_onnx("QLinearMatMul", *(np.asarray(o) for o in operands))
    g = rlx.Graph("layer")
    floats = g.dequantize(g.input("x", (5, 16), "i8"), 2.0**-4, 7)
    rounded = g.dequantize(g.input("w", (16, 4), "i8"), scales, 0, axis=1)
    g.set_outputs([g.quantize(g.matmul(floats, rounded), 0.5, -3)])
    folded = rlx.passes.run(g, "rlx-quantize-fold")
    assert "q_matmul" in ops(folded) and "quantize" not in ops(folded)
    np.testing.assert_array_equal(rlx.evaluate(folded, {"x": x, "w": w})[0], wanted)


def test_dynamic_scales_need_no_record() -> None:
    graph, params = network(), weights()
    made = rlx.quantize(graph, params=params, activations="dynamic")
    assert "q_matmul" in ops(made) or "quantize" in str(made)
    given = batches()[0] | {a.name: params[a.name] for a in graph.params if a.name in params}
    expected = rlx.evaluate(graph, given)
    values = {a.name: given[a.name] for a in made.arguments if a.name in given and a.name not in made.weights}
    for got, wanted in zip(rlx.evaluate(made, values), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=0.1 * np.abs(wanted).max())


def test_what_is_asked_for_wrongly() -> None:
    graph, params, data = network(), weights(), batches()
    record = recorded(graph, data, params)
    broken = params | {"w": np.where(params["w"] == params["w"].max(), np.nan, params["w"])}
    other = rlx.Graph("other")
    other.set_outputs([other.matmul(other.input("x", (2, 3)), other.param("v", (3, 2)))])
    narrow = rlx.Graph("narrow")
    narrow.set_outputs([narrow.matmul(narrow.input("x", (2, 3)), narrow.param("w", (3, 2)))])
    plain = rlx.Graph("plain")
    plain.set_outputs([plain.relu(plain.input("x", (2,)))])
    path: Any = "record.json"
    batch: Any = data[0]
    for call, message in (
        (lambda: rlx.quantize(graph), "the scales of int8 activations come from a record"),
        (lambda: rlx.quantize(graph, record, weights="int2"), "weights is one of int8, int4"),
        (lambda: rlx.quantize(graph, record, activations="int4"), "activations is one of"),
        (lambda: rlx.quantize(graph, record, weights="int4"), "4 bits go with activations in f32"),
        (lambda: rlx.quantize(graph, record, smooth=2), "smooth must be"),
        (lambda: rlx.quantize(graph, record, group=3), "group must be an even number"),
        (lambda: rlx.quantize(graph, record, keep=["w3"]), r"no product 'w3' \(did you mean 'w'"),
        (lambda: rlx.quantize(other, record), "record has no product 'v'"),
        (lambda: rlx.quantize(narrow, record), "'w' has 3 channels, in the record 2"),
        (lambda: rlx.quantize(graph, record, params=broken), "param 'w' holds NaN or infinity"),
        (lambda: rlx.quantize(plain, activations="none"), "no product of activations with weights"),
        (lambda: rlx.quantize("text", record), "takes a Graph"),
        (lambda: rlx.quantize(graph, path), "record must be a CalibrationRecord, got str"),
        (lambda: rlx.quantize(graph, record, keep="w"), r"keep is a list of names, got the string 'w'"),
        (lambda: rlx.quantize(graph, record, params={"w3": params["w"]}), r"no parameter 'w3' \(did you mean 'w'"),
        (lambda: rlx.calibrate(graph, batch, params=params), r"must be a mapping.*\n.*batches is a list of them"),
    ):
        with pytest.raises(rlx.Error, match=message):
            call()


@pytest.mark.parametrize("activations", ["int8", "dynamic"])
def test_sensitivity(activations: str) -> None:
    graph, params, data = network(), weights(), batches()
    params["w2"][:, 3] *= (
        200  # a channel of large weights does not affect the others; a channel of large activations does
    )
    data = [{"x": b["x"] * np.array([1, 60], np.float32)[:, None, None]} for b in data]
    record = recorded(graph, data, params)
    report = rlx.quantization_sensitivity(
        graph, record, data[:1], params=params, activations=activations, smooth=0, device=None
    )
    assert {row.name for row in report.rows} == {"w", "w2"}
    assert [row.error for row in report.rows] == sorted((row.error for row in report.rows), reverse=True)
    (wanted,) = rlx.evaluate(graph, data[0] | params)
    for row in report.rows:
        others = [name for name in ("w", "w2") if name != row.name]
        alone = rlx.quantize(graph, record, activations=activations, smooth=0, keep=others)
        (got,) = rlx.evaluate(alone, data[0] | params)
        assert error(got, wanted) == pytest.approx(row.error, rel=0.05, abs=1e-4)
    assert "least cosine" in str(report) and "all together" in str(report)
    assert report.keep(0.5) == []
    strict = report.keep(1 - 1e-9)
    assert strict == [row.name for row in report.rows][: len(strict)] and strict
    with pytest.raises(rlx.Error, match="above 0 and below 1"):
        report.keep(1.5)
    with pytest.raises(rlx.Error, match="no batch"):
        rlx.quantization_sensitivity(graph, record, [], params=params, device=None)


@pytest.mark.parametrize("kind", DTYPES, ids=str)
@pytest.mark.parametrize("role", ["input", "param"])
def test_inputs_and_weights_of_every_dtype(kind: rlx.DType, role: str) -> None:
    """Products computed in f32 are quantised. Wider and complex dtypes are not."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 2, (64, 64)).astype(np.float32)  # values that every dtype has
    numbers = numbers + 1 if kind is rlx.f8e8m0fnu else numbers  # this dtype has no 0, but 2
    normal = rng.standard_normal((64, 64)).astype(np.float32)
    arrays = {n: numbers.astype(kind.numpy) if n == role else normal for n in ("input", "param")}
    g = rlx.Graph("main")
    x = g.input("x", (64, 64), kind if role == "input" else "f32")
    g.set_outputs([x @ g.param("w", (64, 64), kind if role == "param" else "f32", value=arrays["param"])])
    data = {"x": arrays["input"]}
    if kind.part.bits == 64 or kind.is_complex:
        for attempt in (
            lambda: rlx.calibrate(g, [data], device=None),
            lambda: rlx.quantize(g, activations="none", weights="int4"),
        ):
            with pytest.raises(rlx.Error, match="no product of activations with weights"):
                attempt()
        return
    record = rlx.calibrate(g, [data], device=None)
    wanted = rlx.evaluate(g, data)[0]
    assert error(rlx.evaluate(rlx.quantize(g, record), data)[0], wanted) < 0.02
    assert error(rlx.evaluate(rlx.quantize(g, activations="none", weights="int4"), data)[0], wanted) < 0.15
