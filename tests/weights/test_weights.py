"""`Weights` as programs take them, and the interface for other encodings."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import rlx
from rlx.ir.interface import Argument
from rlx.support.errors import Error
from rlx.weights import Encoding, Weight, Weights
from rlx.weights.arrays import keep
from rlx.weights.weight import finite

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


@pytest.fixture(scope="module")
def program() -> Any:
    g: Any = rlx.Graph("g")
    g.set_outputs([g.input("x", (2, 3)) @ g.param("w", (3, 2))])
    return rlx.Session(threads=1).compile(g)


@pytest.fixture(params=["w.safetensors", "w.npz"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    arrays = {"unused": np.array([np.nan]), "w": W, "strings" if request.param == "w.npz" else "bytes": np.arange(3)}
    made = tmp_path / request.param
    np.savez(made, **arrays) if made.suffix == ".npz" else save_file(arrays, made)  # type: ignore[arg-type]
    return made


def given(program: Any, params: Any) -> np.ndarray:
    program.set_params(params)
    return program.run({"x": X})[0]


def test_a_program_takes_a_path_weights_or_some_of_them(program: Any, path: Path) -> None:
    weights = rlx.weights.open(path)
    for params in (path, str(path), weights, {"w": weights["w"]}, dict(Weights.of({"w": W})), Weights.of({"w": W})):
        np.testing.assert_array_equal(given(program, params), X @ W)


def test_only_the_graphs_tensors_are_read(program: Any) -> None:
    read = []

    def of(name: str, array: np.ndarray) -> Weight:
        (weight,) = Weights.of({name: array}).values()
        return Weight(name, weight.shape, weight.encoding, weight.nbytes, "w", lambda: read.append(name) or array.data)

    given(program, Weights([of("v", X), of("w", W)], "w"))
    assert read == ["w"]
    read.clear()
    with pytest.raises(Error, match=r"param 'w' must be f32\[3, 2\], got float32\[2, 3\]"):
        program.set_params(Weights([of("w", X)], "w"))
    assert not read, "it is checked before it is read"


def test_what_a_program_misses_is_named(program: Any, path: Path) -> None:
    with pytest.raises(Error, match="the mapping has no tensor 'w'"):
        program.set_params(Weights.of({"v": W}))
    with pytest.raises(Error, match="there is no parameter '"):
        program.set_params(dict(rlx.weights.open(path)))
    with pytest.raises(Error, match=r"tensor 'w'.*holds 1 NaN"):
        program.set_params(Weights.of({"w": np.where(W > 5, np.nan, W).astype(np.float32)}))
    with pytest.raises(Error, match="params must be a mapping or a path, got int"):
        program.set_params(5)


def test_the_counts_of_a_state_dict_are_left_out() -> None:
    """No op uses the counts of PyTorch's batch norms. All other names must be known."""
    g = rlx.Graph("counts")
    g.set_outputs([g.input("x", (1, 3)) @ g.param("w", W.shape)])
    x, count = np.ones((1, 3), np.float32), {"bn.num_batches_tracked": np.array(7), "num_batches_tracked": np.array(7)}
    expected = rlx.evaluate(g, {"x": x, "w": W})[0]
    assert np.array_equal(rlx.evaluate(g, {"x": x, "w": W, **count})[0], expected)
    for program in (
        rlx.Session(threads=1).compile(g, params={"w": W, **count}),
        rlx.Session(threads=1).compile({"f": g}),
    ):
        program.set_params({"w": W, **count})
    rlx.quantize(g, activations="dynamic", params={"w": W, **count})
    loss = rlx.Graph("loss")
    loss.set_outputs([loss.sum(loss.input("x", (1, 3)) @ loss.param("w", W.shape))])
    rlx.train.TrainStep(loss, rlx.train.SGD(0.1), params={"w": W, **count})
    with pytest.raises(Error, match=r"there is no parameter 'bn.batches'.*; there are w") as caught:
        rlx.Session(threads=1).compile(g, params={"w": W, "bn.batches": W})
    assert "rlx.weights.Weights.of(mapping)" in str(caught.value)


