"""Executables: right results that own their memory, arguments that stay as they are, and clear errors."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from rlx.backends.iree import memory as memory_module
from rlx.backends.iree.abi import ArgumentType, TensorType
from rlx.backends.iree.compiler import compile_module
from rlx.backends.iree.devices import device, devices
from rlx.backends.iree.executable import Executable
from rlx.backends.iree.memory import ALIGNMENT, COPY_LIMIT, address, array_over, empty_aligned
from rlx.backends.iree.targets import target
from rlx.ir.errors import ExecutionError

F32 = np.dtype(np.float32)
BIG = (256, 256)  # of f32: above the limit up to which everything is copied
ROW = (1, 256)
assert 4 * BIG[0] * BIG[1] > COPY_LIMIT

MODEL = """
util.global private @w = #flow.parameter.named<"model"::"layer.w"> : tensor<16x8xf32>
util.global private @big = #flow.parameter.named<"model"::"big"> : tensor<256x256xf32>
func.func @linear(%x: tensor<4x16xf32>) -> tensor<4x8xf32> {
  %w = util.global.load @w : tensor<16x8xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<4x16xf32>, tensor<16x8xf32>)
      outs(%init : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func @parameter() -> tensor<256x256xf32> {
  %w = util.global.load @big : tensor<256x256xf32>
  return %w : tensor<256x256xf32>
}
func.func @parameter_with_row(%row: tensor<1x256xf32>) -> tensor<256x256xf32> {
  %w = util.global.load @big : tensor<256x256xf32>
  %y = tensor.insert_slice %row into %w[3, 0] [1, 256] [1, 1] : tensor<1x256xf32> into tensor<256x256xf32>
  return %y : tensor<256x256xf32>
}
"""

MEMORY = """
util.global private mutable @state = dense<0.0> : tensor<256x256xf32>
func.func @double(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %y = arith.addf %x, %x : tensor<256x256xf32>
  return %y : tensor<256x256xf32>
}
func.func @double_and_square(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
  %y = arith.addf %x, %x : tensor<256x256xf32>
  %z = arith.mulf %x, %x : tensor<256x256xf32>
  return %y, %z : tensor<256x256xf32>, tensor<256x256xf32>
}
func.func @same_twice(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
  %y = arith.addf %x, %x : tensor<256x256xf32>
  return %y, %y : tensor<256x256xf32>, tensor<256x256xf32>
}
func.func @identity(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  return %x : tensor<256x256xf32>
}
func.func @identity_twice(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<65536xf32>) {
  %y = tensor.collapse_shape %x [[0, 1]] : tensor<256x256xf32> into tensor<65536xf32>
  return %x, %y : tensor<256x256xf32>, tensor<65536xf32>
}
func.func @insert(%x: tensor<256x256xf32>, %row: tensor<1x256xf32>) -> tensor<256x256xf32> {
  %y = tensor.insert_slice %row into %x[3, 0] [1, 256] [1, 1] : tensor<1x256xf32> into tensor<256x256xf32>
  return %y : tensor<256x256xf32>
}
func.func @insert_small(%x: tensor<8x4xf32>, %row: tensor<1x4xf32>) -> tensor<8x4xf32> {
  %y = tensor.insert_slice %row into %x[3, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
  return %y : tensor<8x4xf32>
}
func.func @identity_small(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  return %x : tensor<8x4xf32>
}
func.func @set_state(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  util.global.store %x, @state : tensor<256x256xf32>
  return %x : tensor<256x256xf32>
}
func.func @get_state() -> tensor<256x256xf32> {
  %x = util.global.load @state : tensor<256x256xf32>
  return %x : tensor<256x256xf32>
}
func.func @step_state(%row: tensor<1x256xf32>) -> tensor<256x256xf32> {
  %x = util.global.load @state : tensor<256x256xf32>
  %y = tensor.insert_slice %row into %x[3, 0] [1, 256] [1, 1] : tensor<1x256xf32> into tensor<256x256xf32>
  util.global.store %y, @state : tensor<256x256xf32>
  return %y : tensor<256x256xf32>
}
func.func @scale(%x: tensor<?x256xf32>, %factor: tensor<f32>) -> tensor<?x256xf32> {
  %c0 = arith.constant 0 : index
  %size = tensor.dim %x, %c0 : tensor<?x256xf32>
  %empty = tensor.empty(%size) : tensor<?x256xf32>
  %f = tensor.extract %factor[] : tensor<f32>
  %y = linalg.map ins(%x : tensor<?x256xf32>) outs(%empty : tensor<?x256xf32>) (%a: f32, %o: f32) {
    %b = arith.mulf %a, %f : f32
    linalg.yield %b : f32
  }
  return %y : tensor<?x256xf32>
}
func.func @nothing(%x: tensor<0x4xf32>) -> tensor<0x4xf32> {
  %y = arith.addf %x, %x : tensor<0x4xf32>
  return %y : tensor<0x4xf32>
}
func.func @no_result(%x: tensor<4xf32>) {
  return
}
func.func @scalar(%x: f32) -> f32 {
  return %x : f32
}
"""

DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "i1": np.bool_,
    "complex<f32>": np.complex64,
}


def dtype_functions() -> str:
    """For each dtype functions that negate (or double) a vector, a matrix above the limit, and a scalar."""
    text = ""
    for mlir in DTYPES:
        name = mlir.strip("complex<>")
        bodies = {
            "f": f"arith.negf %a : {mlir}",
            "i": f"arith.addi %a, %a : {mlir}",
            "c": f"complex.neg %a : {mlir}",
        }
        body = "arith.xori %a, %t : i1" if mlir == "i1" else bodies["f" if mlir == "bf16" else mlir[0]]
        for size, dims in (("some", "5x"), ("many", "300x500x"), ("one", ""), ("any", "?x3x")):
            tensor = f"tensor<{dims}{mlir}>"
            text += f"func.func @{size}_{'c' if mlir[0] == 'c' else ''}{name}(%x: {tensor}) -> {tensor} {{\n"
            text += "  %t = arith.constant true\n"
            if size == "any":
                text += f"  %c0 = arith.constant 0 : index\n  %n = tensor.dim %x, %c0 : {tensor}\n"
            text += f"  %e = tensor.empty({'%n' if size == 'any' else ''}) : {tensor}\n"
            text += f"  %y = linalg.map ins(%x : {tensor}) outs(%e : {tensor}) (%a: {mlir}, %o: {mlir}) {{\n"
            text += f"    %b = {body}\n    linalg.yield %b : {mlir}\n  }}\n  return %y : {tensor}\n}}\n"
    return text


def expected(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.bool_:
        return ~array
    return array + array if array.dtype.kind in "iu" else -array


@pytest.fixture(scope="module")
def model() -> bytes:
    return compile_module(MODEL, target("cpu")).vmfb


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return {"layer.w": random(16, 8), "big": random(*BIG)}


@pytest.fixture(scope="module")
def memory_vmfb() -> bytes:
    return compile_module(MEMORY, target("cpu")).vmfb


@pytest.fixture(scope="module", params=["local-sync", "local-task"])
def memory(request: pytest.FixtureRequest, memory_vmfb: bytes) -> Executable:
    return Executable(memory_vmfb, driver=request.param, threads=2)


@pytest.fixture(scope="module")
def dtypes() -> Executable:
    return Executable(compile_module(dtype_functions(), target("cpu")).vmfb)


def random(*shape: int) -> np.ndarray:
    """Aligned, so that it can be lent to a program."""
    array = empty_aligned(shape, np.float32)
    array[...] = np.random.default_rng(7).standard_normal(shape)
    return array


def readonly(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def off_alignment(array: np.ndarray) -> np.ndarray:
    """A copy at an address where compiled code would crash."""
    bytes_ = empty_aligned((array.nbytes + 4,), np.uint8)[4:]
    copy = bytes_.view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert address(copy) % ALIGNMENT == 4
    return copy


def borrowed(shape: tuple[int | None, ...]) -> ArgumentType:
    return ArgumentType(F32, shape, "borrow")


def donated(shape: tuple[int | None, ...]) -> ArgumentType:
    return ArgumentType(F32, shape, "donate")


def litter() -> None:
    """Take and overwrite freed memory of the sizes in use here, so that a dangling array shows."""
    gc.collect()
    for _ in range(6):
        np.full(BIG, np.nan, np.float32)
        empty_aligned(BIG, np.float32)[...] = np.nan


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    return address(a) < address(b) + b.nbytes and address(b) < address(a) + a.nbytes


# ---- parameters


def test_a_matmul_with_a_parameter(model: bytes, weights: dict[str, np.ndarray]):
    linear = Executable(model, parameters=weights).function("linear")
    for _ in range(3):
        x = random(4, 16)
        (y,) = linear([x])
        np.testing.assert_allclose(y, x @ weights["layer.w"], rtol=1e-5, atol=1e-5)
    assert linear.argument_types == (TensorType(F32, (4, 16)),)
    assert linear.result_types == (TensorType(F32, (4, 8)),)


def test_parameters_may_have_any_layout(model: bytes, weights: dict[str, np.ndarray]):
    wide = np.zeros((16, 16), np.float32)
    wide[:, ::2] = weights["layer.w"]
    read_only = off_alignment(weights["big"])
    read_only.flags.writeable = False
    executable = Executable(model, parameters={"layer.w": wide[:, ::2], "big": read_only})
    x = random(4, 16)
    np.testing.assert_allclose(
        executable.function("linear")([x])[0], x @ weights["layer.w"], rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(executable.function("parameter")([])[0], weights["big"])


def test_a_parameter_is_never_changed_through_a_result(model: bytes, weights: dict[str, np.ndarray]):
    before = weights["big"].copy()
    executable = Executable(model, parameters=weights)
    (first,) = executable.function("parameter")([])
    first[...] = 0
    (second,) = executable.function("parameter_with_row")([random(*ROW)])
    second[...] = 0
    np.testing.assert_array_equal(executable.function("parameter")([])[0], before)
    np.testing.assert_array_equal(weights["big"], before)


def test_parameters_live_as_long_as_the_executable(model: bytes, weights: dict[str, np.ndarray]):
    function = Executable(model, parameters={k: v.copy() for k, v in weights.items()}).function("parameter")
    litter()
    np.testing.assert_array_equal(function([])[0], weights["big"])


def test_a_missing_parameter_is_named(model: bytes, weights: dict[str, np.ndarray]):
    with pytest.raises(ExecutionError, match=r"the parameter 'layer.w' is missing\n.*big"):
        Executable(model, parameters={"big": weights["big"]})
    with pytest.raises(ExecutionError, match=r"the parameter '(layer.w|big)' is missing"):
        Executable(model)


def test_a_parameter_of_the_wrong_size_is_named(model: bytes, weights: dict[str, np.ndarray]):
    with pytest.raises(
        ExecutionError, match=r"the parameter 'layer.w' has 60 bytes, and the module needs 512"
    ):
        Executable(model, parameters={**weights, "layer.w": random(15)})


def test_parameter_types_are_checked_at_once(model: bytes, weights: dict[str, np.ndarray]):
    types = {"layer.w": TensorType(F32, (16, 8)), "big": TensorType(F32, BIG)}
    Executable(model, parameters={**weights, "unused": random(3)}, parameter_types=types)
    with pytest.raises(ExecutionError) as caught:
        Executable(model, parameters={"layer.w": random(17, 8)}, parameter_types=types)
    assert "'layer.w' is float32[17, 8]: expected float32[16, 8]" in str(caught.value)
    assert "'big' is missing: expected float32[256, 256]" in str(caught.value)
    with pytest.raises(ExecutionError, match="'big' is int32"):
        Executable(model, parameters={**weights, "big": np.zeros(BIG, np.int32)}, parameter_types=types)


# ---- dtypes and shapes


@pytest.mark.parametrize(
    "size", [("some", (5,)), ("many", (300, 500)), ("one", ()), ("any", (4, 3)), ("any", (0, 3))]
)
@pytest.mark.parametrize("mlir", DTYPES)
def test_every_dtype(dtypes: Executable, mlir: str, size: tuple[str, tuple[int, ...]]):
    dtype = np.dtype(DTYPES[mlir])
    name = "cf32" if mlir.startswith("complex") else mlir
    function = dtypes.function(f"{size[0]}_{name}")
    assert function.argument_types[0].dtype == dtype
    values = np.random.default_rng(3).integers(-50, 50, size[1])
    array = np.asarray(values > 0 if dtype == np.bool_ else values).astype(dtype)
    if dtype.kind == "c":
        array = (array * (1 + 2j)).astype(dtype)
    before = array.copy()
    (result,) = function([array])
    assert result.dtype == dtype
    assert result.shape == size[1]
    assert result.flags.writeable and result.flags.c_contiguous
    np.testing.assert_array_equal(result, expected(before))
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize(("mlir", "dtype"), [("i8", np.uint8), ("i32", np.uint32), ("i16", np.uint16)])
def test_unsigned_dtypes_are_declared(dtypes: Executable, mlir: str, dtype: type):
    type_ = TensorType(np.dtype(dtype), (5,))
    function = dtypes.function(f"some_{mlir}", [type_], [type_])
    array = np.array([0, 1, 2, 100, np.iinfo(dtype).max // 2], dtype)
    (result,) = function([array])
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, array + array)


def test_f64_and_i64_keep_their_precision(dtypes: Executable):
    exact = np.array([1 + 2.0**-52, 1e300, np.pi, 0, -0.0])
    np.testing.assert_array_equal(dtypes.function("some_f64")([exact])[0], -exact)
    wide = np.array([2**40 + 1, -(2**61), 0, 1, 2**62 - 1])
    np.testing.assert_array_equal(dtypes.function("some_i64")([wide])[0], wide + wide)


def test_dynamic_shapes(memory: Executable):
    scale = memory.function("scale")
    assert scale.argument_types == (TensorType(F32, (None, 256)), TensorType(F32, ()))
    for rows in (1, 0, 7, 400, 3):
        x = random(rows, 256)
        (y,) = scale([x, np.array(3, np.float32)])
        assert y.shape == (rows, 256)
        np.testing.assert_array_equal(y, x * 3)


def test_functions_without_elements_or_results(memory: Executable):
    assert memory.function("nothing")([np.zeros((0, 4), np.float32)])[0].shape == (0, 4)
    assert memory.function("no_result")([np.zeros(4, np.float32)]) == []


# ---- whose memory is it


@pytest.mark.parametrize("access", ["copy", "borrow"])
@pytest.mark.parametrize("name", ["double", "identity", "insert"])
def test_an_argument_is_never_changed(memory: Executable, name: str, access: str):
    rest = [random(*ROW)] if name == "insert" else []
    types = [ArgumentType(F32, BIG, access), *(TensorType(F32, ROW) for _ in rest)]  # type: ignore[arg-type]
    function = memory.function(name, types)
    x = random(*BIG)
    before = x.copy()
    want = 2 * before if name == "double" else before.copy()
    if rest:
        want[3] = rest[0]
    for _ in range(5):
        (y,) = function([x, *rest])
        np.testing.assert_array_equal(y, want)
        y[...] = -1
        np.testing.assert_array_equal(x, before)


def test_small_arguments_are_never_changed_nor_shared(memory: Executable):
    x, row = random(8, 4), random(1, 4)
    before = x.copy()
    (y,) = memory.function("insert_small")([x, row])
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(y[3], row[0])
    identity = memory.function("identity_small")
    (first,) = identity([x])
    (second,) = identity([x + 1])
    np.testing.assert_array_equal(first, before)
    np.testing.assert_array_equal(second, before + 1)


def test_a_borrowed_argument_is_read_where_it_lies(memory: Executable, monkeypatch: pytest.MonkeyPatch):
    function = memory.function("double", [borrowed(BIG)])
    x = random(*BIG)
    assert address(x) % ALIGNMENT == 0
    for _ in range(3):
        function([x])

    def fail(_: np.ndarray) -> None:
        raise AssertionError("copied")

    monkeypatch.setattr(function._passers[0], "_copy", fail)
    np.testing.assert_array_equal(function([x])[0], 2 * x)
    for elsewhere in (off_alignment(x), x[:, ::-1], readonly(x)):
        with pytest.raises(AssertionError, match="copied"):
            function([elsewhere])


@pytest.mark.parametrize("access", ["copy", "borrow", "donate"])
def test_arrays_that_cannot_be_lent_are_copied(memory: Executable, access: str):
    function = memory.function("double", [ArgumentType(F32, BIG, access)])  # type: ignore[arg-type]
    x = random(*BIG)
    for array in (off_alignment(x), readonly(x), np.asfortranarray(x), x[::-1], x[:, ::-1]):
        for _ in range(3):
            np.testing.assert_array_equal(function([array])[0], 2 * array)


def test_a_donated_argument_is_updated_in_place(memory: Executable):
    insert = memory.function("insert", [donated(BIG), TensorType(F32, ROW)])
    cache = random(*BIG)
    want = cache.copy()
    first = address(cache)
    for step in range(4):
        row = random(*ROW) + step
        want[3] = row
        (cache,) = insert([cache, row])
        np.testing.assert_array_equal(cache, want)
    assert address(cache) == first


def test_a_donated_array_outlives_its_owner_through_the_result(memory: Executable):
    identity = memory.function("identity", [donated(BIG)])
    want = random(*BIG)
    results = [identity([random(*BIG)])[0].reshape(-1)[:] for _ in range(4)]
    litter()
    for result in results:
        np.testing.assert_array_equal(result, want.reshape(-1))


def test_two_results_never_share_memory(memory: Executable):
    for name in ("same_twice", "identity_twice", "double_and_square"):
        for access in ("copy", "borrow", "donate"):
            function = memory.function(name, [ArgumentType(F32, BIG, access)])  # type: ignore[arg-type]
            for _ in range(4):
                a, b = function([random(*BIG)])
                assert not overlap(a, b), (name, access)
                kept = b.copy()
                a[...] = -1
                np.testing.assert_array_equal(b, kept)


def test_results_own_their_memory(memory: Executable):
    double = memory.function("double", [borrowed(BIG)])
    x = random(*BIG)
    kept = []
    for step in range(12):
        kept.append(double([x + step])[0].reshape(-1)[10:][::2])
        litter()
    for step, view in enumerate(kept):
        np.testing.assert_array_equal(view, (2 * (x + step)).reshape(-1)[10:][::2])


def test_results_outlive_the_executable(memory_vmfb: bytes):
    x = random(*BIG)
    view = Executable(memory_vmfb).function("double")([x])[0].T[5:]
    litter()
    np.testing.assert_array_equal(view, (2 * x).T[5:])
    view[...] = 0
    assert not view.any()


def test_copy_results(memory: Executable):
    (shared,) = memory.function("double")([random(*BIG)])
    (copied,) = memory.function("double", copy_results=True)([random(*BIG)])
    assert copied.base is None
    assert shared.base is not None
    np.testing.assert_array_equal(shared, copied)


def test_state_is_never_shared(memory_vmfb: bytes):
    executable = Executable(memory_vmfb)
    x, row = random(*BIG), random(*ROW)
    want = x.copy()
    for access in ("copy", "donate"):
        (result,) = executable.function("set_state", [ArgumentType(F32, BIG, access)])([x])  # type: ignore[arg-type]
        result[...] = -1
        x[...] = -2
        np.testing.assert_array_equal(executable.function("get_state")([])[0], want)
        x[...] = want
    (stepped,) = executable.function("step_state")([row])
    want[3] = row
    np.testing.assert_array_equal(stepped, want)
    stepped[...] = -1
    (got,) = executable.function("get_state")([])
    np.testing.assert_array_equal(got, want)
    got[...] = -1
    executable.function("step_state")([row + 1])
    want[3] = row + 1
    np.testing.assert_array_equal(executable.function("get_state")([])[0], want)


def test_executables_have_states_of_their_own(memory_vmfb: bytes):
    a, b = Executable(memory_vmfb), Executable(memory_vmfb)
    a.function("set_state")([random(*BIG)])
    assert not b.function("get_state")([])[0].any()


def test_array_over_keeps_its_owner():
    class Owner:
        pass

    owner = Owner()
    alive = [True]
    import weakref

    weakref.finalize(owner, alive.clear)
    source = np.arange(12, dtype=np.int16)
    array = array_over(source.reshape(3, 4), source, owner)
    view = array[1:].T.reshape(-1)[:2]
    base = array[::2].T
    del owner, array, view
    gc.collect()
    assert alive
    np.testing.assert_array_equal(base, np.arange(12).reshape(3, 4)[::2].T)
    del base
    gc.collect()
    assert not alive


@pytest.mark.skipif(sys.platform != "linux", reason="acts on glibc only")
def test_the_c_allocator_is_set_once(monkeypatch: pytest.MonkeyPatch):
    calls: list[tuple[int, int]] = []

    class Libc:
        def mallopt(self, name: int, value: int) -> None:
            calls.append((name, value))

    monkeypatch.setattr(memory_module.ctypes, "CDLL", lambda _: Libc())
    monkeypatch.setattr(memory_module.platform, "libc_ver", lambda: ("glibc", "2.36"))
    for variable, expected_calls in (("1", 0), ("", 2), ("0", 2)):
        monkeypatch.setenv("RLX_NO_MALLOPT", variable)
        monkeypatch.setattr(memory_module, "_configured", False)
        calls.clear()
        memory_module.configure_allocator()
        memory_module.configure_allocator()
        assert len(calls) == expected_calls, variable


# ---- devices other than this machine's CPU: results are read back


def test_results_are_read_back_from_a_device_that_is_not_local(
    memory_vmfb: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Executable, "local", False)
    executable = Executable(memory_vmfb)
    x = random(*BIG)
    a, b = executable.function("double_and_square", [donated(BIG)])([x])
    np.testing.assert_array_equal(a, 2 * x)
    np.testing.assert_array_equal(b, x * x)
    assert a.base is None and b.base is None
    (y,) = executable.function("scale")([x[:5].copy(), np.array(2, np.float32)])
    np.testing.assert_array_equal(y, 2 * x[:5])
    assert executable.function("nothing")([np.zeros((0, 4), np.float32)])[0].shape == (0, 4)
    np.testing.assert_array_equal(executable.function("insert_small")([x[:8, :4], x[:1, :4]])[0][3], x[0, :4])


def test_devices_are_listed_with_reasons():
    found = {info.driver: info for info in devices()}
    assert found["local-sync"].available
    assert found["local-task"].available
    for info in found.values():
        assert info.available or info.reason
    assert {"cuda", "vulkan"} <= set(found)


def test_a_device_that_is_not_there(memory_vmfb: bytes):
    with pytest.raises(ExecutionError, match=r"no driver 'quantum'\n.*local-sync"):
        Executable(memory_vmfb, driver="quantum")
    missing = [info for info in devices() if not info.available]
    if not missing:
        pytest.skip("every driver has a device here")
    with pytest.raises(ExecutionError, match=f"cannot open the device '{missing[0].driver}': "):
        Executable(memory_vmfb, driver=missing[0].driver)


def test_threads_are_the_devices_own():
    assert device("local-task", 1) is device("local-task", 1)
    assert device("local-task", 1) is not device("local-task", 2)
    assert device("local-sync", 2) is device("local-sync")


# ---- errors


def test_unknown_functions_and_wrong_types(memory: Executable):
    with pytest.raises(ExecutionError, match=r"no function @dubble\n.*double"):
        memory.function("dubble")
    with pytest.raises(ExecutionError, match=r"argument types float32\[256, 256\], not float64\[256, 256\]"):
        memory.function("double", [TensorType(np.dtype(np.float64), BIG)])
    with pytest.raises(ExecutionError, match=r"argument types float32\[256, 256\], not float32\[256, 255\]"):
        memory.function("double", [TensorType(F32, (256, 255))])
    with pytest.raises(ExecutionError, match=r"result types float32\[256, 256\], not none"):
        memory.function("double", None, [])
    with pytest.raises(ExecutionError, match="only tensors"):
        memory.function("scalar")


def test_the_wrong_number_of_arguments(memory: Executable):
    with pytest.raises(ExecutionError, match="@double takes 1 arguments, and 2 were given"):
        memory.function("double")([random(*BIG)] * 2)
    with pytest.raises(ExecutionError, match="@insert_small takes 2 arguments, and 1 were given"):
        memory.function("insert_small")([random(8, 4)])


def test_a_program_that_fails(memory: Executable):
    with pytest.raises(ExecutionError, match=r"@scale failed: .*shape"):
        memory.function("scale")([random(2, 255), np.array(1, np.float32)])


def test_not_a_module():
    with pytest.raises(ExecutionError, match="cannot load"):
        Executable(b"not a compiled module at all")


def test_a_module_for_another_device():
    text = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %b = arith.addf %a, %a : tensor<4xf32>
  return %b : tensor<4xf32>
}
"""
    vmfb = compile_module(text, target("cuda")).vmfb
    with pytest.raises(ExecutionError, match="cannot load the module on 'local-sync'"):
        Executable(vmfb)


# ---- threads and processes


def test_threads_share_a_function(memory: Executable):
    small, big = memory.function("insert_small"), memory.function("double", [borrowed(BIG)])
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x, row = rng.random((8, 4), np.float32), rng.random((1, 4), np.float32)
            want = x.copy()
            want[3] = row
            if not np.array_equal(small([x, row])[0], want):
                wrong.append("small")
            y = random(*BIG) + np.float32(seed)
            if not np.array_equal(big([y])[0], 2 * y):
                wrong.append("big")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


FORK = """
import os, sys
import numpy as np
from rlx.backends.iree.executable import Executable
from rlx.ir.errors import ExecutionError

vmfb = open(sys.argv[1], "rb").read()
x = np.ones((8, 4), np.float32)
functions = {d: Executable(vmfb, driver=d).function("identity_small") for d in ("local-sync", "local-task")}
for function in functions.values():
    function([x])
child = os.fork()
if child == 0:
    assert (functions["local-sync"]([x])[0] == x).all()
    try:
        functions["local-task"]([x])
    except ExecutionError as error:
        assert "forked" in str(error)
    else:
        raise AssertionError("it ran without threads")
    assert (Executable(vmfb, driver="local-task").function("identity_small")([x])[0] == x).all()
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert (functions["local-task"]([x])[0] == x).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_fork(memory_vmfb: bytes, tmp_path):
    path = tmp_path / "module.vmfb"
    path.write_bytes(memory_vmfb)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(path)],
        env=environment,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
