"""A new op needs only a record and a card: in a copy of the package, without TableGen, it works like any other op."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlx.support.errors import ParseError
from tools import generate_dialect

ROOT = Path(__file__).resolve().parents[2]

RECORD = """
def RLX_SoftsignOp : RLX_Op<"softsign", "elementwise"> {
  let summary = "Softsign, with a sharpness";
  let description = [{`sharpness·x / (1 + |sharpness·x|)`.}];
  let arguments = (ins RLX_FloatTensor:$x, DefaultValuedAttr<RLX_Positive, "1.0">:$sharpness);
  let results = (outs RLX_FloatTensor:$result);
}
"""
CARD = """
from typing import Any

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import Card, sample
from rlx.ir.shape import Shape


class Softsign(Card, op="softsign"):
    def infer(self, x: Shape, *, sharpness: float) -> Shape:
        return x

    def decompose(self, b: Builder, x: Tensor, *, sharpness: float) -> Tensor:
        scaled = x * sharpness
        return scaled / (b.abs(scaled) + 1.0)

    def samples(self) -> Any:
        yield sample((3, 5), dtypes=("f32",))
"""
# An op over an axis, whose card has no `build` of its own.
RECORD_OF_AXIS = """
def RLX_UnitSumOp : RLX_Op<"unit_sum", "elementwise"> {
  let summary = "Values over their sum along an axis";
  let description = [{`x / Σ x`.}];
  let arguments = (ins RLX_FloatTensor:$x, DefaultValuedAttr<I64Attr, "-1">:$axis);
  let results = (outs RLX_FloatTensor:$result);
}
"""
CARD_OF_AXIS = """
from typing import Any

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import Card, sample
from rlx.ir.shape import Shape
from rlx.ops.lift import check_axis


class UnitSum(Card, op="unit_sum"):
    def infer(self, x: Shape, *, axis: int) -> Shape:
        check_axis(axis, x.rank)
        return x

    def decompose(self, b: Builder, x: Tensor, *, axis: int) -> Tensor:
        return x / b.sum(x, axis, keep_dims=True)

    def samples(self) -> Any:
        yield sample((3, 5), axis=1, dtypes=("f32",))
"""
USE_OF_AXIS = """
g = rlx.Graph("f")
x = g.input("x", (2, 3))
g.set_outputs([g.unit_sum(x), g.unit_sum(x, axis=-1), g.unit_sum(x, 1), x.unit_sum(axis=-2)])
values = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
rows, same, third, columns = rlx.evaluate(g, {"x": values})
assert (rows == same).all() and (rows == third).all()
np.testing.assert_allclose(rows, values / values.sum(1, keepdims=True), rtol=1e-6)
np.testing.assert_allclose(columns, values / values.sum(0, keepdims=True), rtol=1e-6)
for call, answer in (
    (lambda: g.unit_sum(x, dim=-1), "got an unexpected keyword argument 'dim' (did you mean 'axis'?)"),
    (lambda: g.unit_sum(x, axis=2), "axis 2 is out of range for rank 2"),
    (lambda: g.unit_sum(x, axis=-3), "axis -3 is out of range for rank 2"),
    (lambda: g.unit_sum(x, 1, axis=1), "'axis' is given twice"),
):
    try:
        call()
    except rlx.Error as problem:
        assert answer in str(problem), problem
    else:
        raise AssertionError(answer)
"""
THIS_COPY = """
import sys
# An editable installation would have its own files imported.
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
import numpy as np
import rlx

assert rlx.__file__.startswith(sys.argv[1]), rlx.__file__
"""
WITHOUT_A_CARD = """
try:
    rlx.parse(
        "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {"
        "  %0 = rlx.softsign(%x) {sharpness = 2.0 : f64} : tensor<4xf32>"
        "  return %0 : tensor<4xf32> }"
    )
except rlx.Error as problem:
    assert "rlx.softsign is declared in dialect/RlxElementwise.td" in str(problem) and "has no card" in str(problem), problem
else:
    raise AssertionError("an op without a card was taken unchecked")
"""
USE = """
g = rlx.Graph("f")
x = g.input("x", (4,))
g.set_outputs([g.softsign(x, sharpness=2.0)])
values = {"x": np.array([-3, -0.5, 0, 8], np.float32)}
expected = 2 * values["x"] / (1 + np.abs(2 * values["x"]))
np.testing.assert_allclose(rlx.evaluate(g, values)[0], expected, rtol=1e-6)
np.testing.assert_allclose(rlx.evaluate(rlx.passes.run(g, "rlx-decompose"), values)[0], expected, rtol=1e-6)
assert "= rlx.softsign(%arg0) {sharpness = 2.000000e+00} : tensor<4xf32>" in str(g), g
assert str(rlx.parse(str(g))) == str(g)
op = next(o for o in g.module.body.operations[0].body.blocks[0].operations if o.operation.name == "rlx.softsign")
assert type(op).__name__ == "SoftsignOp" and op.sharpness.value == 2.0
try:
    g.softsign(x, sharpness=-1.0)
except rlx.Error as problem:
    assert "sharpness" in str(problem)
