"""Hints of ONNX imports that fail: the sizes and constants that they name make the import succeed when they are typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rlx
from rlx.cli.main import main
from tests.importers.test_onnx_packages import MODELS, path_of

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
Info = tuple[str, int, list[Any]]


def saved(path: Path, nodes: list[Any], inputs: list[Info], arrays: dict[str, Any] | None = None) -> str:
    """Write a model with the output `y`, and return its path."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(*info) for info in inputs],
        [helper.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in (arrays or {}).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def halves(path: Path) -> str:
    """Write a network that halves sizes and doubles them again."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["half"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Resize", ["half", "", "scale"], ["same"], mode="nearest"),
        helper.make_node("Add", ["x", "same"], ["y"]),
    ]
    return saved(path, nodes, [("x", FLOAT, ["batch", 3, "h", "w"])], {"scale": np.array([1, 1, 2, 2], np.float32)})


def squeezed(path: Path) -> str:
    """Write a network whose windows must be one."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["z"], strides=[50]),
        helper.make_node("Squeeze", ["z", "axis"], ["y"]),
    ]
    arrays = {"w": np.ones((2, 1, 70), np.float32), "axis": np.array([2])}
    return saved(path, nodes, [("x", FLOAT, ["batch", 1, "samples"])], arrays)


def branches(path: Path) -> str:
    """Write a network with a branch for each of two rates, and different sizes in them."""

    def branch(name: str, size: int) -> Any:
        nodes = [helper.make_node("Reshape", ["x", f"{name}_shape"], [f"{name}_out"])]
        shape = onnx.numpy_helper.from_array(np.array([1, size]), f"{name}_shape")
        return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(f"{name}_out")], [shape])

    nodes = [
        helper.make_node("Equal", ["rate", "sixteen"], ["is_fast"]),
        helper.make_node("If", ["is_fast"], ["y"], then_branch=branch("fast", 320), else_branch=branch("slow", 160)),
    ]
    return saved(path, nodes, [("x", FLOAT, ["samples"]), ("rate", INT, [])], {"sixteen": np.array(16000)})


def equal(path: Path) -> str:
    """Write a network whose inputs must have the same size."""
    nodes = [helper.make_node("Concat", ["x", "h"], ["y"], axis=1)]
    return saved(path, nodes, [("x", FLOAT, ["a", 3]), ("h", FLOAT, ["b", 2])])


def several(path: Path) -> str:
    """Write a network whose recurrent layer needs three equal sizes."""
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["y"], hidden_size=3)]
    arrays = {"w": np.ones((1, 12, 2), np.float32), "r": np.ones((1, 12, 3), np.float32)}
    states: list[Info] = [("h", FLOAT, [1, "of_h", 3]), ("c", FLOAT, [1, "of_c", 3])]
    return saved(path, nodes, [("x", FLOAT, [4, "of_x", 2]), *states], arrays)