def test_a_mapping(path: Path) -> None:
    weights = rlx.weights.open(path)
    assert "w" in weights and "none" not in weights and 5 not in weights and weights.get("none") is None
    with pytest.raises(KeyError):
        weights["none"]
    with pytest.raises(Error, match=rf"^{path} has no tensor 'none'$"):
        weights["none"]
    assert repr(weights) == f"<Weights of {path}: 3 tensors>"
    assert repr(weights["w"]).startswith("Weight(name='w', shape=(3, 2), encoding=Plain(")


# Every way to obtain memory that may be the weight's own.
WAYS: dict[str, Callable[[Weight], Any]] = {
    "stored": lambda w: w.stored(),
    "numpy": lambda w: w.numpy(),
    "asarray": np.asarray,
    "array without a copy": lambda w: np.array(w, copy=None),
    "array with a copy": np.array,
    "another dtype": lambda w: np.asarray(w, np.float64),
    "view": lambda w: w.numpy().view(),
    "part": lambda w: w.numpy()[1:],
    "reshaped": lambda w: w.stored().reshape(2, -1),
    "memoryview": lambda w: np.asarray(w.stored().data),
    "read": lambda w: np.frombuffer(w.read(), np.uint8),
    "values_of": lambda w: Weights([w], "f").values_of([Argument("w", "param", rlx.Shape(w.shape, "f32"))])["w"],
    "finite": finite,
}


def test_weights_do_not_change(program: Any, path: Path) -> None:
    """Weights do not change if a caller modifies the arrays from a weight, or those that it was created from."""
    np.savez_compressed(path.parent / "small.npz", w=W)
    np.save(path.parent / "w.npy", np.asfortranarray(W))
    files = (path, path.parent / "small.npz", path.parent / "w.npy")
    weights = [rlx.weights.open(file)["w"] for file in files]
    sources = [
        W.copy(),
        np.asfortranarray(W),
        np.frombuffer(W.tobytes(), np.float32).reshape(W.shape),
        W.copy().T.copy().T,
    ]
    weights += [Weights.of({"w": source})["w"] for source in sources]
    lent = W.copy()
    weights.append(Weight("w", W.shape, weights[0].encoding, W.nbytes, "f", lambda: lent.data))
    for weight in weights:
        program.set_params(Weights([weight], "the weights"))
        for name, way in WAYS.items():
            if weight is not weights[-1]:
                spoil(way(weight))
            elif name != "read":  # which returns an array of the caller
                way(weight).flags.writeable = way(weight).flags.writeable
        for source in sources:
            spoil(source)
        np.testing.assert_array_equal(weight, W)
        np.testing.assert_array_equal(program.run({"x": X})[0], X @ W)
    mine = W.copy()
    weights = Weights.of({"w": mine})
    mine[...] = 0
    np.testing.assert_array_equal(weights["w"], W)


def spoil(array: np.ndarray) -> None:
    """Write to an array, and to its base, by all means that NumPy has."""
    owner: Any = array
    while owner is not None:
        if isinstance(owner, np.ndarray):
            with contextlib.suppress(ValueError):
                owner.flags.writeable = True
            with contextlib.suppress(ValueError):
                owner[...] = 77
        owner = owner.base if isinstance(owner, np.ndarray) else getattr(owner, "obj", None)


def test_a_file_that_takes_the_place_of_another_changes_nothing(program: Any, path: Path, tmp_path: Path) -> None:
    """Loaded weights do not change if their file is replaced, as by `TrainStep.save` and careful tools."""
    array = rlx.weights.open(path)["w"].numpy()
    program.set_params(path)
    os.replace(path, tmp_path / "old")
    path.write_bytes(bytes(10))
    np.testing.assert_array_equal(array, W)
    np.testing.assert_array_equal(program.run({"x": X})[0], X @ W)
    if path.suffix == ".safetensors":
        assert keep(array) is array, "it is constant: there is no need for a copy"


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY", b"GGUF", b"\0" * 100])
def test_files_that_are_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(Error, match=f"cannot read {tmp_path / 'w'}"):
        rlx.weights.open(tmp_path / "w")
    with pytest.raises(Error, match=rf"no such file: {tmp_path}/model\.safetensors"):
        rlx.weights.open(tmp_path)


