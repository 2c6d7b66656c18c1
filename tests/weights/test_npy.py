"""NumPy's files: values, damage, objects that are never unpickled, and archives that declare more than they contain."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES
from rlx.ir.interface import argument_array
from rlx.weights import open as open_weights
from tests.bit_patterns import bit_patterns
from tools.fuzz.mutators import damaged_bytes

ARRAYS = {
    "f32": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    "bf16": np.array([1.5, -2], rlx.bf16.numpy),
    "scalar": np.array(3, np.int32),
    "empty": np.zeros((0, 5), np.float64),
    "bool": np.array([True, False]),
    "zeros": np.zeros(100_000, np.float32),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "w.npz", **ARRAYS)
    weights = open_weights(tmp_path / "w.npz")
    assert list(weights) == list(ARRAYS)
    for name, array in ARRAYS.items():
        weight, found = weights[name], weights[name].numpy()
        assert (weight.shape, weight.dtype, weight.nbytes) == (array.shape, array.dtype, array.nbytes)
        np.testing.assert_array_equal(found, array, strict=True)
        assert not found.flags.writeable
        # Uncompressed data stay in the file, if they are aligned for their dtype.
        stored = weight.stored()
        stays = save is np.savez and found.size and stored.ctypes.data % found.itemsize == 0
        assert np.shares_memory(found, stored) == bool(stays)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "w.npy", ARRAYS[name])
    weights = open_weights(tmp_path / "w.npy")
    assert list(weights) == ["w"]
    np.testing.assert_array_equal(weights["w"].numpy(), ARRAYS[name], strict=True)


class Trap:
    """An object that reports when it is unpickled."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("it was unpickled",)


@pytest.mark.parametrize(
    "array", [np.array([Trap()], object), np.array(["text"]), np.zeros(2, [("a", "i4")]), np.array(["2020"], "M8[D]")]
)
def test_what_are_no_numbers_is_refused_when_it_is_used(tmp_path: Path, array: np.ndarray) -> None:
    np.savez(tmp_path / "w.npz", allow_pickle=True, w=array, v=np.ones(1))
    weights = open_weights(tmp_path / "w.npz")
    assert weights["v"].numpy() == 1
    with pytest.raises(rlx.Error, match=r"tensor 'w' of .*w\.npz is of dtype"):
        weights["w"].numpy()


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def archive(path: Path, *members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members:
            file.writestr(name, data)
    return path


ONES = saved(np.ones((2, 2), np.float32))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ONES[:-1], r"'w' is float32\[2, 2\] by its header, and 15 bytes are there"),
        (ONES.replace(b"(2, 2)", b"(-2, -2)", 1), "cannot read"),
        (ONES.replace(b"(2, 2), }", b"(4611686018427387904, 9), }", 1).replace(b"       " * 2, b"", 1), "cannot read"),
        (b"nonsense", "cannot read"),
        (b"", "cannot read"),
        (b"\x93NUMPY\x03\x00" + ONES[8:], "a header of version"),
        (b"\x93NUMPY\x01\x00\xff\xff" + ONES[10:], "cannot read"),
    ],
)
def test_a_member_that_is_damaged(tmp_path: Path, data: bytes, message: str, method: int) -> None:
    with pytest.raises(rlx.Error, match=message):
        open_weights(archive(tmp_path / "w.npz", ("w.npy", data), method=method))


def test_an_archive_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(rlx.Error, match=r"holds 'manifest\.json', which is no array"):
        open_weights(archive(tmp_path / "w.npz", ("manifest.json", b"{}")))
    for members in (("two/data.pkl", b"."), ("two/version", b"3")), (("w.npy", ONES), ("archive/data.pkl", b".")):
        with pytest.raises(rlx.Error, match=r"file of PyTorch(?s:.)*torch\.load\(file, weights_only=True\)"):
            open_weights(archive(tmp_path / "two.pt", *members))
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = archive(tmp_path / "w.npz", ("w.npy", ONES), ("w.npy", ONES))
    with pytest.raises(rlx.Error, match="has two tensors called 'w'"):
        open_weights(twice)
    with pytest.raises(rlx.Error, match="another method"):
        open_weights(archive(tmp_path / "w.npz", ("w.npy", ONES), method=zipfile.ZIP_LZMA))


def test_a_checksum_that_is_wrong(tmp_path: Path) -> None:
    path = archive(tmp_path / "w.npz", ("w.npy", saved(np.random.default_rng(0).standard_normal(500))))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(rlx.Error, match="tensor 'w' of"):
        open_weights(path)["w"].numpy()