else:
    raise AssertionError("a sharpness below zero was taken")
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the dialect in another folder."""
    shutil.copytree(ROOT / "dialect", tmp_path / "dialect")
    return tmp_path


def add_record(root: Path, record: str) -> None:
    path = root / "dialect/RlxElementwise.td"
    head, end, tail = path.read_text(encoding="utf-8").rpartition("#endif")
    path.write_text(head + record + end + tail, encoding="utf-8")


def make_dialect(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.generate_dialect", "--root", str(root)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": ""}, capture_output=True, text=True)


def test_a_record_and_a_card_make_an_op(copy: Path) -> None:
    shutil.copytree(ROOT / "python", copy / "python", ignore=shutil.ignore_patterns("__pycache__"))
    add_record(copy, RECORD)
    made = make_dialect(copy)
    assert made.returncode == 0, made.stderr
    assert "## `rlx.softsign`" in (copy / "docs/reference/ops/elementwise.md").read_text(encoding="utf-8")
    run_in(copy, WITHOUT_A_CARD)
    (copy / "python/rlx/ops/elementwise/softsign.py").write_text(
        CARD, encoding="utf-8"
    )  # a new file is found without registration
    run_in(copy, USE)


def test_an_op_over_an_axis_needs_no_build(copy: Path) -> None:
    """Negative axes count from the last one, and another library's name of the argument is answered."""
    shutil.copytree(ROOT / "python", copy / "python", ignore=shutil.ignore_patterns("__pycache__"))
    add_record(copy, RECORD_OF_AXIS)
    made = make_dialect(copy)
    assert made.returncode == 0, made.stderr
    (copy / "python/rlx/ops/elementwise/unit_sum.py").write_text(CARD_OF_AXIS, encoding="utf-8")
    run_in(copy, USE_OF_AXIS)


def run_in(copy: Path, code: str) -> None:
    """Run code with the package of a copy."""
    environment = os.environ | {"PYTHONPATH": str(copy / "python")}
    command = [sys.executable, "-c", THIS_COPY + code, str(copy)]
    used = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert used.returncode == 0, used.stderr


WRONG = {
    "of the language": ("RLX_Positive", "RLX_Positiv", "there is no value 'RLX_Positiv'"),
    "a name that is taken": ('"softsign"', '"clamp"', "there is an op 'rlx.clamp' already, at dialect/RlxElementwise.td:"),
    "a name": ('"softsign"', '"soft sign"', "expected 'opName' to be letters, digits and '_', got 'soft sign'"),
    "no name": (":$x,", ",", "of the arguments and regions, each needs a name that Python takes, got '$'"),
    "a name twice": ("$sharpness", "$x", "two of the arguments and regions are called '$x'"),
    "a default": ('"1.0"', '"one"', "the default of '$sharpness' is 'one'"),
    "a default out of range": ('"1.0"', '"-1.0"', "the default of '$sharpness' is -1.0, which is not in (0, 3.4e38]"),
    "no tensor": ("RLX_FloatTensor:$x", "AnyRegion:$x", "'$x' is a AnyRegion, which is neither a tensor nor an attribute"),
    "an attribute of C++": ("DefaultValuedAttr<RLX_Positive, \"1.0\">", "RLX_DimsEncoding", "is a RLX_DimsEncoding, of which"),
    "no dag of results": ("(outs", "(ins", "expected 'results' to be (outs …)"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_record_is_named(copy: Path, name: str) -> None:
    right, wrong, message = WRONG[name]
    add_record(copy, RECORD.replace(right, wrong, 1))
    with pytest.raises(ParseError) as caught:
        generate_dialect.outputs(generate_dialect.read_dialect(copy))
    assert message in str(caught.value)
    assert (caught.value.location or "").startswith("dialect/RlxElementwise.td:")


def test_of_a_wrong_record_nothing_is_made(copy: Path) -> None:
    add_record(copy, RECORD.replace("RLX_FloatTensor", "RLX_FloatTenso", 1))
    made = make_dialect(copy)
    assert made.returncode == 1 and made.stderr.startswith("error: dialect/RlxElementwise.td:"), made.stderr
    assert "did you mean 'RLX_FloatTensor'?" in made.stderr and "Traceback" not in made.stderr
    assert [path.name for path in copy.iterdir()] == ["dialect"]


def test_pages_of_families_that_are_gone_are_removed(tmp_path: Path) -> None:
    page = tmp_path / generate_dialect.REFERENCE / "gone.md"
    page.parent.mkdir(parents=True)
    page.touch()
    assert generate_dialect.update(tmp_path, {}, check=True) == [f"{generate_dialect.REFERENCE}/gone.md"]
    assert page.exists()
    generate_dialect.update(tmp_path, {}, check=False)
    assert not page.exists()


def test_a_new_record_changes_nothing_of_the_others(copy: Path) -> None:
    before = generate_dialect.outputs(generate_dialect.read_dialect(copy))
    path = copy / "dialect/RlxElementwise.td"
    head, first, tail = path.read_text(encoding="utf-8").partition("\ndef RLX_")
    path.write_text(head + RECORD + first + tail, encoding="utf-8")
    after = generate_dialect.outputs(generate_dialect.read_dialect(copy))
    table = next(name for name in before if str(name).endswith("spec_gen.py"))
    lines = after[table].splitlines()
    missing = [line for line in before[table].splitlines() if line not in lines]
    assert not missing
