"""Python numbers, lists and values of rank 0 as arguments, and checkpoints of other dtypes as parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import rlx


def sums() -> rlx.Graph:
    """Return `{"f": x + w, "i": 2·n, "p": ¬p}`: inputs of three dtypes and a parameter."""
    g = rlx.Graph("sums")
    x, n, p, w = g.input("x", (2,)), g.input("n", (), "i32"), g.input("p", (), rlx.bool_), g.param("w", (2,))
    g.set_outputs({"f": x + w, "i": n + n, "p": g.logical_not(p) if hasattr(g, "logical_not") else p})
    return g


@pytest.fixture(scope="module")
def compiled() -> Any:
    return rlx.Session(threads=1).compile(sums())


GIVEN = {"x": [1, 2.5], "n": 3, "p": True, "w": (0.1, -1)}
REFUSED = [
    ("n", 1.5, "'n' is i32: 1.5 does not fit i32"),
    ("n", 2**31, "does not fit i32"),
    ("n", np.float64(1.5), r"'n' must be i32\[\], got float64\[\]"),
    ("n", np.float32(2), r"'n' must be i32\[\], got float32\[\]"),
    ("n", True + 0.5j, "does not fit i32"),
    ("n", [3], r"must be i32\[\], got int32\[1\]"),
    ("p", 2, "does not fit bool"),
    ("x", [1e300, 0], "does not fit f32"),
    ("x", [2**24 + 1, 0], "does not have the integer 16777217"),
    ("x", [[1], [1, 2]], "no array of numbers"),
    ("x", [1, "a"], "input 'x': expected numbers in the list, got 'a'"),
    ("x", [None, 1], "input 'x': expected numbers in the list, got None"),
    ("x", np.array([1.0, 2.0]), "got float64"),
    ("x", [np.zeros(1)], "the list has an array of float64"),
    ("x", 1.0, r"must be f32\[2\], got float32\[\]"),
    ("x", None, "must be an array"),
]


def of_kind(compiled: Any, values: dict[str, Any]) -> list[np.ndarray]:
    compiled.set_param("w", values["w"])
    return compiled.run({name: value for name, value in values.items() if name != "w"})


@pytest.mark.parametrize(
    "values",
    [
        GIVEN,
        GIVEN | {"n": np.int64(3), "p": np.True_, "x": [np.float32(1), 2.5]},
        GIVEN | {"n": np.array(3), "p": 1, "x": np.array([1, 2.5], np.float32)},
        GIVEN | {"n": 3.0, "x": (1, np.array(2.5, np.float32))},
    ],
)
def test_what_is_written_takes_the_dtype_of_the_argument(compiled: Any, values: dict[str, Any]) -> None:
    expected = [np.array([1, 2.5], np.float32) + np.array([0.1, -1], np.float32), np.int32(6)]
    for results in (of_kind(compiled, values), rlx.evaluate(sums(), values)):
        for result, wanted in zip(results[:2], expected, strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_what_would_lose_something_is_refused(compiled: Any, name: str, value: Any, message: str) -> None:
    compiled.set_param("w", [0, 0])
    with pytest.raises(rlx.Error, match=message):
        of_kind(compiled, GIVEN | {name: value})
    with pytest.raises(rlx.Error, match=message):
        rlx.evaluate(sums(), GIVEN | {name: value})


STORED = [np.float16, np.float64, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", STORED)
def test_checkpoints_of_other_dtypes_load_with_cast(compiled: Any, tmp_path: Path, dtype: Any) -> None:
    array = np.array([0.3, -2.0]).astype(dtype)
    path = tmp_path / "w.safetensors"
    save_file({"w": array}, path)
    for params in ({"w": array}, path, rlx.weights.open(path)):
        with pytest.raises(rlx.Error, match=r"(?s)must be f32\[2\], got .*cast=True"):
            compiled.set_params(params)
        compiled.set_params(params, cast=True)
        result = compiled.run({"x": [0, 0], "n": 0, "p": False})[0]
        np.testing.assert_array_equal(result, array.astype(np.float32))
    program = rlx.Session(threads=1).compile(sums(), params={"w": array}, cast=True)
    np.testing.assert_array_equal(program.run({"x": [0, 0], "n": 0, "p": False})[0], array.astype(np.float32))


def test_a_cast_loses_no_magnitude_and_no_shape(compiled: Any) -> None:
    with pytest.raises(rlx.Error, match=r"param 'w', float64\[2\]: 1e\+300 does not fit f32"):
        compiled.set_param("w", np.array([1e300, 0]), cast=True)
    with pytest.raises(rlx.Error, match=r"must be f32\[2\], got float32\[3\]"):
        compiled.set_param("w", np.zeros(3), cast=True)
    with pytest.raises(rlx.Error, match="cast is True or False"):
        compiled.set_param("w", np.zeros(2), cast="f32")


@pytest.mark.parametrize(
    ("name", "stored"),
    [("float8_e4m3fn", "u1"), ("float8_e5m2", "u1"), ("float4_e2m1fn", "u1"), ("bfloat16", "u2")],
)
def test_bytes_of_a_float_are_viewed_and_numbers_cast(name: str, stored: str) -> None:
    """For unsigned integers of the same size the hint mentions both ways: a cast of raw bytes would destroy them."""
    kind = getattr(ml_dtypes, name)
    g: Any = rlx.Graph("stored")
    g.set_outputs([g.param("w", (2,), kind) + 0.0])
    values = np.array([0.5, 1.0], kind)
    cast = rf"\.astype\(ml_dtypes\.{name}\)"
    for take in (lambda w: rlx.evaluate(g, {"w": w}), lambda w: g.param("v", (2,), kind, value=w)):
        with pytest.raises(rlx.Error, match=rf"(?s)bytes of {name}, use \.view\(ml_dtypes\.{name}\).*{cast}"):
            take(values.view(stored))
        with pytest.raises(rlx.Error, match=rf"hint: cast it with {cast}"):
            take(values.astype(np.float32))
    assert rlx.evaluate(g, {"w": values.view(stored).view(kind)})[0].tolist() == [0.5, 1.0]


def test_a_number_that_masks_is_one_of_the_dtype() -> None:
    g: Any = rlx.Graph("mask")
    mask = g.input("mask", (2,), "bool")
    for kind, number, hint in (
        ("f16", -1e9, "or, to mask, -65504.0 or -inf"),
        ("f16", 1e9, "or, to mask, 65504.0 or inf"),
        ("f8e4m3fn", -1e9, "or, to mask, -448.0$"),
    ):
        x = g.input(f"x_{len(g.inputs)}", (2,), kind)
        with pytest.raises(rlx.Error, match=hint):
            g.where(mask, x, number)


def test_buckets_and_models_take_lists_too() -> None:
    g = rlx.Graph("padded")
    g.set_outputs([g.input("x", ("n",)) * g.param("w", ())])
    bucketed = rlx.Session(threads=1).compile(g, buckets={"n": [2, 4]}, params={"w": np.float64(0.1)}, cast=True)
    np.testing.assert_array_equal(bucketed.run({"x": [1, 2, 3]})[0], np.array([1, 2, 3], np.float32) * np.float32(0.1))

    @rlx.model
    def scaled(x: rlx.Input(2), w: rlx.Param()) -> Any:  # type: ignore[valid-type]
        return x * w

    np.testing.assert_array_equal(scaled([1, 2], w=0.5), [0.5, 1.0])


def test_a_printed_module_does_not_hide_the_cause() -> None:
    dump = [f"  %{i} = stablehlo.add %{i - 1}, %{i - 1} : tensor<4xf32>" for i in range(900)]
    message = "\n".join(["XLA: it does not compile", *dump, "error: 'stablehlo.foo' op is not known", "x" * 9000])
    problem = rlx.CompileError(message, hint="a hint")
    assert problem.details == message and len(message) > 44000 and len(str(problem)) < 6000
    assert str(problem).splitlines()[1] == "error: 'stablehlo.foo' op is not known"
    assert "all are in the attribute `details`" in str(problem) and str(problem).endswith("hint: a hint")
    assert rlx.CompileError("short\nerror: x").message == "short\nerror: x"
    listed = "\n".join(f"rlx.op{i}: model.py:{i}" for i in range(900))
    assert rlx.UnsupportedError(listed).message == listed


MESSAGES = [
    (lambda g, x: g.sum([x, x]), r"rlx.reduce: operand 'x' must be a tensor, got a list of 2\n.*g.stack"),
    (lambda g, x: g.mean([1, 2]), r"got a list of 2\n.*g.constant"),
    (lambda g, x: g.reshape(None, (3,)), "operand 'x' must be a tensor, got NoneType"),
    (lambda g, x: rlx.Session("gpu"), r"'gpu' is no device: rlx.Session\('cuda'\)(?s:.*)found here: "),
    (lambda g, x: rlx.Session("mps"), r"'mps' is no device: rlx.Session\('metal'\)"),
    (
        lambda g, x: rlx.Session().compile(sums(), params={"W": [0, 0]}),
        r"no parameter 'W' \(did you mean 'w'\?\); there are w",
    ),
]


@pytest.mark.parametrize(("call", "message"), MESSAGES)
def test_messages_say_what_to_type(call: Any, message: str) -> None:
    g = rlx.Graph("g")
    with pytest.raises(rlx.Error, match=message):
        call(g, g.input("x", (2, 2)))


def test_files_of_other_formats_are_named(compiled: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w=np.array([1, 2], np.float32))
    compiled.set_params(tmp_path / "w.npz")
    (tmp_path / "model.pt").write_bytes(b"\x80\x04" + bytes(100))
    with pytest.raises(rlx.Error, match=r"(?s)model.pt.*pickled objects.*safetensors.torch.save_file"):
        compiled.set_params(tmp_path / "model.pt")
    np.savez(tmp_path / "o.npz", w=np.array([1, None], object))
    with pytest.raises(rlx.Error, match="'w'"):
        compiled.set_params(tmp_path / "o.npz")
