"""Ops registered by users: the example wherever an op is allowed, and refused classes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from examples import custom_op  # registers example.swish and example.soft_maximum
from rlx.ir.op.custom import sources
from rlx.targets.linalg.rules import RULES

FILE = Path(custom_op.__file__)


@pytest.fixture
def graph() -> rlx.Graph:
    g = rlx.Graph("example")
    x, y = g.input("x", ("n", 3)), g.input("y", ("n", 3))
    g.set_outputs({"result": g.custom(custom_op.SoftMaximum, g.custom("example.swish", x, beta=2.0), y)})
    return g


@pytest.fixture
def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((4, 3)).astype(np.float32) for name in ("x", "y")}


def _expected(inputs: dict[str, np.ndarray]) -> np.ndarray:
    x, y = (inputs[n].astype(np.float64) for n in ("x", "y"))
    return np.logaddexp(x / (1 + np.exp(-2 * x)), y)


def test_builders_text_evaluator_and_cpu(graph: rlx.Graph, inputs: dict[str, np.ndarray]) -> None:
    graph.verify()
    assert str(rlx.parse(str(graph))) == str(graph)
    for results in (rlx.evaluate(graph, inputs), rlx.Session().compile(graph).run(inputs)):
        np.testing.assert_allclose(results[0], _expected(inputs), rtol=1e-5)


def test_passes_decompose_what_has_a_decomposition(graph: rlx.Graph, inputs: dict[str, np.ndarray]) -> None:
    decomposed = rlx.passes.run(graph, "rlx-decompose,rlx-bind{n=4},canonicalize,cse")
    text = str(decomposed)
    assert "example.swish" not in text
    assert "example.soft_maximum" in text
    np.testing.assert_allclose(rlx.evaluate(decomposed, inputs)[0], _expected(inputs), rtol=1e-5)
    kept = rlx.passes.run(graph, "rlx-decompose{except=example.swish}")
    assert "example.swish" in str(kept)


def test_a_back_end_without_a_lowering_says_so(graph: rlx.Graph) -> None:
    with pytest.raises(rlx.UnsupportedError, match=r"(?s)no lowering for target xla.*example.soft_maximum"):
        rlx.Session("xla").compile(rlx.passes.run(graph, "rlx-bind{n=4}"))


def test_inside_regions(inputs: dict[str, np.ndarray]) -> None:
    g = rlx.Graph()
    x = g.input("x", (4, 3))
    g.set_outputs([g.while_(lambda x: g.max(x) > 0.1, lambda x: g.custom("example.swish", x * 0.5), x)])
    (expected,) = rlx.evaluate(g, {"x": inputs["x"]})
    np.testing.assert_allclose(rlx.Session().compile(g).run({"x": inputs["x"]})[0], expected, rtol=1e-5, atol=1e-7)


def test_command_line(graph: rlx.Graph, tmp_path: Path) -> None:
    model = tmp_path / "model.mlir"
    model.write_text(str(graph))

    def call(module: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, check=False)

    unknown = call("rlx.cli.opt", str(model))
    assert unknown.returncode == 1
    assert "model.mlir:3:10: error: 'rlx.custom' op no custom op 'example.swish' is registered" in unknown.stderr
    assert "--load=FILE.py" in unknown.stderr
    known = call("rlx.cli.opt", f"--load={FILE}", str(model), "--rlx-decompose", "--check-numerics")
    assert known.returncode == 0, known.stderr
    assert "sigmoid" in known.stdout
    out = tmp_path / "model.rlxa"
    compiled = call("rlx.cli.main", "compile", f"--load={FILE}", str(model), "-o", str(out))
    assert compiled.returncode == 0, compiled.stderr
    # A compiled program needs no op classes.
    ran = call("rlx.cli.main", "run", str(out), "--input=x=2x3xf32=0", "--input=y=2x3xf32=0")
    assert ran.returncode == 0, ran.stderr
    missing = call("rlx.cli.opt", "--load=missing.py", str(model))
    assert (missing.returncode, missing.stderr) == (1, "rlx-opt: error: --load=missing.py: no such file\n")


def test_cached_programs_depend_on_the_source(graph: rlx.Graph) -> None:
    found = sources(graph.module, RULES)
    assert found is not None
    assert ["class SoftMaximum" in found[0], "def lower_soft_maximum" in found[1], "class Swish" in found[2]] == [
        True
    ] * 3


def test_what_is_no_op() -> None:
    g = rlx.Graph()
    x = g.input("x", (2,))
    with pytest.raises(
        rlx.Error, match=r"test_custom.py:\d+.*no custom op 'example.swiss' is registered.*example.swish"
    ):
        g.custom("example.swiss", x)
    with pytest.raises(rlx.Error, match=r"'matmul' is an op of the dialect: use g\.matmul"):
        g.custom("matmul", x, x)
    with pytest.raises(rlx.Error, match=r"rlx.example.swish: operand 'x' is i32; expected one of f32"):
        g.custom("example.swish", g.input("i", (2,), "i32"))
    with pytest.raises(rlx.Error, match=r"unknown attribute 'bet' .did you mean 'beta'"):
        g.custom("example.swish", x, bet=1.0)


_CELL = """
import numpy as np
import rlx

