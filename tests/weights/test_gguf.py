"""GGUF files: read and written, against the package `gguf`, and damaged in every way that a header can be."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlx
from rlx.schemes import SCHEMES
from rlx.weights import Weight, gguf_writer

_TYPES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}


def _text(value: str, length: str = "<Q") -> bytes:
    return struct.pack(length, len(value.encode())) + value.encode()


def _file(pairs: bytes, count: int, tensors: bytes = b"", tensor_count: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensor_count, count) + pairs + tensors


def _tensor(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def _opened(path: Path, content: bytes) -> rlx.weights.Weights:
    path.write_bytes(content)
    return rlx.weights.open(path)


def _arrays(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    floats = rng.standard_normal((3, 5))
    return {
        "f32": floats.astype(np.float32),
        "f16": floats.astype(np.float16),
        "bf16": floats.astype(ml_dtypes.bfloat16),
        "f64": floats,
        **{name: rng.integers(-100, 100, (2, 3, 2)).astype(name) for name in ("int8", "int16", "int32", "int64")},
        "vector": np.arange(7, dtype=np.float32),
        "nothing": np.zeros((0, 3), np.float32),
    }


_METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "a.u32": 7,
    "a.i32": -7,
    "a.u64": 1 << 40,
    "a.i64": -(1 << 40),
    "a.f32": 0.5,
    "a.bool": True,
    "a.u16": np.uint16(3),
    "a.f64": np.float64(0.1),
    "a.texts": ["", "é", "\U0001f600"],
    "a.bools": [True, False],
    "a.i32s": np.array([1, -2], np.int32),
    "a.f32s": [0.5, 2.0],
    "a.none": [],
    "a.nested": [[1, 2], [3]],
}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value


@pytest.mark.parametrize("byteorder", ["little", "big"])
@pytest.mark.parametrize("alignment", [32, 1, 256])
def test_round_trip(tmp_path: Path, seed: int, byteorder: str, alignment: int) -> None:
    arrays, path = _arrays(seed), tmp_path / "a.gguf"
    assert rlx.weights.save_gguf(path, arrays, _METADATA, alignment=alignment, byteorder=byteorder) == [str(path)]
    opened = rlx.weights.open(path)
    assert list(opened) == list(arrays)
    for name, array in arrays.items():
        assert opened[name].shape == array.shape
        assert opened[name].numpy().tobytes() == array.tobytes(), name
    found = dict(opened.metadata)
    assert found.pop("general.alignment", 32) == alignment
    assert {key: _plain(value) for key, value in found.items()} == {k: _plain(v) for k, v in _METADATA.items()}


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if SCHEMES[s].ggml_type is not None])
def test_packed_tensors_stay_packed(tmp_path: Path, seed: int, scheme: str) -> None:
    packing = SCHEMES[scheme]
    raw = np.random.default_rng(seed).integers(0, 256, (3, 2 * packing.nbytes), np.uint8)
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    header = _file(b"", 0, _tensor("w", (2 * packing.block, 3), packing.ggml_type or 0, 0), 1)
    weights = _opened(first, header + bytes(-len(header) % 32) + raw.tobytes())
    rlx.weights.save_gguf(second, dict(weights), {})
    for file in (weights, rlx.weights.open(second)):
        assert (file["w"].shape, file["w"].encoding.name) == ((3, 2 * packing.block), scheme)
        assert file["w"].stored().tobytes() == raw.tobytes()
        assert file["w"].numpy().tobytes() == packing.decode(raw).tobytes()
        assert (file["w"].of_dtype("u8").numpy() == raw).all()


# The structures of ggml, with numbers of two bytes in one of the orders.
_STRUCTURES: dict[str, list[tuple[str, int]]] = {
    "q1_0": [("d", 2), ("qs", 16)],
    "q2_0": [("d", 2), ("qs", 16)],
    "q4_0": [("d", 2), ("qs", 16)],
    "q4_1": [("d", 2), ("m", 2), ("qs", 16)],
    "q8_0": [("d", 2), ("qs", 32)],
    "iq4_nl": [("d", 2), ("qs", 16)],
    "q2_k": [("scales", 16), ("qs", 64), ("d", 2), ("dmin", 2)],
    "q3_k": [("hmask", 32), ("qs", 64), ("scales", 12), ("d", 2)],
    "q4_k": [("d", 2), ("dmin", 2), ("scales", 12), ("qs", 128)],
    "q5_k": [("d", 2), ("dmin", 2), ("scales", 12), ("qh", 32), ("qs", 128)],
    "q6_k": [("ql", 128), ("qh", 64), ("scales", 16), ("d", 2)],
    "tq1_0": [("qs", 48), ("qh", 4), ("d", 2)],
    "tq2_0": [("qs", 64), ("d", 2)],
    "mxfp4": [("e", 1), ("qs", 16)],
    "nvfp4": [("d4", 4), ("qs", 32)],
}


def _structure(scheme: str, order: str) -> np.dtype:
    fields = [(n, f"{order}f2") if n in ("d", "dmin", "m") else (n, "u1", (size,)) for n, size in _STRUCTURES[scheme]]
    return np.dtype(fields)


@pytest.mark.parametrize("scheme", _STRUCTURES)
def test_packed_tensors_of_big_endian_files(tmp_path: Path, seed: int, scheme: str) -> None:
    packing = SCHEMES[scheme]
    raw = np.random.default_rng(seed).integers(0, 64, (3, 2 * packing.nbytes), np.uint8)
    swapped = raw.view(_structure(scheme, "<")).astype(_structure(scheme, ">")).view(np.uint8)
    path, other = tmp_path / "a.gguf", tmp_path / "b.gguf"
    shape = (3, 2 * packing.block)
    weight = Weight("w", shape, rlx.weights.PackedBlocks(packing), raw.nbytes, "the test", raw.tobytes)
    rlx.weights.save_gguf(path, {"w": weight}, {}, byteorder="big")
    content = path.read_bytes()
    assert swapped.tobytes() in content and content[4:8] == b"\0\0\0\x03"
    opened = rlx.weights.open(path)["w"]
    assert (opened.shape, opened.encoding.name) == (shape, scheme)
    assert opened.stored().tobytes() == raw.tobytes() and not opened.stored().flags.writeable
    np.testing.assert_array_equal(opened.numpy(), packing.decode(raw))
    rlx.weights.save_gguf(other, {"w": opened}, {})
    assert rlx.weights.open(other)["w"].stored().tobytes() == raw.tobytes()


def test_packed_tensors_whose_bytes_are_not_swapped(tmp_path: Path) -> None:
    for scheme in ("q5_0", "iq4_xs", "iq2_xxs", "q8_k"):
        packing = SCHEMES[scheme]
        raw = bytes(packing.nbytes)
        weight = Weight(
            "w", (1, packing.block), rlx.weights.PackedBlocks(packing), len(raw), "the test", lambda raw=raw: raw
        )
        with pytest.raises(rlx.Error, match=f"'w': tensors of the format {scheme} are written in little-endian files"):
            rlx.weights.save_gguf(tmp_path / "a.gguf", {"w": weight}, {}, byteorder="big")


def test_as_the_package_gguf_reads_and_writes(tmp_path: Path, seed: int) -> None:
    import gguf

    path, arrays = tmp_path / "a.gguf", {n: a for n, a in _arrays(seed).items() if a.size}
    rlx.weights.save_gguf(path, arrays, {k: v for k, v in _METADATA.items() if k not in ("a.none", "a.nested")})
    reader = gguf.GGUFReader(path)
    assert [t.name for t in reader.tensors] == list(arrays)
    for tensor in reader.tensors:
        assert tensor.data.tobytes() == arrays[tensor.name].tobytes()
        assert tuple(tensor.shape)[::-1] == arrays[tensor.name].shape
    assert reader.fields["a.texts"].contents() == _METADATA["a.texts"]
    assert reader.fields["a.u16"].types == [gguf.GGUFValueType.UINT16]
    writer = gguf.GGUFWriter(tmp_path / "b.gguf", "llama")
    writer.add_array("a.texts", ["x", "é"])
    writer.add_float32("a.f32", 1e-5)
    for name, array in arrays.items():
        if name != "bf16":
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    opened = rlx.weights.open(tmp_path / "b.gguf")
    assert opened.metadata["a.texts"] == ("x", "é") and opened.metadata["a.f32"] == np.float32(1e-5)
    assert all(opened[name].numpy().tobytes() == arrays[name].tobytes() for name in opened)


def test_parts(tmp_path: Path, seed: int) -> None:
    arrays = {f"t{i}": a for i, a in enumerate(_arrays(seed).values())}
    paths = rlx.weights.save_gguf(tmp_path / "m.gguf", arrays, _METADATA, split=100)
    assert len(paths) > 2 and paths[0].endswith(f"m-00001-of-{len(paths):05}.gguf")
    opened = rlx.weights.open(paths[0])
    assert all(opened[name].numpy().tobytes() == array.tobytes() for name, array in arrays.items())
    assert opened.metadata["a.u32"] == 7
    with pytest.raises(rlx.Error, match=r"not the first part.*\n?.*00001"):
        rlx.weights.open(paths[1])
    Path(paths[1]).unlink()
    with pytest.raises(rlx.Error, match="no such file"):
        rlx.weights.open(paths[0])
    Path(paths[1]).write_bytes(Path(paths[2]).read_bytes())
    with pytest.raises(rlx.Error, match="part 1 of"):
        rlx.weights.open(paths[0])


def test_version_1_has_short_lengths(tmp_path: Path) -> None:
    pair = _text("k", "<I") + struct.pack("<I", 8) + _text("v", "<I")
    tensor = _text("w", "<I") + struct.pack("<IIIQ", 1, 2, 0, 0)
    header = b"GGUF" + struct.pack("<III", 1, 1, 1) + pair + tensor
    opened = _opened(tmp_path / "a.gguf", header + bytes(-len(header) % 32) + struct.pack("<ff", 1.0, 2.0))
    assert opened.metadata["k"] == "v" and opened["w"].numpy().tolist() == [1, 2]


def _pair(key: str, kind: int, value: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + value


_GOOD = _file(b"", 0, _tensor("w", (32, 2), 0, 0), 1)
_HOSTILE: dict[str, tuple[bytes, str]] = {
    "no version": (b"GGUF", "ends within the header"),
    "unknown version": (_file(b"", 0, version=9), "version 9"),
    "many pairs": (_file(b"", 1 << 62), "pairs of metadata"),
    "many tensors": (_file(b"", 0, tensor_count=1 << 62), "tensors"),
    "long key": (_file(struct.pack("<QQ", 1 << 63, 0), 1), "bytes of a key"),
    "long array": (_file(_pair("k", 9, struct.pack("<IQ", 4, 1 << 63)), 1), "elements of 'k'"),
    "many texts": (_file(_pair("k", 9, struct.pack("<IQ", 8, 1 << 40)), 1), "elements of 'k'"),
    "unknown type": (_file(_pair("k", 99, b""), 1), "type 99"),
    "deep array": (_file(_pair("k", 9, struct.pack("<IQ", 9, 1) * 20), 1), "type 9"),
    "bool of 2": (_file(_pair("k", 7, b"\x02"), 1), "stored as 2"),
    "not UTF-8": (_file(_pair("k", 8, struct.pack("<Q", 1) + b"\xff"), 1), "not UTF-8"),
    "two values": (_file(_pair("k", 7, b"\x01") * 2, 2), "two values of 'k'"),
    "alignment": (_file(_pair("general.alignment", 4, struct.pack("<I", 3)), 1), "power of two"),
    "no alignment": (_file(_pair("general.alignment", 4, struct.pack("<I", 0)), 1), "power of two"),
    "rank 5": (_file(b"", 0, _tensor("w", (1,) * 5, 0, 0), 1), "5 dimensions"),
    "no name": (_file(b"", 0, _tensor("", (1,), 0, 0), 1), "0 characters"),
    "huge": (_file(b"", 0, _tensor("w", (1 << 62, 1 << 62), 0, 0), 1), "cut off"),
    "offset": (_file(b"", 0, _tensor("w", (1,), 0, 7), 1), "no multiple of 32"),
    "far offset": (_file(b"", 0, _tensor("w", (1,), 0, 1 << 62), 1), "cut off"),
    "part of a block": (_file(b"", 0, _tensor("w", (31,), 8, 0), 1), "blocks of 32"),
    "cut off": (_GOOD + bytes(100), "cut off"),
    "same name": (_file(b"", 0, _tensor("w", (0,), 0, 0) * 2, 2) + bytes(64), "two tensors"),
    "parts": (_file(_pair("split.count", 2, b"\x02\x00"), 1), "the name of the first must be"),
}


@pytest.mark.parametrize("case", _HOSTILE)
def test_damaged(tmp_path: Path, case: str) -> None:
    content, message = _HOSTILE[case]
    with pytest.raises(rlx.Error, match=message):
        _opened(tmp_path / "a.gguf", content)


def test_unknown_types_are_listed_and_not_read(tmp_path: Path) -> None:
    opened = _opened(tmp_path / "a.gguf", _file(b"", 0, _tensor("w", (32,), 77, 0), 1) + bytes(64))
    assert opened["w"].encoding.name == "ggml_type_77"
    with pytest.raises(rlx.Error, match="ggml_type_77"):
        opened["w"].numpy()


_SCALARS = ("split.no", "split.count", "split.tensors.count")
_OTHERS: tuple[Any, ...] = ([], [0], [1, 2], ["a"], [["a"]], [0.5], np.zeros(0, np.int32), True, 2.0, "2", -1)


@pytest.mark.parametrize("key", [*_SCALARS, "general.alignment"])
def test_arrays_for_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """A number of the metadata that has another type is an error that names its key, in each part of a model."""
    written = gguf_writer._pairs_of_part
    arrays = {f"t{i}": np.zeros(32, np.float32) for i in range(2)}
    if key == "general.alignment":
        monkeypatch.setattr(gguf_writer, "ALIGNMENT_KEY", "x.alignment")
    for changed in range(2):
        for value in _OTHERS:

            def pairs(own: Any, number: int, parts: Any, changed: int = changed, value: Any = value) -> dict[str, Any]:
                return written(own, number, parts) | ({key: value} if number == changed else {})

            monkeypatch.setattr(gguf_writer, "_pairs_of_part", pairs)
            first, second = rlx.weights.save_gguf(tmp_path / "a.gguf", arrays, {}, split=128)
            if key == "split.tensors.count" and changed == 1:  # only the first part has the number that is read
                assert len(rlx.weights.open(first)) == 2
                continue
            with pytest.raises(rlx.Error, match=f"{Path((first, second)[changed]).name}.*'{key}'"):
                rlx.weights.open(first)


@given(data=st.data())
def test_any_damage_is_an_error_or_harmless(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Bytes of a valid header are replaced, or its end is cut off: it is read, or refused, and never something else."""
    pairs = b"".join(
        _pair(key, kind, value)
        for key, kind, value in (
            ("general.architecture", 8, _text("llama")),
            ("a", 4, struct.pack("<I", 7)),
            ("t", 9, struct.pack("<IQ", 8, 2) + _text("x") + _text("yz")),
            ("n", 9, struct.pack("<IQf", 6, 1, 0.5)),
        )
    )
    content = bytearray(_file(pairs, 4, _tensor("w", (2, 3), 0, 0) + _tensor("q", (32,), 8, 32), 2))
    content += bytes(-len(content) % 32) + bytes(96)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.integers(0, len(content)))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(bytes(content[:size] if data.draw(st.booleans()) else content))
    try:
        opened = rlx.weights.open(path)
        for weight in opened.values():
            weight.numpy()
    except rlx.Error:
        pass


