"""safetensors files: every dtype of the format, several files of one model, and files that are damaged."""

from __future__ import annotations

import gc
import json
import math
import os
import shutil
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import deserialize
from safetensors.numpy import save_file

import rlx
from rlx.ir.dtype import DTYPES
from rlx.ir.packing import pack
from rlx.weights import open as open_weights
from rlx.weights.safetensors import write
from tests.bit_patterns import bit_patterns

BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
UNKNOWN = {"F6_E2M3": 6, "F6_E3M2": 6}


def written(path: Path, header: Any, body: bytes, length: int | None = None) -> Path:
    """Write a file with this header, as text or as a JSON value. `length` is the declared length of the header."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + body)
    return path


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize("dtype", BITS)
def test_every_dtype_that_numpy_has(dtype: str, tmp_path: Path) -> None:
    bits = BITS[dtype]
    weight = open_weights(written(tmp_path / "w", {"w": entry(dtype, (8,), (0, bits))}, bytes(bits)))["w"]
    array = weight.numpy()
    assert (weight.dtype, weight.shape, weight.nbytes) == (array.dtype, array.shape, array.nbytes)
    assert array.itemsize * 8 == bits and not np.any(array.astype(np.complex64))


@pytest.mark.parametrize("dtype", UNKNOWN)
def test_others_are_refused_when_they_are_used(dtype: str, tmp_path: Path) -> None:
    bits = UNKNOWN[dtype]
    header = {"w": entry(dtype, (8,), (0, bits)), "v": entry("U8", (1,), (bits, bits + 1))}
    weights = open_weights(written(tmp_path / "w", header, bytes(bits) + b"\7"))
    assert weights["w"].shape == (8,) and weights["w"].encoding.name == dtype
    assert weights["v"].numpy() == 7
    with pytest.raises(rlx.Error, match=rf"tensor 'w' of .* is of dtype {dtype}"):
        weights["w"].numpy()


def test_values_are_those_of_the_package_and_stay_in_the_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    arrays = {f"w{i}": rng.standard_normal((i, 3, 2 + i)).astype(np.float32) for i in range(5)}
    arrays |= {"odd": np.arange(5, dtype=np.uint8), "scalar": np.array(2.5), "half": np.ones(3, np.float16)}
    save_file(arrays, tmp_path / "w.safetensors")
    weights = open_weights(tmp_path / "w.safetensors")
    assert set(weights) == set(arrays)
    for name, array in arrays.items():
        found = weights[name].numpy()
        np.testing.assert_array_equal(found, array, strict=True)
        assert not found.flags.writeable
        assert not found.size or np.shares_memory(found, weights[name].stored()), name


def test_what_lies_at_an_odd_address_is_aligned(tmp_path: Path) -> None:
    body = b"\1" + np.array([1.5, 2.5], np.float32).tobytes()
    header = {"byte": entry("U8", (1,), (0, 1)), "w": entry("F32", (2,), (1, 9))}
    array = open_weights(written(tmp_path / "w", header, body))["w"].numpy()
    assert array.flags.aligned and not array.flags.writeable and array.tolist() == [1.5, 2.5]


HUGE = 1 << 62
DAMAGED: dict[str, tuple[Any, bytes, int | None]] = {
    "header too long": ({}, b"", 1 << 40),
    "header of the greatest length": ({}, b"", (1 << 64) - 1),
    "header cut off": ({"w": entry()}, bytes(8), 10),
    "no object": ("[1]", b"", None),
    "no JSON": ("{", b"", None),
    "nested": ("[" * 100_000, b"", None),
    "truncated": ({"w": entry()}, bytes(7), None),
    "too much": ({"w": entry()}, bytes(9), None),
    "overlap": ({"w": entry(), "v": entry("U8", (8,))}, bytes(8), None),
    "gap": ({"w": entry(offsets=(8, 16))}, bytes(16), None),
    "backwards": ({"w": entry(offsets=(8, 0))}, bytes(8), None),
    "negative": ({"w": entry(offsets=(-8, 0))}, bytes(8), None),
    "of another size": ({"w": entry("F64")}, bytes(8), None),
    "huge shape": ({"w": entry(shape=(HUGE, 4), offsets=(0, 8))}, bytes(8), None),
    "negative shape": ({"w": entry(shape=(-2, -1))}, bytes(8), None),
    "unknown dtype": ({"w": entry("F33")}, bytes(8), None),
    "twice": (f'{{"w": {json.dumps(entry())}, "w": {json.dumps(entry("U8", (8,)))}}}', bytes(8), None),
    "half of a character": (f'{{"\\ud800": {json.dumps(entry())}}}', bytes(8), None),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(rlx.Error, match=r"cannot read .*w\.safetensors"):
        open_weights(written(tmp_path / "w.safetensors", *DAMAGED[name]))


def test_a_file_that_is_cut_off_is_fetched_again(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write(path, {"w": np.ones((4, 4), np.float32), "v": np.ones(3, np.int8)})
    whole = path.read_bytes()
    for missing in (1, 40, 67):
        path.write_bytes(whole[:-missing])
        message = f"it is cut off: it has {len(whole) - missing} bytes of {len(whole)}(?s:.)*fetch it again"
        with pytest.raises(rlx.Error, match=message):
            open_weights(path)
    path.write_bytes(whole[:70])
    with pytest.raises(rlx.Error, match="ends before its header does: fetch it again"):
        open_weights(path)


def test_what_is_written_is_a_mapping_of_names_to_arrays(tmp_path: Path) -> None:
    """Metadata is optional, and a tensor is anything that is an array."""
    path = tmp_path / "w.safetensors"
    write(path, {"w": np.ones(2, np.float32)})
    write(path, {"again": open_weights(path)["w"]}, {"by": "rlx"})
    assert open_weights(path)["again"].numpy().tolist() == [1, 1] and b'"by":"rlx"' in path.read_bytes()
    for tensors, metadata, message in (
        ([np.ones(2)], None, "tensors must be a mapping of names to arrays"),
        ({1: np.ones(2)}, None, "tensors must be a mapping of names to arrays"),
        ({"w": [1.0]}, None, "tensor 'w' must be an array"),
        ({"w": np.array(["a"])}, None, "is not one of the dtypes"),
        ({"w": np.ones(2)}, {"epoch": 1}, "metadata must be a mapping of text to text"),
        ({"w": np.ones(2)}, "epoch", "metadata must be a mapping of text to text"),
        ({"__metadata__": np.ones(2)}, None, "keeps the name '__metadata__' for itself"),
    ):
        with pytest.raises(rlx.Error, match=message):
            write(path, tensors, metadata)  # type: ignore[arg-type]
    assert list(open_weights(path)) == ["again"]


@pytest.mark.parametrize("shape", [(HUGE, 0), (1,) * 100])
def test_shapes_beyond_numpys_are_refused_when_they_are_used(shape: tuple[int, ...], tmp_path: Path) -> None:
    size = 0 if 0 in shape else 4
    weight = open_weights(written(tmp_path / "w", {"w": entry("F32", shape, (0, size))}, bytes(size)))["w"]
    with pytest.raises(rlx.Error, match="cannot read tensor 'w' of"):
        weight.numpy()


def test_a_bool_is_0_or_1(tmp_path: Path) -> None:
    weights = open_weights(written(tmp_path / "w", {"w": entry("BOOL", (2,), (0, 2))}, b"\1\2"))
    with pytest.raises(rlx.Error, match=r"tensor 'w' of .* a bool is stored as 0 or 1"):
        weights["w"].numpy()


# --- several files --------------------------------------------------------------------------------


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Return a folder of two files and their index."""
    save_file({"a": np.ones(2, np.float32), "unnamed": np.ones(1)}, tmp_path / "model-1.safetensors")
    save_file({"b": np.zeros((2, 2), np.float16)}, tmp_path / "model-2.safetensors")
    write_index(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    return tmp_path


def write_index(folder: Path, places: Any) -> None:
    text = places if isinstance(places, str) else json.dumps({"metadata": {"total_size": 16}, "weight_map": places})
    (folder / "model.safetensors.index.json").write_text(text)


def test_several_files(sharded: Path) -> None:
    for path in (sharded, sharded / "model.safetensors.index.json"):
        weights = open_weights(path)
        assert list(weights) == ["a", "b"]
        assert weights["a"].numpy().tolist() == [1, 1] and weights["b"].shape == (2, 2)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"a": "../model-1.safetensors"}, "no file beside it"),
        ({"a": "/etc/passwd"}, "no file beside it"),
        ({"a": ""}, "no file beside it"),
        ({"a": "model-3.safetensors"}, r"no such file: .*model-3\.safetensors"),
        ({"b": "model-1.safetensors"}, "tensor 'b' is in model-1.safetensors, which has none of that name"),
        ({"a": 1}, "expected the index"),
        ([], "expected the index"),
        ('{"weight_map": {"a": "model-1.safetensors", "a": "model-2.safetensors"}}', "'a' occurs twice"),
        ("[1", "cannot read"),
    ],
)
def test_an_index_that_is_wrong(sharded: Path, places: Any, message: str) -> None:
    write_index(sharded, places)
    with pytest.raises(rlx.Error, match=message):
        open_weights(sharded)


