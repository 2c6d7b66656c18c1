"""Hostile names in files never reach a terminal: escape sequences, carriage returns, bidirectional controls."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from safetensors.numpy import save_file

import rlx
from tests.cli.calling import Command
from tests.report.pages import Page

HOSTILE = "\x1b[2J\x1b]0;t\x07\r\x08\x7f\x9b1m\u202e\u200b\u2066\u2028\ue000"
BODY = "%0 = stablehlo.tanh %a : tensor<2xf32>"


def mlir_string(text: str) -> str:
    return "".join(f"\\{b:02X}" for b in text.encode())


NAME = mlir_string(HOSTILE)
MODULE = f"""module attributes {{rlx.stage = "mir"}} {{
  func.func @"f{NAME}"(%a: tensor<2xf32> {{rlx.kind = "input", rlx.name = "x"}}) -> (tensor<2xf32> {{rlx.name = "y{NAME}"}}) {{
    %0 = rlx.activation(%a) {{kind = "tanh"}} : tensor<2xf32> loc("{NAME}.py":7:3)
    return %0 : tensor<2xf32>
  }}
}}
"""
STABLEHLO = f"""func.func @"f{NAME}"(%a: tensor<2xf32> loc("a{NAME}")) -> tensor<2xf32> {{
  {BODY} loc("{NAME}.py":7:3)
  return %0 : tensor<2xf32>
}}
"""
FILES = {
    "module.mlir": MODULE,
    "stablehlo.mlir": STABLEHLO,
    "unknown_op.mlir": STABLEHLO.replace("stablehlo.tanh", "stablehlo.cbrt"),
    "unknown_call.mlir": STABLEHLO.replace(BODY, f'%0 = func.call @"g{NAME}"(%a) : (tensor<2xf32>) -> tensor<2xf32>'),
    "own_call.mlir": STABLEHLO.replace(BODY, f'%0 = func.call @"f{NAME}"(%a) : (tensor<2xf32>) -> tensor<2xf32>'),
    "wrong.mlir": MODULE.replace('kind = "tanh"', f'kind = "{NAME}"'),
    "raw.mlir": MODULE.replace('kind = "tanh"', f"kind = {HOSTILE}"),
    "comment.mlir": MODULE.replace("rlx.activation(%a)", f"rlx.nothing(%a) // {HOSTILE}\n"),
}


def is_harmless(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t" for c in text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.encode())
    tensors = {HOSTILE: np.ones(2, np.float32), f"{HOSTILE}\n  fake  float32": np.array([np.nan], np.float32)}
    save_file(tensors, tmp_path / "w.safetensors")
    np.savez(tmp_path / "w.npz", **{n.replace("/", ""): a for n, a in tensors.items()})  # type: ignore[arg-type]
    (tmp_path / "bad.safetensors.index.json").write_text('{"weight_map": {"a": "\\u001b[2J"}}')
    return tmp_path


@pytest.mark.parametrize("file", FILES)
def test_commands_print_names_of_modules_as_escapes(command: Command, folder: Path, file: str) -> None:
    calls: list[list[Any]] = [
        ["inspect", folder / file],
        ["inspect", folder / file, "--stage", "all"],
        ["inspect", folder / file, "--stats"],
        ["run", folder / file, "--input", "x=2xf32=1,2", "--device", "cpu"],
        ["run", folder / file],
        ["compile", folder / file, "-o", folder / "out.rlxa"],
    ]
    for call in calls:
        result = command(*call)
        assert is_harmless(result.out + result.err), call
    if (folder / "out.rlxa").exists():
        assert is_harmless(command.output("inspect", folder / "out.rlxa"))


@pytest.mark.parametrize("file", ["w.safetensors", "w.npz", "bad.safetensors.index.json"])
def test_commands_print_names_of_tensors_as_escapes_on_one_line(command: Command, folder: Path, file: str) -> None:
    result = command("inspect", folder / file)
    assert is_harmless(result.out + result.err)
    if result.code == 0:
        assert len(result.out.splitlines()) == 4, "a total, the heads of the columns, and two tensors"
        assert r"\x1b[2J" in result.out
    model = "m.mlir"
    g: Any = rlx.Graph("g")
    g.set_outputs([g.input("x", (2,)) + g.param(f"{HOSTILE[:3]}p", (2,))])
    (folder / model).write_text(str(g))
    result = command("run", folder / model, "--input", "x=2xf32=1,2", "--params", folder / file)
    assert result.code and is_harmless(result.out + result.err)


@pytest.mark.parametrize("file", ["module.mlir", "stablehlo.mlir"])
def test_pages_and_drawings_hold_names_of_modules_as_escapes(command: Command, folder: Path, file: str) -> None:
    files = {option: folder / f"out.{option}" for option in ("html", "svg", "memory-svg")}
    command.output("inspect", folder / file, *(f"--{option}={path}" for option, path in files.items()))
    Page(files["html"].read_text()).check()
    for option in ("svg", "memory-svg"):
        text = files[option].read_text()
        assert is_harmless(text) and ElementTree.fromstring(text) is not None


def test_commands_print_text_by_one_function() -> None:
    """`say` escapes text for terminals. All other output is for programs: files, JSON, scripts, progress."""
    package = Path(rlx.__file__).parent / "cli"
    for path in package.glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        printing = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
        assert len(printing) == (path.name == "streams.py") * 2, path.name
        for call in calls:
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr == "write"
                and "stderr" in ast.unparse(call.func)
            ):
                assert ast.unparse(call.args[0]) == "diagnostic.format(self.sources)", path.name  # which escapes


def test_commands_print_names_of_onnx_models_and_of_entry_points_as_escapes(command: Command, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    h, name = onnx.helper, f"{HOSTILE}\n  fake"
    node = h.make_node("MatMul", [f"x{name}", f"w{name}"], [f"y{name}"], name=name)
    values = [h.make_tensor_value_info(f"{kind}{name}", 1, [2, 2]) for kind in "xy"]
    weights = [h.make_tensor(f"w{name}", 1, [2, 2], [1.0, 2.0, 3.0, 4.0])]
    model = h.make_model(h.make_graph([node], name, values[:1], values[1:], weights))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    np.savez(tmp_path / "data.npz", **{f"x{name}": np.ones((1, 2, 2), np.float32), f"z{name}": np.ones(1)})  # type: ignore[arg-type]
    g: Any = rlx.from_onnx(tmp_path / "m.onnx")
    rlx.Session("c").compile({name: g, "other": g}, params=g.weights).save(tmp_path / "bundle.rlxa")
    file, given = tmp_path / "m.onnx", f"x{name}=2x2xf32=1"
    calls: list[list[Any]] = [
        *(["run", file, "--input", given, "--device", "c"], ["run", file, "--evaluate"], ["inspect", file, "--memory"]),
        *(["inspect", tmp_path / "bundle.rlxa"], ["run", tmp_path / "bundle.rlxa"], ["profile", file]),
        ["run", file, "--input", given, "--device", "c", "--output-dir", tmp_path / "out", "--repeat", "1"],
        ["quantize", file, "--data", tmp_path / "data.npz", "--sensitivity", "-o", tmp_path / "q.mlir"],
        [
            "quantize",
            file,
            "--integer-only",
            "--data",
            tmp_path / "data.npz",
            "--max-bytes",
            "100",
            "-o",
            tmp_path / "i.mlir",
        ],
        ["compile", file, "--target", "cortexm", "-o", tmp_path / "firmware"],
        ["compile", file, "--target", "fpga", "-o", tmp_path / "hardware", "--report"],
        ["compile", file, "--emit", "linalg"],
    ]
    worked = 0
    for call in calls:
        result = command(*call)
        worked += result.code == 0
        assert is_harmless(result.out + result.err), call
        assert not any(line.startswith("  fake") for line in result.out.split("\n")), call
    assert worked >= 7


def test_outputs_are_written_into_the_folder_whatever_their_names(command: Command, tmp_path: Path) -> None:
    for name in ("../../a", "..", "a/b", "\\", "$(exit 1)", HOSTILE, "a" * 10_000):
        g: Any = rlx.Graph("g")
        g.set_outputs({name: g.input("x", (2,)) + 1})
        (tmp_path / "m.mlir").write_text(str(g))
        out = tmp_path / "in" / "out"
        result = command("run", tmp_path / "m.mlir", "--input", "x=2xf32=1", "--evaluate", "--output-dir", out)
        assert (result.code == 0) == (len(name) < 200) and is_harmless(result.out + result.err)
        assert "Traceback" not in result.err
    assert {p.name for p in tmp_path.iterdir()} == {"m.mlir", "in"}
    assert {p.name for p in (tmp_path / "in").iterdir()} == {"out"} and len(
        list((tmp_path / "in" / "out").iterdir())
    ) == 6


def test_parameters_may_have_any_name() -> None:
    for name in (HOSTILE, 'a"b', "\\22"):
        g: Any = rlx.Graph("g")
        g.set_outputs([g.input("x", (2,)) + g.param(name, (2,))])
        program = rlx.Session().compile(g, params={name: np.ones(2, np.float32)})
        assert program.run({"x": np.ones(2, np.float32)})[0].tolist() == [2, 2]


def test_errors_are_harmless_in_python(folder: Path) -> None:
    """The `message` of an error is unchanged."""
    weights = rlx.weights.open(folder / "w.safetensors")
    for name in weights:
        with pytest.raises(rlx.Error) as caught:
            rlx.weights.Weights([weights[name], rlx.weights.Weights.of({name: np.ones(2)})[name]], "f")
        assert is_harmless(str(caught.value)) and name in caught.value.message


def test_rlx_opt_prints_diagnostics_as_escapes(folder: Path) -> None:
    program = [sys.executable, "-m", "rlx.cli.opt"]
    for path in (folder / "wrong.mlir", folder / "raw.mlir"):
        done = subprocess.run(
            [*program, "--rlx-simplify", str(path)], capture_output=True, env={**os.environ, "PYTHONUTF8": "1"}
        )
        assert is_harmless(done.stderr.decode()), path


def test_names_of_arguments_from_stablehlo_print() -> None:
    assert [a.name for a in rlx.from_stablehlo(STABLEHLO).inputs] == ["arg0"]
    assert [a.name for a in rlx.from_stablehlo(STABLEHLO.replace(f"a{NAME}", "größe")).inputs] == ["größe"]