class Repeat(rlx.CustomOp, name="notebook.repeat"):
    def infer(self, x, *, axis: int = 0):
        dims = list(x.dims)
        dims[axis] = dims[axis] * {times}
        return rlx.Shape(dims, x.dtype)

    def evaluate(self, x, *, axis):
        return np.concatenate([x] * {times}, axis)

    def decompose(self, b, x, *, axis):
        result = x
        for _ in range({times} - 1):
            result = b.concat([result, x], axis)
        return result
"""


def test_a_cell_of_a_notebook_that_is_run_again_counts(inputs: dict[str, np.ndarray]) -> None:
    """The card of an op is the one registered last."""
    for times in (1, 2, 3, 1):
        exec(_CELL.format(times=times), {"__name__": "notebook"})
        g = rlx.Graph()
        g.set_outputs(g.custom("notebook.repeat", g.input("x", (4, 3))))
        g.verify()
        expected = np.concatenate([inputs["x"]] * times)
        assert g.outputs[0].shape == expected.shape
        for made in (g, rlx.parse(str(g)), g.clone(), rlx.passes.run(g, "rlx-decompose"), rlx.passes.run(g, "cse")):
            np.testing.assert_array_equal(rlx.evaluate(made, {"x": inputs["x"]})[0], expected)


def _infer(self: Any, x: rlx.Shape) -> rlx.Shape:
    return x


@pytest.mark.parametrize(
    ("name", "members", "message"),
    [
        ("swish", {"infer": _infer, "evaluate": _infer}, "is like 'library.op'"),
        ("a.b", {"evaluate": _infer}, "needs 'infer'"),
        ("a.b", {"infer": _infer}, "needs 'evaluate' or 'decompose'"),
        ("a.b", {"infer": lambda self, x, *, f: x, "evaluate": _infer}, "'f' needs one of the annotations int, float"),
        ("a.b", {"infer": lambda self, x, **f: x, "evaluate": _infer}, "name the attributes"),
        ("example.swish", {"infer": _infer, "evaluate": _infer}, "has two cards"),
        ("a.b", {"infer": _infer, "evaluate": _infer, "dtypes": "f32"}, "dtypes must be a tuple of .*f32.*; got 'f32'"),
        ("a.b", {"infer": _infer, "evaluate": _infer, "dtypes": ("f33",)}, r"dtypes must be .*; got \('f33',\)"),
    ],
)
def test_classes_that_are_no_op(name: str, members: dict[str, Any], message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        type("Wrong", (rlx.CustomOp,), members, name=name)


def _fails(kind: type[Exception]) -> Any:
    def infer(self: Any, x: rlx.Shape) -> Any:
        raise kind("broken")

    return infer


@pytest.mark.parametrize("kind", [KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError])
def test_a_mistake_in_infer_is_not_the_callers(kind: type[Exception]) -> None:
    infer = _fails(kind)
    name = f"tests.fails_{kind.__name__}"
    op = type("Fails", (rlx.CustomOp,), {"infer": infer, "evaluate": _infer}, name=name)
    g = rlx.Graph()
    x = g.input("x", (2,))
    with pytest.raises(rlx.Error) as caught:
        g.custom(op, x)
    assert f"raised {kind.__name__}: " in str(caught.value)
    assert str(caught.value).startswith(f"{__file__}:")
    assert f"see {__file__}:{infer.__code__.co_firstlineno + 1}" in str(caught.value)


def test_a_class_without_a_name_is_no_op() -> None:
    op = type("Nameless", (custom_op.Swish,), {})
    g = rlx.Graph()
    x = g.input("x", (2,))
    with pytest.raises(rlx.Error, match=r"the class Nameless has no name=, so it is no op"):
        g.custom(op, x)


ATTRIBUTES = [
    "name",
    "operands",
    "operand",
    "attributes",
    "results",
    "result",
    "value",
    "kind",
    "dtype",
    "card",
    "args",
    "kwargs",
]
ATTRIBUTES += [
    "location",
    "index",
    "axis",
    "axes",
    "regions",
    "shape",
    "op",
    "b",
    "text",
    "types",
    "function",
    "block",
    "builder",
]


def _declared(attribute: str) -> Any:
    """Return a class of an op with an attribute of this name."""
    lines = [
        "class Shifted(rlx.CustomOp, name=op_name):",
        f"    def infer(self, x, *, {attribute}: int = 1): return x",
        f"    def evaluate(self, x, *, {attribute}): return x + np.float32({attribute})",
        f"    def decompose(self, b, x, *, {attribute}): return x + float({attribute})",
    ]
    scope: dict[str, Any] = {"rlx": rlx, "np": np, "op_name": f"tests.{attribute}_attribute", "__name__": __name__}
    exec(compile("\n".join(lines), __file__, "exec"), scope)
    return scope["Shifted"]


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_an_attribute_of_any_name_works_or_is_refused_in_the_class(attribute: str) -> None:
    if attribute in ("op", "shape", "regions", "b"):
        with pytest.raises(
            (rlx.Error, SyntaxError), match=f"'{attribute}' is an argument of g.custom|duplicate argument"
        ):
            _declared(attribute)
        return
    shifted, array = _declared(attribute), np.ones(2, np.float32)
    g = rlx.Graph("shifted")
    x = g.input("x", (2,))
    g.set_outputs([g.custom(shifted, x, **{attribute: 2}), g.custom(shifted, x)])
    read = rlx.parse(str(g))
    for graph in (g, read, rlx.passes.run(read, "rlx-decompose")):
        assert [y.tolist() for y in rlx.evaluate(graph, {"x": array})] == [[3, 3], [2, 2]]
    with rlx.eager():
        assert rlx.ops.custom(shifted, rlx.ops.constant(array), **{attribute: 2}).tolist() == [3, 3]


def test_wrong_calls_are_answered_with_the_right_one() -> None:
    g: Any = rlx.Graph("wrong")
    functions: Any = rlx.ops
    x = g.input("x", (2,))
    by_name = r"g\.custom\('example\.swish', x, beta=1\.0\)"
    for call, kind in (
        (lambda: custom_op.Swish(x), rlx.Error),
        (lambda: custom_op.Swish()(x), rlx.Error),
        (lambda: g.custom(custom_op.Swish), rlx.Error),
        (lambda: g.custom(custom_op.Swish, x, gamma=2.0), rlx.Error),
        (lambda: g.custom(custom_op.Swish, x, 1.0, 2.0), rlx.Error),
        (lambda: g.custom(custom_op.Swish, x, x=x), rlx.Error),
        (lambda: g.swish(x), AttributeError),
        (lambda: g.example.swish(x), AttributeError),
        (lambda: functions.swish(x), AttributeError),
    ):
        with pytest.raises(kind, match=f"{by_name}|" + r"g\.custom\(Swish, x, beta=1\.0\)"):
            call()