@pytest.mark.parametrize("path", [None, 5, "", "a\0b"])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(Error, match="expected the path of a file of weights"):
        rlx.weights.open(path)


# --- graphs that carry their weights --------------------------------------------------------------


def test_a_graph_carries_values_of_its_parameters(path: Path) -> None:
    g: Any = rlx.Graph("g")
    w = g.param("w", (3, 2), value=rlx.weights.open(path)["w"])
    g.set_outputs([g.sum(g.input("x", ("n", 3)) @ w + g.param("b", (2,)))])
    b = np.ones(2, np.float32)
    expected = (X @ W + 1).sum()
    given = {"x": X, "b": b}
    for graph in (g, g.clone(), rlx.passes.run(g, "builtin.module(rlx-bind{n=2},canonicalize)")):
        assert list(graph.weights) == ["w"]
        np.testing.assert_array_equal(rlx.evaluate(graph, given), [expected])
    np.testing.assert_array_equal(rlx.evaluate(g, given | {"w": W * 0}), [4])
    compiled = rlx.Session(threads=1).compile(g, bind={"n": 2}, params={"b": b})
    np.testing.assert_array_equal(compiled.run({"x": X})[0], expected)
    assert "w" not in rlx.vmap(g, batched={"w": 0}, size=2).weights
    step = rlx.train.TrainStep(g, rlx.train.SGD(0.5), params={"b": b}, bind={"n": 2}, threads=1)
    assert step({"x": X})["loss"] == expected
    np.testing.assert_array_equal(step.params()["w"], W - 0.5 * X.sum(0)[:, None])
    with pytest.raises(TypeError):
        g.weights["b"] = b


@pytest.mark.parametrize("value", [W.T, W.astype(np.float64), W.tolist(), 5])
def test_a_value_that_does_not_fit(value: Any) -> None:
    with pytest.raises(rlx.ShapeError, match=r"test_weights\.py:\d+: param 'w' is f32\[3, 2\], its value "):
        rlx.Graph("g").param("w", (3, 2), value=value)


# --- another encoding -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Nibbles(Encoding):
    """Two numbers from -8 to 7 per byte, the low one first, times a scale."""

    scale: float

    @property
    def name(self) -> str:
        return "nibbles"

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        count = int(np.prod(shape))
        if count % 2:
            raise Error(f"{count} numbers are no pairs")
        return count // 2

    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        pairs = np.stack([stored & 15, stored >> 4], -1).astype(np.float32)
        return ((pairs - 8) * np.float32(self.scale)).reshape(shape)


@dataclass(frozen=True)
class Giving(Nibbles):
    """A faulty encoding: whatever is stored, it returns the same values."""

    result: Any

    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return self.result


def test_packed_weights_are_taken_as_plain_ones(program: Any) -> None:
    encoding, data = Nibbles(0.5), bytes([0x98, 0xBA, 0xDC])
    weight = Weight("w", (3, 2), encoding, encoding.nbytes((3, 2)), "packed", lambda: data)
    expected = np.array([[0, 0.5], [1, 1.5], [2, 2.5]], np.float32)
    assert weight.stored().tobytes() == data and weight.encoding is encoding
    np.testing.assert_array_equal(weight.numpy(), expected, strict=True)
    np.testing.assert_array_equal(given(program, Weights([weight], "packed")), X @ expected)
    for wrong in (None, [1.0], expected.astype(np.float64), expected.ravel(), expected.T):
        changed = dataclasses.replace(weight, encoding=Giving(0.5, wrong))
        with pytest.raises(
            Error, match=r"tensor 'w' of packed: values of .*'nibbles' must return float32\[3, 2\], got "
        ):
            changed.numpy()
    short = dataclasses.replace(weight, read=lambda: data[:2])
    with pytest.raises(Error, match="tensor 'w' of packed has 2 bytes, and 3 are expected"):
        short.numpy()