def steps(path: Path) -> str:
    """Write a loop that stacks values, and whose number of steps is a size that a condition may end."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["i"], ["stacked"]),
            helper.make_node("Less", ["i", "last"], ["goes_on"]),
        ],
        "body",
        [helper.make_tensor_value_info("i", INT, []), helper.make_tensor_value_info("before", TensorProto.BOOL, [])],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("stacked", INT, []),
        ],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Squeeze", ["shape"], ["count"]),
        helper.make_node("Sub", ["count", "one"], ["last"]),
        helper.make_node("Loop", ["count", ""], ["y"], body=body),
    ]
    return saved(path, nodes, [("x", FLOAT, ["length"])], {"one": np.array(1)})


def hint_of(path: str) -> str:
    """Return the hint of the error; empty if the model is imported."""
    try:
        rlx.from_onnx(path)
    except rlx.Error as problem:
        return problem.hint or ""
    return ""


def typed(hint: str, path: str) -> rlx.Graph:
    """Return the graph of the call in a hint."""
    (call,) = re.findall(r"rlx\.from_onnx\(path, .*?\)(?=;)", hint)
    return eval(call, {"rlx": rlx, "path": path})


@pytest.mark.parametrize(
    ("write", "sizes", "constants", "shape"),
    [
        (halves, {"h": "32*n", "w": "32*m"}, {}, "f32[batch, 3, 32*n, 32*m]"),
        (squeezed, {"samples": 70}, {}, "f32[batch, 1, 70]"),
        (branches, {"samples": 320}, {"rate": 16000}, "f32[320]"),
        (equal, {"b": "a"}, {}, "f32[a, 3]"),
        (several, {"of_h": "of_x", "of_c": "of_x"}, {}, "f32[4, of_x, 2]"),
    ],
)
def test_hints_work_when_typed(write: Any, sizes: Any, constants: Any, shape: str, tmp_path: Path) -> None:
    path = write(tmp_path / "net.onnx")
    hint = hint_of(path)
    assert "sizes that are open: " in hint
    assert ("inputs that can be constants: 'rate' (i64)" in hint) == bool(constants)
    graph = typed(hint, path)
    assert str(graph.inputs[0].shape) == shape
    given = ([f"sizes={sizes}"] if sizes else []) + ([f"constants={constants}"] if constants else [])
    assert f"rlx.from_onnx(path, {', '.join(given)})" in hint


def test_flags_of_hints_work_in_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for write in (halves, squeezed, branches):
        path = write(tmp_path / "net.onnx")
        assert main(["inspect", path, "--stats"]) == 1
        flags = shlex.split(capfd.readouterr().err.split("commands take ")[1].splitlines()[0])
        assert main(["inspect", path, "--stats", *flags]) == 0
    assert main(["inspect", path, "--stats", "--bind=rate=fast"]) == 1
    assert "--bind=rate=fast: 'rate' is an input of i64; expected its value" in capfd.readouterr().err


def test_loops_that_depend_on_sizes(tmp_path: Path) -> None:
    path = steps(tmp_path / "net.onnx")
    hint = hint_of(path)
    if hint:
        (values,) = rlx.evaluate(typed(hint, path), {"x": np.zeros(16, np.float32)})
        np.testing.assert_array_equal(values, np.arange(16))


def test_without_a_remedy_sizes_and_constants_are_named(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    path = saved(
        tmp_path / "net.onnx", nodes, [("x", FLOAT, ["n"]), ("shape", INT, [2]), ("flag", TensorProto.BOOL, [])]
    )
    hint = hint_of(path)
    assert "sizes that are open: 'n'" in hint
    assert "inputs that can be constants: 'shape' (i64[2]), 'flag' (bool)" in hint
    assert "constants={'shape': [2 values], 'flag': …}); commands take --bind=shape=N,N --bind=flag=N" in hint


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([helper.make_node("MatMul", ["x", "w"], ["y"])], "7 columns against 8 rows"),
        ([helper.make_node("Add", ["x", "ww"], ["y"])], "an operand is 'ww', which nothing before it gives"),
        ([helper.make_node("RandomNormalLike", ["x"], ["y"])], "1 in all: its random numbers are not specified"),
    ],
)
def test_errors_that_no_size_helps_have_no_hint_on_sizes(nodes: list[Any], message: str, tmp_path: Path) -> None:
    weights = {"w": np.zeros((8, 3), np.float32)}
    path = saved(tmp_path / "net.onnx", nodes, [("x", FLOAT, ["batch", 7])], weights)
    with pytest.raises(rlx.Error) as caught:
        rlx.from_onnx(path)
    assert message in caught.value.message
    assert str(caught.value).count("net.onnx") == 1
    assert "size" not in (caught.value.hint or "")


def vectors(path: Path) -> str:
    """Write a network whose inputs have several values that must be known."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Tile", ["r", "reps"], ["y"])]
    return saved(path, nodes, [("x", FLOAT, ["n", None]), ("shape", INT, [2]), ("reps", INT, [2])])


def test_inputs_of_several_values_are_given_in_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = vectors(tmp_path / "net.onnx")
    hint = hint_of(path)
    assert "inputs that can be constants: 'shape' (i64[2]), 'reps' (i64[2]); give constants by" in hint
    assert "one value" not in hint
    given = ["--bind=shape=0,8", "--bind=reps=2,1"]
    assert main(["import", path, *given]) == 1
    flags = shlex.split(capfd.readouterr().out.split("commands take ")[1].splitlines()[0])
    assert flags[-2:] == given
    assert main(["import", path, *flags]) == 0
    call = capfd.readouterr().out.split("in Python: ")[1].strip()
    graph = eval(call, {"rlx": rlx})
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    np.testing.assert_array_equal(rlx.evaluate(graph, {graph.inputs[0].name: x})[0], np.tile(x, (2, 1)))
    for values in ("2", "2,1,1", "2,", "2,a"):
        assert main(["inspect", path, f"--bind=reps={values}"]) == 1
        message = f"--bind=reps={values}: 'reps' is an input of i64[2]; expected 2 values with commas between them"
        assert message in capfd.readouterr().err


def test_no_flags_are_printed_for_constants_that_commands_do_not_take(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "k"], ["z"]), helper.make_node("Concat", ["z", "h"], ["y"], axis=1)]
    inputs: list[Info] = [("x", FLOAT, ["a", 3]), ("h", FLOAT, ["b", 2]), ("k", FLOAT, [3])]
    path = saved(tmp_path / "net.onnx", nodes, inputs)
    with pytest.raises(rlx.Error) as caught:
        rlx.from_onnx(path, constants={"k": np.array([1, 2, 3], np.float32)})
    hint = caught.value.hint or ""
    assert "constants={'k': [1.0, 2.0, 3.0]}" in hint and "commands take" not in hint


def test_models_without_open_sizes_have_no_such_hint(tmp_path: Path) -> None:
    nodes = [helper.make_node("Concat", ["x", "h"], ["y"], axis=1)]
    assert "sizes" not in hint_of(saved(tmp_path / "net.onnx", nodes, [("x", FLOAT, [2, 3]), ("h", FLOAT, [3, 2])]))


@pytest.mark.parametrize("name", MODELS)
def test_models_of_packages(name: str) -> None:
    path = str(path_of(MODELS[name][0]))
    hint = hint_of(path)
    assert not hint or typed(hint, path).outputs
