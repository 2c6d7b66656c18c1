"""Wrong uses of every transform: calls in Python, and passes on files, give errors that explain the mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli.opt import main

BY_NAMES: dict[str, Callable[..., Any]] = {
    "grad": rlx.grad,
    "grad_with_loss": rlx.grad_with_loss,
    "vjp": rlx.vjp,
    "jvp": rlx.jvp,
    "hvp": rlx.hvp,
    "hessian": rlx.hessian,
    "jacfwd": rlx.jacfwd,
    "jacrev": rlx.jacrev,
    "linearize": rlx.linearize,
    "nth_order_grad": lambda g, wrt=(): rlx.nth_order_grad(g, wrt, 2),
    "directional_nth_grad": lambda g, wrt=(): rlx.directional_nth_grad(g, wrt, 2),
    "vmap": lambda g, batched=(): rlx.vmap(g, batched, 2),
}


def _graph() -> rlx.Graph:
    g = rlx.Graph("misused")
    x, n, w, s = g.input("x", ("b", 3)), g.input("n", (), rlx.i32), g.param("w", (3,)), g.param("s", ())
    g.set_outputs({"loss": g.mean(x @ w) * s, "y": x * w, "k": n + 1})
    return g


def _integers() -> rlx.Graph:
    g = rlx.Graph("integers")
    g.set_outputs([g.argmax(g.param("x", (3,)))])
    return g


def _without_arguments() -> rlx.Graph:
    g = rlx.Graph("constant")
    g.set_outputs([g.constant(np.float32(1))])
    return g


@pytest.mark.parametrize("name", BY_NAMES)
@pytest.mark.parametrize(
    "names", ["nope", "", ["w", "nope"], ["w", "w"], 3, None, [3], [("w", 0)], b"w", object], ids=repr
)
def test_names(name: str, names: Any) -> None:
    with pytest.raises(rlx.Error, match=r"no argument '|is named twice|must be a list of names"):
        BY_NAMES[name](_graph(), names)


@pytest.mark.parametrize("name", [n for n in BY_NAMES if n != "vmap"])
def test_an_argument_of_integers(name: str) -> None:
    with pytest.raises(rlx.Error, match=r"argument 'n' is i32\[\]; only floats"):
        BY_NAMES[name](_graph(), "n")


@pytest.mark.parametrize("name", BY_NAMES)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_integers, "must be a scalar of floats|has no output of floats|must be a scalar|no argument is batched"),
        (_without_arguments, "has no parameters|no argument is batched"),
        (lambda: rlx.Graph("empty"), "has no outputs"),
        (lambda: str(_graph()), "expected a Graph or a GraphModule, got str"),
        (lambda: None, "expected a Graph or a GraphModule, got NoneType"),
        (lambda: _graph().module, "expected a Graph or a GraphModule, got Module"),
    ],
    ids=["integers", "no arguments", "empty", "text", "none", "mlir"],
)
def test_what_is_no_graph_to_differentiate(name: str, make: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        BY_NAMES[name](make())


@pytest.mark.parametrize("name", ["grad", "grad_with_loss", "hvp", "hessian"])
@pytest.mark.parametrize("loss", ["y", "k", "nope", "", 3, ["loss"]], ids=repr)
def test_losses(name: str, loss: Any) -> None:
    with pytest.raises(rlx.Error, match=r"must be a scalar|no output '|must be the name of an output"):
        BY_NAMES[name](_graph(), ["w"], loss=loss)


@pytest.mark.parametrize("order", [-1, 1.5, "2", True, None], ids=repr)
@pytest.mark.parametrize("transform", [rlx.nth_order_grad, rlx.directional_nth_grad])
def test_orders(transform: Any, order: Any) -> None:
    with pytest.raises(rlx.Error, match="order must be a whole number"):
        transform(_graph(), "s", order)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": -1}, "cannot be negative"),
        ({"size": "b b"}, "is not a dimension"),
        ({"size": ""}, "is not a dimension"),
        ({"size": "²"}, "is not a dimension"),
        ({"size": 2**70}, "a dimension is at most"),
        ({"size": None}, "size must be an integer"),
        ({"size": True}, "size must be an integer"),
        ({"size": 1.0}, "size must be an integer"),
        ({"batched": {"x": "a"}}, "'x:a' is not a name and an axis"),
        ({"batched": {"x": None}}, "is not a name and an axis"),
        ({"batched": {"x": 1.5}}, "is not a name and an axis"),
        ({"batched": {"x": 3}}, "the batch axis 3 is out of range for rank 3"),
        ({"batched": {"x": -4}}, "the batch axis -4 is out of range for rank 3"),
        ({"out_axes": 5}, "output 'loss': the batch axis 5 is out of range"),
        ({"out_axes": "a"}, "out_axes must be an axis"),
        ({"out_axes": None}, "out_axes must be an axis"),
        ({"out_axes": 1.5}, "out_axes must be an axis"),
        ({"out_axes": {"loss": "a"}}, "out_axes must be an axis"),
        ({"out_axes": {"nope": 0}}, "no output 'nope'"),
        ({"out_axes": [0, 1]}, "2 axes for 3 outputs"),
        ({"out_axes": []}, "0 axes for 3 outputs"),
    ],
    ids=repr,
)
def test_batches(given: dict[str, Any], message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        rlx.vmap(_graph(), **{"batched": {"x": 0}, "size": 2, **given})


@pytest.mark.parametrize("limit", [-1, 1.5, "10", True], ids=repr)
def test_memory_limits(limit: Any) -> None:
    with pytest.raises(rlx.Error, match="memory-limit must be a number of bytes"):
        rlx.checkpoint(_graph(), memory_limit=limit)


# --- files ------------------------------------------------------------------------------------------

PASSES = (
    *("--rlx-grad", "--rlx-vjp", "--rlx-jvp=tangents=arg0", "--rlx-hvp", "--rlx-hessian", "--rlx-jacfwd"),
    *("--rlx-jacrev=wrt=arg0", "--rlx-vmap=batched=arg0 size=2", "--rlx-vmap", "--rlx-checkpoint"),
    *("--rlx-nth-order-grad", "--rlx-directional-nth-grad=wrt=arg0 order=2"),
)
_IDENTITY = "func.func @main(%arg0: {0}) -> {0} {{ return %arg0 : {0} }}"
FILES = {
    "no functions": "module {\n}\n",
    "nothing": "",
    "no ops": "hello {",
    "no results": "func.func @main(%arg0: tensor<3xf32>) { return }",
    "only declared": "func.func private @main(tensor<3xf32>) -> tensor<f32>",
    "unnamed sizes": _IDENTITY.format("tensor<?xf32>"),
    "no rank": _IDENTITY.format("tensor<*xf32>"),
    "no tensor": _IDENTITY.format("f32"),
    "memory": _IDENTITY.format("memref<3xf32>"),
    "odd integers": _IDENTITY.format("tensor<3xi17>"),
    "another dialect": (
        "func.func @main(%arg0: tensor<f32>) -> tensor<f32> {\n"
        "  %0 = arith.addf %arg0, %arg0 : tensor<f32>\n  return %0 : tensor<f32>\n}"
    ),
    "branches": (
        "func.func @main(%arg0: tensor<f32>) -> tensor<f32> {\n"
        "  cf.br ^bb1(%arg0 : tensor<f32>)\n^bb1(%x: tensor<f32>):\n  return %x : tensor<f32>\n}"
    ),
    "calls": (
        "func.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n"
        "func.func @main(%arg0: tensor<f32>) -> tensor<f32> {\n"
        "  %0 = call @f(%arg0) : (tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32>\n}"
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_hold_no_graph(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.mlir"
    file.write_text(FILES[name])
    for each in PASSES:
        assert main([str(file), each]) == 1, each
        error = capsys.readouterr().err
        assert error.startswith(f"{file}") and ": error: " in error and "internal error" not in error, error


def test_a_file_with_two_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first public function is transformed; others are unchanged."""
    function = (
        'func.func @{0}(%arg0: tensor<f32> {{rlx.name = "x", rlx.kind = "param"}}) -> tensor<f32> {{\n'
        '  %0 = rlx.activation(%arg0) {{kind = "{0}"}} : tensor<f32>\n'
        "  return %0 : tensor<f32>\n}}\n"
    )
    file = tmp_path / "model.mlir"
    file.write_text(function.format("sin") + function.format("tanh"))
    assert main([str(file), "--rlx-grad"]) == 0
    first, second = capsys.readouterr().out.split("@tanh")
    assert "grad_x" in first and "rlx.activation_backward" in first
    assert "grad_x" not in second and 'rlx.activation(%arg0) {kind = "tanh"}' in second


