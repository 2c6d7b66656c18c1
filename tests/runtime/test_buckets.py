"""Symbols that are bound, bucketed or dynamic, in an encoder and a decoder block."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.compilation import Compilation
from tests.drawing import drawn

HEADS, HEAD_DIM, WIDTH, HIDDEN = 2, 4, 8, 12


def _param(g: rlx.Graph, name: str, *shape: int) -> Any:
    return g.param(name, shape)


def encoder() -> rlx.Graph:
    """Build a post-norm block with a mask over keys."""
    g = rlx.Graph("encoder", stage="hir")
    x, mask = g.input("x", ("batch", "seq", WIDTH)), g.input("mask", ("batch", "seq"), "i32")
    square, vector = (WIDTH, WIDTH), (WIDTH,)
    shapes = [square, vector] * 4 + [
        vector,
        vector,
        (WIDTH, HIDDEN),
        (HIDDEN,),
        (HIDDEN, WIDTH),
        vector,
        vector,
        vector,
    ]
    weights = [_param(g, f"w{i}", *shape) for i, shape in enumerate(shapes)]
    g.set_outputs({"y": g.transformer_encoder_block(*[x, *weights, mask], num_heads=HEADS, mask_kind="custom")})
    return g


def decoder() -> rlx.Graph:
    """Build a causal pre-norm block: positions do not see later ones."""
    g = rlx.Graph("decoder", stage="hir")
    x = g.input("x", ("batch", "seq", WIDTH))
    cos, sin = (g.input(name, ("seq", HEAD_DIM // 2)) for name in ("cos", "sin"))
    square, vector, wide = (WIDTH, WIDTH), (WIDTH,), (WIDTH, HIDDEN)
    shapes = [vector, vector, square, square, square, square, vector, vector, wide, wide, (HIDDEN, WIDTH)]
    weights = [_param(g, f"w{i}", *shape) for i, shape in enumerate(shapes)]
    block = g.llama_decoder_block(*[x, *weights, cos, sin], num_heads=HEADS, head_dim=HEAD_DIM, num_kv_heads=HEADS)
    g.set_outputs({"y": block})
    return g


def _weights(g: rlx.Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    params = [a for a in g.arguments if a.kind == "param"]
    return {a.name: rng.uniform(-0.5, 0.5, a.shape.static).astype(np.float32) for a in params}


def _inputs(g: rlx.Graph, **sizes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    values: dict[str, np.ndarray] = {}
    for a in g.arguments:
        if a.kind == "input":
            shape = a.shape.bind(sizes).static
            values[a.name] = (
                np.ones(shape, np.int32) if a.name == "mask" else rng.uniform(-1, 1, shape).astype(np.float32)
            )
    return values


def _check(compiled: Any, g: rlx.Graph, weights: Mapping[str, np.ndarray], **sizes: int) -> None:
    inputs = _inputs(g, **sizes)
    (expected,) = rlx.evaluate(g, {**weights, **inputs})
    (got,) = compiled.run(inputs)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@drawn("device", [rlx.Device.CPU, rlx.Device.XLA])
@drawn("make", [encoder, decoder])
def test_bound_bucketed_and_dynamic(make: Any, device: Any) -> None:
    g, session = make(), rlx.Session(device)
    weights = _weights(g)
    bound = session.compile(g, params=weights, bind={"batch": 2, "seq": 5})
    _check(bound, g, weights, batch=2, seq=5)
    with pytest.raises(rlx.Error, match=r"input 'x' must be f32\[2, 5, 8\]"):
        bound.run(_inputs(g, batch=2, seq=4))
    dynamic = session.compile(g, params=weights)
    for batch, seq in ((2, 5), (1, 1), (3, 9)):
        _check(dynamic, g, weights, batch=batch, seq=seq)
    bucketed = session.compile(g, params=weights, buckets={"seq": [4, 9], "batch": [2]})
    assert bucketed.buckets == {"seq": (4, 9), "batch": (2,)}
    for batch, seq in ((2, 4), (1, 3), (2, 5), (1, 9)):
        _check(bucketed, g, weights, batch=batch, seq=seq)


@pytest.fixture(scope="module")
def sums() -> Any:
    g = rlx.Graph()
    x = g.input("x", ("n", 2))
    g.set_outputs({"y": x + 1.0, "z": g.concat([x, x], 1)})
    return rlx.Session().compile(g, buckets={"n": [8, 3, 3]})


def test_the_smallest_bucket_that_fits_runs(sums: Any) -> None:
    assert sums.buckets == {"n": (3, 8)} and sums.program_for(n=3).buckets == {}
    assert sums.program_for(n=3) is sums.program_for(n=0) is not sums.program_for(n=4)
    assert [str(sums.program_for(n=n).inputs[0].shape) for n in (3, 4)] == ["f32[3, 2]", "f32[8, 2]"]
    for n in (0, 1, 3, 4, 8):
        x = np.random.default_rng(n).standard_normal((n, 2)).astype(np.float32)
        named = sums.run_named({"x": x})
        np.testing.assert_array_equal(named["y"], x + 1)
        np.testing.assert_array_equal(named["z"], np.concatenate([x, x], 1))


def test_what_does_not_fit_says_so(sums: Any) -> None:
    with pytest.raises(rlx.ShapeError, match=r"(?s)n = 9 is larger than the largest bucket.*3, 8"):
        sums.run({"x": np.zeros((9, 2), np.float32)})
    with pytest.raises(rlx.Error, match=r"input 'x' must be f32\[n, 2\], got float32\[2, 3\]"):
        sums.run({"x": np.zeros((2, 3), np.float32)})
    with pytest.raises(rlx.Error, match=r"input 'x' .* is missing"):
        sums.run({})
    with pytest.raises(rlx.Error, match="there is no input 'w'"):
        sums.run({"x": np.zeros((1, 2), np.float32), "w": np.zeros(1)})
    with pytest.raises(rlx.Error, match=r"input 'x' must be f32\[n, 2\], got float32\[2\]"):
        sums.run(np.zeros(2, np.float32))
    x = np.ones((2, 2), np.float32)
    for given in (sums.run(x), sums.run([x]), sums(x=x), sums.run_async(x).result()):
        assert [r.tolist() for r in given] == [r.tolist() for r in sums.run({"x": x})]


def doubled() -> rlx.Graph:
    g = rlx.Graph("doubled")
    g.set_outputs([g.input("x", ("n",)) * 2.0])
    return g


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ({"m": [3]}, "the graph has no symbol 'm'; it has n"),
        ({"n": []}, "must be a list of integers"),
        ({"n": iter([])}, "must be a list of integers"),
        ({"n": {3: 4}}, "must be a list of integers"),
        ({"n": np.array(3)}, "must be a list of integers"),
        ({"n": "34"}, "must be a list of integers"),
        ({"n": [0]}, "must be a positive integer, got 0"),
        ({"n": [2.5]}, "must be a positive integer, got 2.5"),
        ({"n": [True]}, "must be a positive integer, got True"),
        ({3: [4]}, "the name of a symbol is a string, not 3"),
        ({"n": itertools.count(1)}, "more than 64 sizes of 'n'"),
        ({"n": range(1, 66)}, "more than 64 sizes of 'n'"),
    ],
)
def test_buckets_that_are_none(buckets: Any, message: str, uncompiled: None) -> None:
    with pytest.raises(rlx.Error, match=message):
        rlx.Session().compile(doubled(), buckets=buckets)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if anything is compiled."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a program was compiled")

    monkeypatch.setattr(Compilation, "artifact", refuse)


def test_more_buckets_than_a_file_can_have(uncompiled: None) -> None:
    g = rlx.Graph("two")
    g.set_outputs([g.input("x", ("n", "m")) * 2.0])
    with pytest.raises(rlx.Error, match="buckets: 72 programs; at most 64 are allowed"):
        rlx.Session().compile(g, buckets={"n": range(1, 9), "m": range(1, 10)})


@pytest.mark.parametrize("sizes", [iter([8, 3]), {8, 3}, np.array([3, 8]), (np.int64(8), 3, 3)])
def test_sizes_are_any_iterable(sizes: Any) -> None:
    program = rlx.Session().compile(doubled(), buckets={"n": sizes})
    assert program.buckets == {"n": (3, 8)}
    assert program.run({"x": [1, 2, 3, 4]})[0].tolist() == [2, 4, 6, 8]


def test_sizes_of_program_for_are_checked(sums: Any) -> None:
    for sizes, message in (
        ({"n": 2.5}, "the size of 'n' must be an integer of at least 0, got 2.5"),
        ({"n": True}, "must be an integer of at least 0, got True"),
        ({"n": "3"}, "must be an integer of at least 0, got '3'"),
        ({"n": -1}, "must be an integer of at least 0, got -1"),
        ({"n": 9}, "n = 9 is larger than the largest bucket"),
        ({}, "the size of 'n' is missing"),
        ({"n": 3, "m": 3}, "there is no bucketed symbol 'm'"),
    ):
        with pytest.raises(rlx.Error, match=message):
            sums.program_for(**sizes)
    assert sums.program_for(n=np.int32(3)) is sums.program_for(n=3)
    with pytest.raises(rlx.Error, match="the program has no buckets"):
        sums.program_for(n=3).program_for(n=3)


def test_calls_of_one_function_name_the_buckets(sums: Any) -> None:
    for call in ("artifact", "cost", "profile"):
        with pytest.raises(rlx.Error, match=rf"{call}: the program has the buckets n: 3, 8\n.*program_for\(n=3\)"):
            getattr(sums, call)()
    assert sums.program_for(n=8).cost().flops
    assert "for cpu" in repr(sums) and "with buckets n: 3, 8>" in repr(sums) and "x: f32[n, 2]" in repr(sums)


def weighted() -> Any:
    g: Any = rlx.Graph("weighted")
    x, w = g.input("x", ("n", 2)), g.param("w", (2,))
    g.set_outputs({"y": x * w, "total": g.sum(x)})
    return g


@drawn("device", [rlx.Device.CPU, rlx.Device.XLA])
def test_every_kind_of_run(device: Any) -> None:
    w = np.array([2, 3], np.float32)
    program = rlx.Session(device, threads=1).compile(weighted(), params={"w": w}, buckets={"n": [2, 4]})
    futures, inputs = [], [np.full((n, 2), n, np.float32) for n in (1, 2, 3, 4)]
    for x in inputs:
        changed = x.copy()
        futures.append(program.run_async({"x": changed}))
        changed[...] = 0
    for x, future in zip(inputs, futures, strict=True):
        on_device = program.run_device({"x": x})
        for y, total in (program.run({"x": x}), future.result(60), on_device, program.run_named({"x": x}).values()):
            np.testing.assert_array_equal(y, x * w)
            assert total == x.sum()
        (again, _) = program.run({"x": on_device[0]})
        np.testing.assert_array_equal(again, x * w * w)
    with pytest.raises(rlx.ShapeError, match="n = 5 is larger"):
        program.run_async({"x": np.ones((5, 2), np.float32)})
    program.set_param("w", w * 2)
    np.testing.assert_array_equal(program.run({"x": inputs[2]})[0], inputs[2] * w * 2)


def test_an_error_of_loading_leaves_donated_arrays() -> None:
    g: Any = rlx.Graph("donated")
    g.set_outputs({"y": g.input("x", ("n",), donate=True) * g.param("w", ())})
    program = rlx.Session().compile(g, buckets={"n": [2, 4]})
    (x,) = rlx.Session().compile(doubled()).run_device({"x": [1, 2]})
    with pytest.raises(rlx.Error, match="1 parameters are not set: 'w'"):
        program.run({"x": x})
    assert not x.is_donated
    program.set_param("w", 3.0, cast=True)
    assert program.run({"x": x})[0].tolist() == [6, 12] and x.is_donated


def test_an_error_of_sizes_leaves_donated_arrays() -> None:
    """Every check of sizes comes before the donation: by symbols, by buckets, and by requirements of ops."""
    g: Any = rlx.Graph("windows")
    x, y = (g.input(name, ("n", "m"), donate=True) for name in "xy")
    g.set_outputs({"y": g.narrow(x + y, 1, 0, 3)})
    source: Any = rlx.Graph("source")
    source.set_outputs({"y": source.input("x", ("n", "m")) * 2.0})
    arrays = rlx.Session().compile(source)
    for buckets in (None, {"n": [2, 4]}):
        program = rlx.Session().compile(g, buckets=buckets)
        cases = [((2, 3), (1, 3), "symbol 'n'"), ((2, 2), (2, 2), "narrow")]
        if buckets:
            cases.append(((5, 3), (5, 3), "n = 5 is larger than the largest bucket"))
        for shape, other, message in cases:
            for run in (program.run, program.run_async, program.run_device):
                (x,) = arrays.run_device({"x": np.ones(shape, np.float32)})
                with pytest.raises(rlx.ShapeError, match=message):
                    run({"x": x, "y": np.ones(other, np.float32)})
                assert not x.is_donated


def test_sizes_that_cannot_be_padded_are_refused() -> None:
    g = rlx.Graph()
    x = g.input("x", ("n",))
    g.set_outputs({"twice": g.concat([x, x], 0)})
    with pytest.raises(rlx.ShapeError, match=r"output 'twice' has the size 2\*n, of which padding is not at the end"):
        rlx.Session().compile(g, buckets={"n": [4]})
    g = rlx.Graph()
    state = g.state("s", (2,))
    g.update(state, state + 1.0)
    g.set_outputs([g.input("x", ("n",))])
    with pytest.raises(rlx.Error, match=r"the graph has states \(s\)"):
        rlx.Session().compile(g, buckets={"n": [4]})
    g = rlx.Graph()
    g.set_outputs([g.input("x", ("n",)) * g.param("w", ("n",))])
    with pytest.raises(rlx.Error, match="param 'w' has the size n: only inputs can be padded"):
        rlx.Session().compile(g, buckets={"n": [4]})
