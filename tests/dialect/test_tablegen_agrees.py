"""If LLVM is installed: its TableGen reads `dialect/*.td` like RLX's parser, and MLIR accepts the records as ops."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlx.dialect import spec_gen
from rlx.ir.op import op_classes
from tools.generate_dialect import read_dialect
from tools.tablegen import Dag, Record, from_json

ROOT = Path(__file__).resolve().parents[2]
LLVM = Path("/usr/lib/llvm-22")


def _tablegen_is_here() -> bool:
    path = f"{LLVM / 'bin'}:" + (os.environ.get("PATH") or "")
    tools = all(shutil.which(tool, path=path) for tool in ("mlir-tblgen", "llvm-tblgen"))
    return tools and (LLVM / "include/mlir/IR/OpBase.td").exists()


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the build folder of CMake's rlx-dialect-check, which has passed."""
    if not _tablegen_is_here():
        pytest.skip("NOT CHECKED: LLVM 22's TableGen is absent (Debian: mlir-22-tools llvm-22 libmlir-22-dev)")
    folder = tmp_path_factory.mktemp("build")
    ninja = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}"] if Path(_tool("ninja")).exists() else []
    configure = [_tool("cmake"), "-S", ".", "-B", str(folder), *ninja, f"-DPython_EXECUTABLE={sys.executable}"]
    subprocess.run(configure, cwd=ROOT, check=True, capture_output=True)
    check = [_tool("cmake"), "--build", str(folder), "--target", "rlx-dialect-check"]
    result = subprocess.run(check, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_all_records_of_the_dialect_are_equal(build: Path) -> None:
    ours, theirs = read_dialect(ROOT), from_json(build / "records.json")
    names = {name for name, record in theirs.items() if name.startswith("RLX_") and not record.anonymous}
    assert {name for name in ours if name.startswith("RLX_")} == names
    for name in names:
        assert (Path(ours[name].path).name, ours[name].line) == (theirs[name].path, theirs[name].line)
        compare(ours[name], theirs[name], name)


def compare(ours: object, theirs: object, path: str) -> None:
    """Compare values. Records are compared in the fields of RLX's parser: `tools/tablegen/include` omits C++-only fields."""
    if isinstance(ours, Record):
        assert isinstance(theirs, Record), path
        assert ours.anonymous or ours.name == theirs.name, path
        assert [c for c in theirs.classes if c in ours.classes] == ours.classes, path
        for field, value in ours.fields.items():
            if value is not None:
                compare(value, theirs.fields[field], f"{path}.{field}")
    elif isinstance(ours, Dag):
        assert isinstance(theirs, Dag), path
        assert ours.operator.name == theirs.operator.name, path
        assert [name for _, name in ours.arguments] == [name for _, name in theirs.arguments], path
        compare([value for value, _ in ours.arguments], [value for value, _ in theirs.arguments], path)
    elif isinstance(ours, list):
        assert isinstance(theirs, list) and len(ours) == len(theirs), path
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            compare(mine, other, f"{path}[{i}]")
    else:
        assert ours == theirs, path


def test_op_classes_have_the_accessors_of_mlir_s(build: Path) -> None:
    module = ast.parse((build / "op_classes.py").read_text(encoding="utf-8"))
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    for spec in spec_gen.OPS:
        node = classes[op_classes.class_name(spec.name)]
        theirs = {member.name for member in node.body if isinstance(member, ast.FunctionDef)} - {"__init__"}
        # RLX's classes keep `op.name` for the name of the op.
        assert {"name" if name == "name_" else name for name in op_classes.accessors(spec)} == theirs, spec.name