def test_the_content_decides_and_not_the_name(sharded: Path) -> None:
    """A file of tensors may be named `.json`, and an index may have another name."""
    os.rename(sharded / "model.safetensors.index.json", sharded / "index")
    shutil.copy(sharded / "model-1.safetensors", sharded / "tensors.json")
    np.savez(sharded / "archive.npz", a=np.ones(2))
    os.rename(sharded / "archive.npz", sharded / "archive.json")
    assert list(open_weights(sharded / "index")) == ["a", "b"]
    assert set(open_weights(sharded / "tensors.json")) == {"a", "unnamed"}
    assert list(open_weights(sharded / "archive.json")) == ["a"]
    (sharded / "empty.json").write_bytes(b"")
    with pytest.raises(rlx.Error, match=r"cannot read .*empty\.json"):
        open_weights(sharded / "empty.json")


@pytest.mark.parametrize("kind", ["pipe", "device", "link to a pipe"])
@pytest.mark.parametrize("place", ["index", "folder"])
def test_what_a_folder_or_an_index_names_is_a_file_and_no_pipe_that_waits(sharded: Path, kind: str, place: str) -> None:
    name = sharded / ("model-2.safetensors" if place == "index" else "model.safetensors")
    name.unlink(missing_ok=True)
    if place == "folder":
        (sharded / "model.safetensors.index.json").unlink()
    os.mkfifo(sharded / "pipe")
    target = {"pipe": "pipe", "device": "/dev/zero", "link to a pipe": "pipe"}[kind]
    os.rename(sharded / "pipe", name) if kind == "pipe" else os.symlink(target, name)
    problems: list[BaseException] = []

    def attempt() -> None:
        try:
            open_weights(sharded)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for a writer"
    assert isinstance(problems[0], rlx.Error) and "is no file" in str(problems[0])


