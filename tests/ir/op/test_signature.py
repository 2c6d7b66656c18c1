"""Checks of attributes of modules, arguments and results, with a location, for each way to read a module."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlx
from rlx import mlir
from rlx.cli import opt
from rlx.ir.text.modules import verify_module

T = "tensor<4xf32>"


def _text(module: str = "", first: str = "", second: str = "", result: str = "") -> str:
    return (
        f"module attributes {{{module}}} {{\n"
        f"  func.func @main(%a: {T} {{{first}}},\n      %b: {T} {{{second}}}) -> ({T} {{{result}}}, {T}) {{\n"
        f"    return %a, %b : {T}, {T}\n  }}\n}}\n"
    )


WRONG = {
    _text('rlx.stage = "fir"'): (1, "'rlx.stage' is one of hir, mir, lir"),
    _text("rlx.stage = []"): (1, "'rlx.stage' is one of"),
    _text("rlx.stage = loc(unknown)"): (1, "'rlx.stage' is one of"),
    _text("rlx.stage = array<f16: 1.0>"): (1, "'rlx.stage' is of a kind that nothing is stored in"),
    _text("rlx.fusion_policy = []"): (1, "'rlx.fusion_policy' is one of direct, fusable"),
    _text("rlx.fusion_policy = array<bf16: 1.0>"): (1, "'rlx.fusion_policy' is of a kind"),
    _text('rlx.fusion_policy = "fused"'): (1, "'rlx.fusion_policy' is one of direct, fusable"),
    _text(first="rlx.name = []"): (2, "'rlx.name' is a string"),
    _text(first="rlx.name = array<f16: 1.0>"): (2, "'rlx.name' is of a kind"),
    _text(first="rlx.kind = array<bf16: 1.0>"): (2, "'rlx.kind' is of a kind"),
    _text(first="rlx.donate = array<f80: 1.0>"): (2, "'rlx.donate' is of a kind"),
    _text(first='rlx.kind = "state", rlx.init = array<f16: 1.0>'): (2, "'rlx.init' is of a kind"),
    _text(result="rlx.updates = array<f16: 1.0>"): (2, "'rlx.updates' is of a kind"),
    _text(first="rlx.name = loc(unknown)"): (2, "'rlx.name' is a string"),
    _text(first='rlx.name = ""'): (2, "'rlx.name' is a string that is not empty"),
    _text(first='rlx.name = "x"', second='rlx.name = "x"'): (3, "is called 'x', as argument 0 is"),
    _text(first='rlx.name = "arg1"'): (3, "is called 'arg1'"),
    _text(first="rlx.kind = 3"): (2, "'rlx.kind' is a string"),
    _text(second='rlx.kind = "stat"'): (3, "did you mean 'state'"),
    _text(first="rlx.donate = 1"): (2, "'rlx.donate'"),
    _text(first='rlx.donate, rlx.kind = "param"'): (2, "'rlx.donate'"),
    _text(first="rlx.frozen = 1"): (2, "'rlx.frozen' is written without a value, at a param"),
    _text(first="rlx.frozen"): (2, "'rlx.frozen' is written without a value, at a param"),
    _text(first="rlx.init = 1.0"): (2, "'rlx.init' is a number such as 1.0 : f64, at a state"),
    _text(first='rlx.kind = "state", rlx.init = 1'): (2, "'rlx.init' is a number"),
    _text(first='rlx.kind = "state", rlx.init = "1"'): (2, "'rlx.init' is a number"),
    _text(first='rlx.kind = "state", rlx.init = 1.0 : f32'): (2, "'rlx.init' is a number"),
    _text(first='rlx.kind = "state", rlx.init = 1.0e300'): (2, "does not fit f32"),
    _text(first='rlx.kind = "state", rlx.init = 0x7FF8000000000000 : f64'): (2, "NaN"),
    _text(first='rlx.nmae = "x"'): (2, "did you mean 'rlx.name'"),
    _text(first="rlx.bounds = 3"): (2, "'rlx.bounds' is a string"),
    _text(first='rlx.bounds = "n"'): (2, "'rlx.bounds' is bounds such as"),
    _text(first='rlx.bounds = "3 < n"'): (2, "'rlx.bounds' is bounds such as"),
    _text(first='rlx.bounds = "3 <= n and 4"'): (2, "'rlx.bounds' is bounds such as"),
    _text(first='rlx.bounds = "3 <= n-n"'): (2, "'rlx.bounds': 0 has no symbols"),
    _text(first='rlx.bounds = "3 <= n <= 2"'): (2, "n cannot lie between 3 and 2"),
    _text(first='rlx.bounds = "3 <= n+"'): (2, "'rlx.bounds': "),
    _text(result="rlx.name = {}"): (2, "'rlx.name' is a string"),
    _text(result='rlx.name = "output1"'): (2, "is called 'output1', as result 0"),
    _text(result='rlx.kind = "input"'): (2, "unknown attribute 'rlx.kind'"),
    _text(result="rlx.updates = []"): (2, "'rlx.updates' is a string"),
    _text(result='rlx.updates = "s"'): (2, "the states are none"),
    _text(first='rlx.name = "s"', result='rlx.updates = "s"'): (2, "the states are none"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_attribute_has_a_message_with_its_place(text: str) -> None:
    line, message = WRONG[text]
    with pytest.raises(rlx.ParseError) as caught:
        rlx.parse(text)
    assert message in str(caught.value)
    assert (caught.value.location or "").startswith(f"<text>:{line}:")


@pytest.mark.parametrize("text", list(WRONG)[::5])
def test_other_ways_in_check_it_too(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = WRONG[text][1]
    file = tmp_path / "m.mlir"
    file.write_text(text)
    assert opt.main([str(file)]) == 1
    assert message in capsys.readouterr().err
    with mlir.entered():
        module = mlir.ir.Module.parse(text)
    with pytest.raises(rlx.VerificationError):
        verify_module(module)
    with pytest.raises(rlx.Error):
        rlx.passes.run(module, "rlx-simplify")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("module {\n}\n", "the module has no public function; it has no functions"),
        ("module {\n  func.func private @f()\n}\n", "no public function; it has f"),
        (
            "module {\n  func.func @f(%a: i32) {\n    return\n  }\n}\n",
            "<text>:2:16: argument 0 of 'f': expected a ranked",
        ),
        ("module {\n  func.func @f(%a: tensor<*xf32>) {\n    return\n  }\n}\n", "expected a ranked tensor type"),
        ("module {\n  func.func @f()  {\n    return\n  }\n  func.func @f() {\n    return\n  }\n}\n", "redefinition"),
        (
            '"func.func"() <{function_type = () -> (), sym_name = ""}> ({\n  "func.return"() : () -> ()\n}) : () -> ()',
            "empty name",
        ),
        ("module {\n  func.func @f() attributes {sym_visibility = 3} {\n    return\n  }\n}\n", ""),
    ],
)
def test_a_module_without_a_graph_is_refused(text: str, message: str) -> None:
    with pytest.raises(rlx.Error) as caught:
        rlx.parse(text)
    assert message in str(caught.value)


def test_a_function_without_a_body_is_no_graph() -> None:
    with pytest.raises(rlx.Error, match="function 'f' has no body"):
        rlx.parse("module {\n  func.func private @f()\n}\n", entry="f")


def test_what_graphs_say_is_accepted() -> None:
    g = rlx.Graph("g")
    x, s = g.input("x", (4,), donate=True), g.state("s", (4,), init=-1.5)
    g.set_outputs({"next_s": x})
    g.update(s, x)
    again = rlx.parse(str(g))
    assert str(again) == str(g)
    assert again.states[0].init == -1.5