def _bad_calls() -> dict[str, tuple[Callable[[Path], Any], str]]:
    w = np.zeros((2, 2), np.float32)
    nothing: Any = None
    return {
        "u8": (lambda p: rlx.weights.save_gguf(p, {"w": w.astype(np.uint8)}, {}), "GGUF files have f32"),
        "rank": (lambda p: rlx.weights.save_gguf(p, {"w": w.reshape(1, 1, 1, 2, 2)}, {}), "5 dimensions"),
        "value": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"k": object()}), "metadata 'k'"),
        "mixed": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"k": ["a", 1]}), "metadata 'k'"),
        "large": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"k": 1 << 64}), "64 bits"),
        "alignment": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {}, alignment=3), "power of two"),
        "own alignment": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"general.alignment": 3}), "give alignment="),
        "large float": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"k": 1e39}), "metadata 'k': 1e.39 is too large"),
        "large floats": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"k": [0.5, 1e39]}), "too large for f32"),
        "large mixed": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"k": [0.5, 10**400]}), "too large for f32"),
        "large integers": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"k": [1, 1 << 63]}), "fit into i64"),
        "surrogate": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"k": "\ud800"}), "half of a surrogate"),
        "surrogates": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"k": ["a", "\ud800"]}), "half of a surrogate"),
        "surrogate in a key": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {"\ud800": 1}), "half of a surrogate"),
        "surrogate in a name": (lambda p: rlx.weights.save_gguf(p, {"\ud800": w}, {}), "half of a surrogate"),
        "no metadata": (lambda p: rlx.weights.save_gguf(p, {"w": w}, nothing), "metadata must be a mapping"),
        "no tensors": (lambda p: rlx.weights.save_gguf(p, nothing, {}), "tensors must be a mapping"),
        "order": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {}, byteorder="middle"), "'little' or 'big'"),
        "split": (lambda p: rlx.weights.save_gguf(p, {"w": w}, {}, split=0), "number of bytes"),
        "folder": (lambda p: rlx.weights.save_gguf(p / "none" / "a.gguf", {"w": w}, {}), "none"),
    }


@pytest.mark.parametrize("case", _bad_calls())
def test_bad_calls_write_nothing(tmp_path: Path, case: str) -> None:
    call, message = _bad_calls()[case]
    with pytest.raises(rlx.Error, match=message):
        call(tmp_path / "a.gguf" if case != "folder" else tmp_path)
    assert not list(tmp_path.iterdir())


def test_metadata_of_a_file_with_another_alignment(tmp_path: Path) -> None:
    """It can be written again as it is: the alignment is the one that is given."""
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    rlx.weights.save_gguf(tmp_path / "a.gguf", {"w": w}, {"k": 1}, alignment=64)
    metadata = rlx.weights.open(tmp_path / "a.gguf").metadata
    assert metadata["general.alignment"] == 64
    for alignment in (32, 128):
        rlx.weights.save_gguf(tmp_path / "b.gguf", {"w": w}, metadata, alignment=alignment)
        again = rlx.weights.open(tmp_path / "b.gguf")
        assert again.metadata.get("general.alignment", 32) == alignment and again.metadata["k"] == 1
        np.testing.assert_array_equal(again["w"].numpy(), w)