def test_a_pipe_that_the_caller_names_is_read_once(sharded: Path) -> None:
    os.mkfifo(sharded / "pipe")
    data = (sharded / "model-1.safetensors").read_bytes()
    writer = threading.Thread(target=(sharded / "pipe").write_bytes, args=(data,), daemon=True)
    writer.start()
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(open_weights(sharded / "pipe")), daemon=True)
    reader.start()
    reader.join(20)
    assert not reader.is_alive(), "it waits for a second writer"
    assert found[0]["a"].numpy().tolist() == [1, 1]


def test_every_field_of_a_header_may_hold_anything(tmp_path: Path) -> None:
    usual = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    odd = (
        True,
        None,
        1.5,
        -1,
        2**63,
        2**70,
        "a",
        [],
        [True],
        [True, 4],
        [4.0],
        [None],
        [2**64],
        [16, 0],
        [0, 2**63],
        {},
        [[4]],
    )
    for field in usual:
        for value in odd:
            header = json.dumps({"w": usual | {field: value}}).encode()
            (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
            with pytest.raises(rlx.Error, match="cannot read"):
                open_weights(tmp_path / "w.safetensors")["w"].numpy()


def test_garbage_is_not_looked_for_while_a_long_header_is_read(tmp_path: Path) -> None:
    """Each search goes through all entries, so that many tensors would take more than linear time."""
    count = 20_000
    header = {f"layer.{i}": entry("U8", (1,), (i, i + 1)) for i in range(count)}
    path, found = written(tmp_path / "w.safetensors", header, bytes(count)), []
    gc.collect()
    gc.callbacks.append(lambda phase, info: found.append(phase))
    try:
        weights = open_weights(path)
    finally:
        gc.callbacks.pop()
    assert len(weights) == count and len(found) <= 4 and gc.isenabled()


# --- all dtypes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DTYPES, ids=lambda kind: kind.name)
def test_every_dtype_is_read_back(kind: rlx.DType, tmp_path: Path) -> None:
    """Odd and even counts are read back by RLX. The format's own package reads the bytes as they are stored."""
    arrays = {
        str(shape): bit_patterns(kind, math.prod(shape)).reshape(shape)
        for shape in ((16, 16), (3, 5), (0, 3), (), (1,), (2, 1, 3))
    }
    path = tmp_path / "w.safetensors"
    write(path, arrays, {"format": "pt"})
    weights = open_weights(path)
    peer = dict(deserialize(path.read_bytes()))
    assert weights.keys() == arrays.keys() == peer.keys()
    for name, array in arrays.items():
        found = weights[name].numpy()
        assert (found.shape, found.dtype) == (array.shape, array.dtype) == (weights[name].shape, weights[name].dtype)
        assert found.tobytes() == array.tobytes(), name
        assert bytes(peer[name]["data"]) == pack(array).tobytes()
        whole = kind.safetensors and array.size * kind.bits % 8 == 0
        assert peer[name]["dtype"] == (kind.safetensors if whole else "U8")


@pytest.mark.parametrize("kind", ["F8_E4M3", "F8_E5M2", "F8_E8M0", "F4"])
def test_narrow_floats_of_others_are_read(kind: str, tmp_path: Path) -> None:
    (own,) = [k for k in DTYPES if k.safetensors == kind]
    data = bytes(range(256))
    shape = (2, 256 * 8 // own.bits // 2)
    weight = open_weights(written(tmp_path / "w", {"w": entry(kind, shape, (0, 256))}, data))["w"]
    codes = np.frombuffer(data, np.uint8)
    codes = codes if own.bits == 8 else np.stack([codes & 15, codes >> 4], axis=1).reshape(-1)
    np.testing.assert_array_equal(
        weight.numpy().astype(np.float32), codes.view(own.numpy).astype(np.float32).reshape(shape)
    )


HOSTILE: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "cannot read"),
    "no object": ("[1]", "no JSON object"),
    "too deep": ("[" * 100_000, "cannot read"),
    "another tensor": ({"v": {"dtype": "i4", "shape": [5]}}, "names a tensor 'v', which the file does not have"),
    "no entry": ({"w": 1}, "does not say the dtype and the shape"),
    "no shape": ({"w": {"dtype": "i4"}}, "does not say the dtype and the shape"),
    "unknown dtype": ({"w": {"dtype": "i5", "shape": [5]}}, "does not say the dtype and the shape"),
    "list as dtype": ({"w": {"dtype": ["i4"], "shape": [5]}}, "does not say the dtype and the shape"),
    "negative size": ({"w": {"dtype": "i4", "shape": [-5, -1]}}, "does not say the dtype and the shape"),
    "bool as size": ({"w": {"dtype": "i4", "shape": [True, 5]}}, "does not say the dtype and the shape"),
    "another size": ({"w": {"dtype": "i4", "shape": [7]}}, r"takes 4 bytes of U8; it has U8\[3\]"),
    "huge": ({"w": {"dtype": "i4", "shape": [HUGE] * 50}}, "bytes of U8"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_descriptions_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    described, message = HOSTILE[name]
    text = described if isinstance(described, str) else json.dumps(described)
    header = {"__metadata__": {"rlx.dtypes": text}, "w": entry("U8", (3,), (0, 3))}
    with pytest.raises(rlx.Error, match=message):
        open_weights(written(tmp_path / "w.safetensors", header, bytes(3)))