def test_a_bomb_makes_nothing_large(tmp_path: Path) -> None:
    """Neither a header with a huge shape, nor an archive that declares more than deflate can expand to, allocates much."""
    size = 1 << 50
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (size,)})
    with pytest.raises(rlx.Error, match="by its header"):
        open_weights(archive(tmp_path / "w.npz", ("w.npy", header.getvalue())))
    path = archive(tmp_path / "w.npz", ("w.npy", header.getvalue() + bytes(1000)))
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (0xFFFFFFF0).to_bytes(4, "little")  # its size, in the list of members
    path.write_bytes(data)
    with pytest.raises(rlx.Error, match="which do not fit into"):
        open_weights(path)


def test_damaged_files_are_refused_or_read(tmp_path: Path) -> None:
    rng = random.Random(5)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "w.npz", **{name: array for name, array in ARRAYS.items() if array.size < 100})
        whole = (tmp_path / "w.npz").read_bytes()
        for _ in range(150):
            (tmp_path / "d.npz").write_bytes(damaged_bytes(whole, rng))
            try:
                for weight in open_weights(tmp_path / "d.npz").values():
                    weight.numpy()
            except rlx.Error as problem:
                assert "d.npz" in str(problem)


# Values of a header field of a wrong type, or out of range.
ODD = (
    "True",
    "False",
    "None",
    "1.0",
    "-1",
    "0",
    "4",
    "2",
    str(2**63),
    str(2**70),
    "1e999",
    "'a'",
    "b'a'",
    "''",
    "[]",
    "()",
    "{}",
)
ODD += (
    "(4, True)",
    "(True, 4)",
    "(4, None)",
    "(4.0,)",
    "('4',)",
    f"({2**63},)",
    f"({2**70}, 0)",
    f"(0, {2**62}, {2**62})",
    "((4,),)",
)
ODD += (
    "[4]",
    "(1,) * 70",
    "(-2, -2)",
    "(4, 1j)",
    "'<f4'",
    "'>f4'",
    "'|b1'",
    "'O'",
    "'V2'",
    "'<U4'",
    "'<M8[s]'",
    "'f4,f4'",
    "'<f16'",
    "'<f1'",
    "'|f1'",
    "'<V1'",
)
ODD += (
    "[('a', '<f4')]",
    "[('a', True)]",
    "('<f4', (2,))",
    "-" * 9000 + "1",
    "(" * 300 + ")" * 300,
    "1 if 1 else 2",
    "{1: 2}",
)
FIELDS = {"descr": "'<f4'", "fortran_order": "False", "shape": "(4,)"}


@pytest.mark.parametrize("value", ODD, ids=lambda v: v[:20])
def test_every_field_of_a_header_may_hold_anything(tmp_path: Path, value: str) -> None:
    """The file is refused in one line with a reason, or read as by NumPy."""
    for field in FIELDS:
        header = ", ".join(f"'{n}': {value if n == field else usual}" for n, usual in FIELDS.items())
        header = f"{{{header}}}\n"
        data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(16)
        (tmp_path / "w.npy").write_bytes(data)
        for path in (tmp_path / "w.npy", archive(tmp_path / "w.npz", ("w.npy", data))):
            try:
                weight = open_weights(path)["w"]
                found = weight.numpy()
            except rlx.Error as problem:
                assert not problem.message.endswith(": "), "it says why"
                continue
            assert all(type(size) is int for size in weight.shape)
            if weight.dtype.name not in ("bfloat16", "float8_e5m2"):  # NumPy does not read these as such
                wanted = np.load(tmp_path / "w.npy")
                np.testing.assert_array_equal(found, wanted.astype(wanted.dtype.newbyteorder("=")), strict=True)


