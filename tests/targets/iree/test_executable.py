"""Executables: parameters, dtypes, devices, errors, threads and processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from rlx.support.errors import ExecutionError
from rlx.targets.iree.abi import TensorType
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.devices import device, devices
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.targets import target
from tests.drawing import drawn
from tests.targets.iree.executable_programs import (
    BIG,
    DTYPES,
    F32,
    ROW,
    borrowed,
    donated,
    expected,
    litter,
    off_alignment,
    random,
)

# ---- parameters


def test_a_matmul_with_a_parameter(model: bytes, weights: dict[str, np.ndarray]):
    linear = IreeExecutable(model, parameters=weights).function("linear")
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
    executable = IreeExecutable(model, parameters={"layer.w": wide[:, ::2], "big": read_only})
    x = random(4, 16)
    np.testing.assert_allclose(executable.function("linear")([x])[0], x @ weights["layer.w"], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(executable.function("parameter")([])[0], weights["big"])


def test_a_parameter_is_never_changed_through_a_result(model: bytes, weights: dict[str, np.ndarray]):
    before = weights["big"].copy()
    executable = IreeExecutable(model, parameters=weights)
    (first,) = executable.function("parameter")([])
    first[...] = 0
    (second,) = executable.function("parameter_with_row")([random(*ROW)])
    second[...] = 0
    np.testing.assert_array_equal(executable.function("parameter")([])[0], before)
    np.testing.assert_array_equal(weights["big"], before)


def test_parameters_live_as_long_as_the_executable(model: bytes, weights: dict[str, np.ndarray]):
    function = IreeExecutable(model, parameters={k: v.copy() for k, v in weights.items()}).function("parameter")
    litter()
    np.testing.assert_array_equal(function([])[0], weights["big"])


def test_a_missing_parameter_is_named(model: bytes, weights: dict[str, np.ndarray]):
    with pytest.raises(ExecutionError, match=r"the parameter 'layer.w' is missing\n.*big"):
        IreeExecutable(model, parameters={"big": weights["big"]})
    with pytest.raises(ExecutionError, match=r"the parameter '(layer.w|big)' is missing"):
        IreeExecutable(model)


def test_a_parameter_of_the_wrong_size_is_named(model: bytes, weights: dict[str, np.ndarray]):
    with pytest.raises(ExecutionError, match=r"the parameter 'layer.w' has 60 bytes, and the module needs 512"):
        IreeExecutable(model, parameters={**weights, "layer.w": random(15)})


def test_parameter_types_are_checked_at_once(model: bytes, weights: dict[str, np.ndarray]):
    types = {"layer.w": TensorType(F32, (16, 8)), "big": TensorType(F32, BIG)}
    IreeExecutable(model, parameters={**weights, "unused": random(3)}, parameter_types=types)
    with pytest.raises(ExecutionError) as caught:
        IreeExecutable(model, parameters={"layer.w": random(17, 8)}, parameter_types=types)
    assert "'layer.w' is float32[17, 8]: expected float32[16, 8]" in str(caught.value)
    assert "'big' is missing: expected float32[256, 256]" in str(caught.value)
    with pytest.raises(ExecutionError, match="'big' is int32"):
        IreeExecutable(model, parameters={**weights, "big": np.zeros(BIG, np.int32)}, parameter_types=types)


# ---- dtypes and shapes


@drawn("size", [("some", (5,)), ("many", (300, 500)), ("one", ()), ("any", (4, 3)), ("any", (0, 3))], of_each=2)
@pytest.mark.parametrize("mlir", DTYPES)
def test_every_dtype(dtypes: IreeExecutable, mlir: str, size: tuple[str, tuple[int, ...]]):
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
def test_unsigned_dtypes_are_declared(dtypes: IreeExecutable, mlir: str, dtype: type):
    type_ = TensorType(np.dtype(dtype), (5,))
    function = dtypes.function(f"some_{mlir}", [type_], [type_])
    array = np.array([0, 1, 2, 100, np.iinfo(dtype).max // 2], dtype)
    (result,) = function([array])
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, array + array)


def test_f64_and_i64_keep_their_precision(dtypes: IreeExecutable):
    exact = np.array([1 + 2.0**-52, 1e300, np.pi, 0, -0.0])
    np.testing.assert_array_equal(dtypes.function("some_f64")([exact])[0], -exact)
    wide = np.array([2**40 + 1, -(2**61), 0, 1, 2**62 - 1])
    np.testing.assert_array_equal(dtypes.function("some_i64")([wide])[0], wide + wide)


def test_dynamic_shapes(memory: IreeExecutable):
    scale = memory.function("scale")
    assert scale.argument_types == (TensorType(F32, (None, 256)), TensorType(F32, ()))
    for rows in (1, 0, 7, 400, 3):
        x = random(rows, 256)
        (y,) = scale([x, np.array(3, np.float32)])
        assert y.shape == (rows, 256)
        np.testing.assert_array_equal(y, x * 3)


def test_functions_without_elements_or_results(memory: IreeExecutable):
    assert memory.function("nothing")([np.zeros((0, 4), np.float32)])[0].shape == (0, 4)
    assert memory.function("no_result")([np.zeros(4, np.float32)]) == []


# ---- devices other than this machine's CPU: results are copied back


def test_results_are_read_back_from_a_device_that_is_not_local(memory_vmfb: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(IreeExecutable, "local", False)
    executable = IreeExecutable(memory_vmfb)
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
        IreeExecutable(memory_vmfb, driver="quantum")
    missing = [info for info in devices() if not info.available]
    if not missing:
        pytest.skip("every driver has a device here")
    with pytest.raises(ExecutionError, match=f"cannot open the device '{missing[0].driver}': "):
        IreeExecutable(memory_vmfb, driver=missing[0].driver)


def test_threads_are_the_devices_own():
    assert device("local-task", 1) is device("local-task", 1)
    assert device("local-task", 1) is not device("local-task", 2)
    assert device("local-sync", 2) is device("local-sync")


# ---- errors


def test_unknown_functions_and_wrong_types(memory: IreeExecutable):
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


def test_the_wrong_number_of_arguments(memory: IreeExecutable):
    with pytest.raises(ExecutionError, match="@double takes 1 arguments, and 2 were given"):
        memory.function("double")([random(*BIG)] * 2)
    with pytest.raises(ExecutionError, match="@insert_small takes 2 arguments, and 1 were given"):
        memory.function("insert_small")([random(8, 4)])


def test_a_program_that_fails(memory: IreeExecutable):
    with pytest.raises(ExecutionError, match=r"@scale failed: .*shape"):
        memory.function("scale")([random(2, 255), np.array(1, np.float32)])


def test_not_a_module():
    with pytest.raises(ExecutionError, match="cannot load"):
        IreeExecutable(b"not a compiled module at all")


def test_a_module_for_another_device():
    text = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %b = arith.addf %a, %a : tensor<4xf32>
  return %b : tensor<4xf32>
}
"""
    vmfb = compile_module(text, target("cuda")).vmfb
    with pytest.raises(ExecutionError, match="cannot load the module on 'local-sync'"):
        IreeExecutable(vmfb)


# ---- threads and processes


def test_threads_share_a_function(memory: IreeExecutable):
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
from rlx.targets.iree.executable import IreeExecutable
from rlx.support.errors import ExecutionError

vmfb = open(sys.argv[1], "rb").read()
x = np.ones((8, 4), np.float32)
functions = {d: IreeExecutable(vmfb, driver=d).function("identity_small") for d in ("local-sync", "local-task")}
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
    assert (IreeExecutable(vmfb, driver="local-task").function("identity_small")([x])[0] == x).all()
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
