"""A dtype is defined only by its table row: a dtype that the code does not name works after it is renamed."""

from __future__ import annotations

import subprocess
import sys

# Rows whose dtypes are renamed, as if they were new. NumPy and MLIR must know the dtypes.
RENAMED = {
    '    _float("f8e3m4", 8, "float8_e3m4", FloatFormat(3, 4, 3), "f32", True, stablehlo="1.7.0", dlpack=7),': (
        '    DTypeRow("mini", "float", 8, "f8E3M4", "float8_e3m4", "f32", True, "", FloatFormat(3, 4, 3), "1.7.0", 7),'
    ),
    '    _float("f8e4m3fn", 8, "float8_e4m3fn", FloatFormat(4, 3, 7, "fn"), "f32", True, "F8_E4M3", dlpack=10),': (
        '    DTypeRow("usual", "float", 8, "f8E4M3FN", "float8_e4m3fn", "f32", True, "F8_E4M3", FloatFormat(4, 3, 7, "fn"),'
        ' "", 10),'
    ),
    '    _float("f4e2m1fn", 4, "float4_e2m1fn", FloatFormat(2, 1, 1, "finite"), "f32", True, "F4", "1.8.0", 17),': (
        '    DTypeRow("micro", "float", 4, "f4E2M1FN", "float4_e2m1fn", "f32", True, "F4", FloatFormat(2, 1, 1, "finite"),'
        ' "1.8.0", 17),'
    ),
    '    DTypeRow("i4", "signed", 4, "i4", "int4", "i8", storage=True),': (
        '    DTypeRow("nibble", "signed", 4, "i4", "int4", "i8", storage=True),'
    ),
    '    DTypeRow("u2", "unsigned", 2, "ui2", "uint2", "u8", storage=True),': (
        '    DTypeRow("crumb", "unsigned", 2, "ui2", "uint2", "u8", storage=True),'
    ),
}

PROGRAM = """
import importlib.machinery, importlib.util, sys, tempfile
from pathlib import Path
import numpy as np

class Renaming(importlib.machinery.SourceFileLoader):
    def get_code(self, name):
        text = self.get_source(name)
        for before, after in RENAMED.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        return compile(text, self.path, "exec")

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "rlx.dialect.dtypes":
            return None
        file = Path(path[0]) / "dtypes.py"
        return importlib.util.spec_from_file_location(name, file, loader=Renaming(name, str(file)))

sys.meta_path.insert(0, Finder())
import onnx
import rlx
from onnx import TensorProto, helper
from rlx.cli.main import main
from rlx.ir import dlpack
from rlx.ir.packing import pack
from rlx.weights import open as open_weights
from rlx.weights.safetensors import write

NAMES = ("mini", "usual", "micro", "nibble", "crumb")
arrays, outputs, g = {}, {}, rlx.Graph("g")
for name in NAMES:
    dtype = getattr(rlx, name)
    assert rlx.dtype(dtype.numpy) is dtype and rlx.dtype(dtype.numpy_name) is dtype and rlx.promote(dtype, "f32") is rlx.f32
    arrays[name] = np.arange(1 << dtype.bits).astype(np.uint8).view(dtype.numpy)
    if dtype.is_integer:
        arrays[name] = np.arange(int(dtype.min), int(dtype.max) + 1).astype(dtype.numpy)
    x = g.input(name, (arrays[name].size,), dtype)
    outputs |= {f"{name} moved": g.concat([x[2:], x[:2]], 0), f"{name} wide": g.cast(x, "f32"), f"{name} sum": x + x,
                f"{name} back": g.cast(g.cast(x, "f32") * 0.5, dtype), f"{name} sorted": g.sort(x)}
g.set_outputs(outputs)
g = rlx.parse(str(g))
wanted = rlx.evaluate(g, arrays)

class Lender:
    def __init__(self, array):
        self.array = array
    def __dlpack__(self, **options):
        return dlpack.lent(self.array, **options)
    def __dlpack_device__(self):
        return 1, 0

def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_array_equal(a.astype(np.float32), b.astype(np.float32))

with tempfile.TemporaryDirectory() as folder:
    text, exported = Path(folder) / "g.mlir", Path(folder) / "g.mlirbc"
    text.write_text(str(g))
    assert main(["compile", str(text), "--target=stablehlo", "-o", str(exported)]) == 0
    imported = rlx.from_stablehlo(exported)
order = dict(zip([a.name for a in imported.arguments], arrays.values(), strict=True))
for results in (rlx.Session("cpu").compile(g).run(arrays), rlx.Session("xla").compile(g).run(arrays),
                rlx.evaluate(imported, order)):
    for a, b in zip(results, wanted, strict=True):
        same(a, b)

with tempfile.TemporaryDirectory() as folder:
    write(Path(folder) / "w.safetensors", arrays, {})
    for name, weight in open_weights(Path(folder) / "w.safetensors").items():
        same(weight.numpy(), arrays[name])

for name, array in arrays.items():
    dtype = rlx.dtype(name)
    if not dtype.packed:
        same(dlpack.read(Lender(array), "x"), array)
    try:
        number = helper.np_dtype_to_tensor_dtype(array.dtype)
    except (KeyError, ValueError):
        continue
    tensor = TensorProto(name="w", data_type=number, dims=array.shape, raw_data=pack(array).tobytes())
    output = helper.make_tensor_value_info("y", number, array.shape)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [output], [tensor])
    model = rlx.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)]).SerializeToString())
    params = {p.name: array for p in model.arguments}
    same(rlx.evaluate(model, params)[0], array)
"""


def test_a_row_is_all_that_a_storage_dtype_needs() -> None:
    program = f"RENAMED = {RENAMED!r}\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