def test_an_archive_of_nothing(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz")
    assert len(open_weights(tmp_path / "w.npz")) == 0


def samples(kind: rlx.DType) -> dict[str, np.ndarray]:
    """Return arrays of a dtype: without axes, without elements, and one of every bit pattern for small dtypes."""
    some = bit_patterns(kind)
    square = np.tile(some, 3).reshape(3, -1)
    return {
        "some": some,
        "scalar": some[-1:].reshape(()),
        "empty": some[:0].reshape(0, 3),
        "f": np.asfortranarray(square),
    }


UNNAMED = [kind for kind in DTYPES if kind.bits <= 8 and not kind.is_numpys_own]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_every_dtype_is_read_back(kind: rlx.DType, save: Any, tmp_path: Path) -> None:
    """Every dtype is read back, by its name or, if NumPy's format has no name for it, with the dtype of the argument."""
    arrays = samples(kind)
    save(tmp_path / "w.npz", **arrays)
    weights = open_weights(tmp_path / "w.npz")
    g = rlx.Graph("main")
    g.set_outputs([g.param(name, array.shape, kind) for name, array in arrays.items()])
    finite = {name: weight for name, weight in weights.items() if not np.isnan(arrays[name]).any()}
    named = kind not in UNNAMED or kind is rlx.f8e5m2
    for name, array in arrays.items():
        found = weights[name].of_dtype(kind).numpy()
        assert found.dtype == array.dtype and found.shape == array.shape and found.tobytes() == array.tobytes()
        assert not found.flags.writeable
        assert (weights[name].of_dtype(kind) is weights[name]) == named
        if named:
            assert weights[name].numpy().tobytes() == array.tobytes()
        else:
            with pytest.raises(
                rlx.Error, match=rf"tensor '{name}' of .*w\.npz has elements(.|\n)*of_dtype(.|\n)*safetensors"
            ):
                weights[name].numpy()
    carrying = rlx.Graph("main")
    results = [carrying.param(name, arrays[name].shape, kind, value=weight) for name, weight in weights.items()]
    carrying.set_outputs(results)
    for found, array in zip(rlx.evaluate(carrying, {}), arrays.values(), strict=True):
        assert found.tobytes() == array.tobytes()
    params = [a for a in g.params if a.name in finite]
    for name, found in weights.values_of(params).items():
        assert found.dtype == kind.numpy and found.tobytes() == arrays[name].tobytes()
    for argument in params:  # a single tensor, as in `set_param`
        found = argument_array(argument, weights[argument.name])
        assert found.dtype == kind.numpy and found.tobytes() == arrays[argument.name].tobytes()


@pytest.mark.parametrize("kind", [*DTYPES, None], ids=str)
def test_bytes_without_a_dtype_are_of_no_dtype_that_would_be_named(kind: rlx.DType | None, tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.arange(256, dtype=np.uint8).view("V1"))
    weight = open_weights(tmp_path / "w.npy")["w"]
    assert kind is None or (weight.of_dtype(kind) is weight) == (kind not in UNNAMED)
    typed = weight if kind is None else weight.of_dtype(kind)
    if kind is not None and kind in UNNAMED and not kind.packed:
        assert typed.numpy().tobytes() == bytes(range(256))
        return
    message = f"not elements of {kind}" if kind is not None and kind.packed else "does not name"
    with pytest.raises(rlx.Error, match=rf"tensor 'w' of .*w\.npy has .*{message}"):
        typed.numpy()
    if kind is not None:
        g = rlx.Graph("main")
        g.set_outputs([g.param("w", (256,), kind)])
        with pytest.raises(rlx.Error, match=message):
            open_weights(tmp_path / "w.npy").values_of(g.params)


def test_packed_integers_may_fill_their_byte_with_the_sign(tmp_path: Path) -> None:
    for kind in (rlx.i4, rlx.i2):
        values = np.arange(kind.min, kind.max + 1, dtype=np.int8)
        np.save(tmp_path / "w.npy", values.view("V1"))
        found = open_weights(tmp_path / "w.npy")["w"].of_dtype(kind).numpy()
        np.testing.assert_array_equal(found, values.astype(kind.numpy), strict=True)
        assert found.view(np.uint8).max() < 1 << kind.bits
        np.save(tmp_path / "w.npy", np.array([0xF0], np.uint8).view("V1"))  # 0 with the sign of a negative number
        with pytest.raises(rlx.Error, match="not elements of"):
            open_weights(tmp_path / "w.npy")["w"].of_dtype(kind).numpy()


def test_the_name_of_float8_e5m2_is_read_in_the_header_alone(tmp_path: Path) -> None:
    """The same bytes as elements are read as numbers."""
    text = np.frombuffer(b"{'descr': '<f1', '", np.uint8)
    np.save(tmp_path / "w.npy", text)
    np.testing.assert_array_equal(open_weights(tmp_path / "w.npy")["w"].numpy(), text, strict=True)
    for stop in range(0, 140):  # truncated anywhere
        np.save(tmp_path / "v.npy", np.ones(4, rlx.f8e5m2.numpy))
        (tmp_path / "v.npy").write_bytes((tmp_path / "v.npy").read_bytes()[:stop])
        if stop < 132:
            with pytest.raises(rlx.Error, match=r"v\.npy"):
                open_weights(tmp_path / "v.npy")["v"].numpy()


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_the_other_byte_order(order: Any, tmp_path: Path) -> None:
    kinds = [d for d in DTYPES if d.is_numpys_own and d.itemsize > 1]
    arrays = {d.name: np.array(np.arange(6).reshape(2, 3), d.numpy, order=order) for d in kinds}
    swapped: dict[str, Any] = {name: a.astype(a.dtype.newbyteorder()) for name, a in arrays.items()}
    np.savez(tmp_path / "w.npz", **swapped)
    g = rlx.Graph("main")
    g.set_outputs([g.param(name, (2, 3), name)[1:] for name in arrays])
    results = rlx.Session().compile(g, params=tmp_path / "w.npz").run({})
    for weight, wanted, found in zip(open_weights(tmp_path / "w.npz").values(), arrays.values(), results, strict=True):
        assert weight.dtype == weight.numpy().dtype == found.dtype == wanted.dtype and weight.dtype.isnative
        np.testing.assert_array_equal(weight.numpy(), wanted)
        np.testing.assert_array_equal(found, wanted[1:])