@pytest.mark.parametrize("suffix", ["mlir", "mlirbc"])
def test_text_and_bytecode_with_symbols(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, file = tmp_path / "model.mlir", tmp_path / f"model.{suffix}"
    text.write_text(str(_graph()))
    if suffix == "mlirbc":
        assert main([str(text), "--emit-bytecode", "-o", str(file)]) == 0
    assert main([str(file), "--rlx-grad=wrt=w"]) == 0
    assert capsys.readouterr().out.rstrip() == str(rlx.grad(_graph(), "w")).rstrip()
    for words, message in (
        ("--rlx-grad=wrt=v", "the graph has no argument 'v'"),
        ("--rlx-grad=loss=y", "must be a scalar of floats, got f32[b, 3]"),
        ("--rlx-grad=unused=maybe", "option 'unused' is one of zero, error"),
        ("--rlx-vjp=wrt=n", "only floats and complex numbers have derivatives"),
        ("--rlx-vmap=batched=x:q size=2", "'x:q' is not a name and an axis"),
        ("--rlx-vmap=batched=x size=-2", "a dimension cannot be negative"),
        ("--rlx-vmap=batched=x,x:1 size=2", "argument 'x' is named twice"),
        ("--rlx-nth-order-grad=order=x", "option 'order' takes an integer"),
        ("--rlx-checkpoint=memory-limit=1", "bytes at least"),
    ):
        assert main([str(file), words]) == 1
        assert message in capsys.readouterr().err
