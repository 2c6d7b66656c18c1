"""DLPack: every dtype in both directions with PyTorch, JAX and NumPy, and malformed tensors."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir import dlpack
from rlx.ir.arrays import as_array
from rlx.ir.dtype import DTYPES, DType
from tests.bit_patterns import bit_patterns
from tests.lenders import Lent, LentBefore2023

UNPACKED = [kind for kind in DTYPES if not kind.packed]
PACKED = [kind for kind in DTYPES if kind.packed]


def samples(kind: DType) -> dict[str, np.ndarray]:
    """Return arrays of a dtype in every layout, with every bit pattern if there are few."""
    some = bit_patterns(kind)
    block = np.tile(some, 6).reshape(6, -1)
    return {
        "some": some,
        "scalar": some[-1:].reshape(()),
        "empty": some[:0].reshape(3, 0, 2),
        "Fortran": np.asfortranarray(block),
        "gaps": block[1::2, ::-1],
        "repeated": np.broadcast_to(some, (4, some.size)),
    }


@pytest.mark.parametrize("kind", UNPACKED, ids=str)
def test_every_dtype_is_lent_and_read_without_a_copy(kind: DType) -> None:
    for name, array in samples(kind).items():
        array = array if array.flags.writeable else array.copy() if name != "repeated" else array
        for lend in (Lent, LentBefore2023):
            if lend is LentBefore2023 and not array.flags.writeable:
                with pytest.raises(rlx.Error, match=r"x: .*readonly"):
                    as_array(lend(array), "x")
                continue
            found = as_array(lend(array), "x")
            assert found.dtype == kind.numpy and found.shape == array.shape and found.tobytes() == array.tobytes(), name
            assert not array.size or (np.shares_memory(found, array) and found.strides == array.strides)
            if array.size:
                assert found.flags.writeable == (lend is Lent and array.flags.writeable)


@pytest.mark.parametrize("versioned", [True, False])
def test_memory_is_given_back_once(versioned: bool) -> None:
    for kind in UNPACKED:
        for size in (4, 0):
            array = np.zeros(size).astype(kind.numpy)
            lender = (Lent if versioned else LentBefore2023)(array)
            before = sys.getrefcount(array)
            read = [as_array(lender, "x") for _ in range(3)]
            views = [a[1:] for a in read]
            assert not size or sys.getrefcount(array) > before
            del read
            assert not size or sys.getrefcount(array) > before, "a view keeps it"
            del views
            assert sys.getrefcount(array) == before
            capsule = lender.__dlpack__()  # also that of an unused capsule
            del capsule
            assert sys.getrefcount(array) == before


@pytest.mark.parametrize("kind", PACKED, ids=str)
def test_packed_dtypes_are_refused_by_name(kind: DType) -> None:
    array = np.ones(4).astype(kind.numpy)
    with pytest.raises(BufferError, match=f"elements of {kind.name} in a byte"):
        dlpack.lent(array)
    with rlx.eager(), pytest.raises(BufferError, match=kind.name):
        rlx.ops.constant(array).__dlpack__()
    code, bits = dlpack.code_of(kind)
    for lanes in (1, 2):
        with pytest.raises(
            rlx.Error, match=rf"x is {kind.name}, of which DLPack has several in a byte(.|\n)*ml_dtypes"
        ):
            as_array(Made(code=code, bits=bits, lanes=lanes), "x")


def test_codes_are_those_of_the_specification() -> None:
    codes = {dlpack.code_of(kind) for kind in DTYPES}
    assert len(codes) == len(DTYPES)
    eights = ["f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"]
    for code, name in enumerate(eights, 7):
        assert dlpack.code_of(rlx.dtype(name)) == (code, 8)
    assert dlpack.code_of(rlx.bf16) == (4, 16)
    others = {d for d in DTYPES if d.kind == "float" and d.bits == 8} - {rlx.dtype(n) for n in eights}
    assert not others, "DLPack's codes of new dtypes are compared with the specification here"


# --- other libraries ------------------------------------------------------------------------------


def test_pytorch() -> None:
    torch = pytest.importorskip("torch")
    known = 0
    for kind in UNPACKED:
        theirs = getattr(torch, kind.numpy_name, None)
        if theirs is None:
            continue
        known += 1
        for array in samples(kind).values():
            array = np.array(array)  # PyTorch takes no negative strides and warns about read-only arrays
            tensor = torch.from_dlpack(Lent(array))
            assert tensor.dtype is theirs and tuple(tensor.shape) == array.shape
            back = dlpack.read(tensor, "x")
            assert back.dtype == kind.numpy and back.tobytes() == array.tobytes()
            assert as_array(tensor, "x").tobytes() == array.tobytes()
            assert not array.size or np.shares_memory(back, array)
    assert known >= 20


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    for kind in UNPACKED:
        if kind.part.bits == 64:  # JAX narrows it by default
            continue
        array = np.array(samples(kind)["Fortran"], order="C")
        found = jax.dlpack.from_dlpack(Lent(array))
        assert found.dtype == kind.numpy and np.asarray(found).tobytes() == array.tobytes()
        back = dlpack.read(found, "x")
        assert back.dtype == kind.numpy and back.tobytes() == array.tobytes()


@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_array_api(kind: DType) -> None:
    array = samples(kind)["some"]
    with rlx.eager():
        found = rlx.array_api.from_dlpack(array if kind.packed else Lent(array))
        assert found.dtype is kind and found.numpy().tobytes() == array.tobytes()
        assert not np.shares_memory(found.numpy(), array)
        assert rlx.array_api.from_dlpack(found) is found
        if not kind.packed:
            back = dlpack.read(found, "x")
            assert back.dtype == kind.numpy and back.tobytes() == array.tobytes()
            assert not np.shares_memory(back, found.numpy()), "an eager tensor never changes"


def test_array_api_refuses_other_objects() -> None:
    with rlx.eager():
        for value in (3, [1.0], "text", None):
            with pytest.raises(rlx.Error, match=r"test_dlpack\.py:\d+.*from_dlpack needs an object with __dlpack__"):
                rlx.array_api.from_dlpack(value)
        with pytest.raises(rlx.Error, match="from_dlpack is in the memory of a device, CUDA"):
            rlx.array_api.from_dlpack(Made(device=2))


# --- handmade tensors -----------------------------------------------------------------------------

_NEW = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_VALID = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
FIELDS: dict[str, Any] = {
    "shape": (3,),
    "strides": None,
    "ndim": None,
    "code": 2,
    "bits": 32,
    "lanes": 1,
    "device": 1,
    "offset": 0,
    "null": False,
    "flags": 0,
    "major": 1,
}


_KEPT: list[Made] = []  # the deleter must outlive every array, as a library's code does


class Made:
    """A tensor with arbitrary fields, which counts the calls of its deleter."""

    def __init__(self, versioned: bool = True, **fields: Any):
        given = FIELDS | fields
        _KEPT.append(self)
        self.memory = np.arange(64, dtype=np.float32)
        self.deleted = 0
        self.name = b"dltensor_versioned" if versioned else b"dltensor"
        self.managed = dlpack._Versioned() if versioned else dlpack._Managed()
        if isinstance(self.managed, dlpack._Versioned):
            self.managed.major, self.managed.minor, self.managed.flags = given["major"], 1, given["flags"]
        tensor = self.managed.tensor
        shape = given["shape"]
        if shape is not None:
            self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
            tensor.shape = self.shape
        if given["strides"] is not None:
            self.strides = (ctypes.c_int64 * len(given["strides"]))(*given["strides"])
            tensor.strides = self.strides
        tensor.ndim = len(shape or ()) if given["ndim"] is None else given["ndim"]
        tensor.data = None if given["null"] else self.memory.ctypes.data
        tensor.device.type, tensor.byte_offset = given["device"], given["offset"]
        tensor.element.code, tensor.element.bits, tensor.element.lanes = given["code"], given["bits"], given["lanes"]

        def delete(_: Any) -> None:
            self.deleted += 1

        self.callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(delete)
        self.managed.deleter = ctypes.cast(self.callback, ctypes.c_void_p).value
        self.capsule = _NEW(ctypes.addressof(self.managed), self.name, None)

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> Any:
        return self.managed.tensor.device.type, 0


@pytest.mark.parametrize("versioned", [True, False])
def test_offsets_strides_and_who_gives_back(versioned: bool) -> None:
    made = Made(versioned, shape=(2, 3), strides=(10, 2), offset=8)
    array = as_array(made, "x")
    np.testing.assert_array_equal(array, made.memory[2:22].reshape(2, 10)[:, :6:2], strict=True)
    assert array.flags.writeable == versioned and not _VALID(made.capsule, made.name)
    with pytest.raises(rlx.Error, match="must return a capsule that nobody has used"):
        as_array(made, "x")
    part = array[1]
    del array
    assert made.deleted == 0
    del part
    assert made.deleted == 1
    del made.capsule
    assert made.deleted == 1
    empty = Made(versioned, shape=(0, 3), null=True)
    assert as_array(empty, "x").shape == (0, 3) and empty.deleted == 1
    reverse = as_array(Made(versioned, strides=(-1,), offset=8), "x")
    np.testing.assert_array_equal(reverse, np.array([2, 1, 0], np.float32))
    assert not as_array(Made(flags=1), "x").flags.writeable
    scalar = Made(versioned, shape=None)
    assert as_array(scalar, "x").shape == ()
    ones = Made(versioned, shape=(1, 3), strides=(1 << 62, 1))  # the stride of an axis of size 1 is ignored
    assert as_array(ones, "x").tolist() == [[0, 1, 2]]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "vectors": ({"lanes": 4}, "vectors of 4 elements"),
    "no lanes": ({"lanes": 0}, "vectors of 0 elements"),
    "f128": ({"bits": 128}, "float of 128 bits"),
    "complex of halves": ({"code": 5}, "complex of 32 bits"),
    "f6": ({"code": 15, "bits": 6}, "f6e2m3fn of 6 bits"),
    "handles": ({"code": 3, "bits": 64}, "opaque handle"),
    "of the future": ({"code": 99, "bits": 8}, "code 99 of 8 bits"),
    "f8 of 16 bits": ({"code": 10, "bits": 16}, "code 10 of 16 bits"),
    "CUDA": ({"device": 2}, "in the memory of a device, CUDA"),
    "unknown device": ({"device": 77}, "type 77"),
    "negative rank": ({"ndim": -1}, "-1 axes"),
    "many axes": ({"shape": (1,) * 65}, "65 axes"),
    "greatest rank": ({"ndim": (1 << 31) - 1}, "axes"),
    "no shape": ({"shape": None, "ndim": 2}, "2 axes and no shape"),
    "negative size": ({"shape": (-3,)}, "impossible sizes"),
    "two negative sizes": ({"shape": (-3, -2)}, "impossible sizes"),
    "overflow": ({"shape": (1 << 40, 1 << 40)}, "impossible sizes"),
    "overflow of bytes": ({"shape": (1 << 62,)}, "impossible sizes"),
    "overflow of strides": ({"shape": (3, 3), "strides": (1 << 62, 1)}, "impossible sizes"),
    "no memory": ({"null": True}, "no memory"),
    "another version": ({"major": 2}, "version 2.1 of DLPack"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("versioned", [True, False])
def test_what_is_wrong_is_refused_and_left_with_its_capsule(name: str, versioned: bool) -> None:
    fields, message = WRONG[name]
    if "major" in fields and not versioned:
        return
    made = Made(versioned, **fields)
    with pytest.raises(rlx.Error, match=rf"^input 'x'.*{message}"):
        as_array(made, "input 'x'")
    assert _VALID(made.capsule, made.name) and made.deleted == 0
