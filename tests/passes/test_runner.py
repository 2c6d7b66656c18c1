"""Running pipelines on graphs."""

from __future__ import annotations

import importlib
import io
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.ir.op.signature import find_function
from rlx.passes import CheckNumerics, Instrument, PrintIR, Timing, base, rewrite
from rlx.passes.base import Pass
from rlx.passes.pipeline import PassPipeline


@dataclass(frozen=True)
class Probe(Pass):
    """A pass that calls a function with the module."""

    function: Callable[[Any], None]
    name = "rlx-probe"

    @classmethod
    def options(cls) -> tuple[Any, ...]:
        return ()

    def run(self, module: Any) -> None:
        self.function(module)


def graph() -> Any:
    g: Any = rlx.Graph("f")
    x = g.input("x", ("n", 4))
    w = g.param("w", (4,))
    g.set_outputs({"y": g.tanh(x * w - 0.0)})
    return g


def values() -> dict[str, np.ndarray]:
    return {"x": np.ones((2, 4), np.float32), "w": np.full(4, 0.5, np.float32)}


def change_kind(kind: str) -> Callable[[Any], None]:
    def change(module: Any) -> None:
        for op in rewrite.collect(module, {"activation"}):
            rewrite.replace_with(op, lambda b, x: b.activation(kind, x), "test")

    return change


def test_the_result_is_a_new_graph_and_the_input_stays() -> None:
    g = graph()
    before = str(g)
    result = rlx.passes.run(g, "builtin.module(rlx-simplify,func.func(canonicalize),cse)")
    assert str(g) == before
    assert isinstance(result, rlx.Graph)
    assert (result.name, [a.name for a in result.arguments]) == ("f", ["x", "w"])
    assert [o.name for o in result.outputs] == ["y"]
    assert "sub" in before and "sub" not in str(result)
    np.testing.assert_array_equal(rlx.evaluate(result, values())[0], rlx.evaluate(g, values())[0])


def test_the_bindings_find_the_dialect_at_once() -> None:
    # The bindings import it by this name for every op; a failed search costs more than the op.
    graph()
    found = importlib.import_module(f"{mlir.provider}.dialects.rlx")
    assert hasattr(found, "MatmulOp")


def test_a_result_can_be_built_on() -> None:
    result: Any = rlx.passes.run(graph(), "cse")
    result.set_outputs([result.relu(result.output_tensors[0])])
    assert rlx.evaluate(result, values())[0].shape == (2, 4)


def test_a_module_goes_in_as_well() -> None:
    g = graph()
    assert str(rlx.passes.run(g.module, "rlx-simplify")) == str(rlx.passes.run(g, "rlx-simplify"))


def test_an_error_of_a_pass_names_it_and_keeps_its_kind_and_place() -> None:
    def refuse(_: Any) -> None:
        raise rlx.UnsupportedError("no such thing", location="model.py:3", hint="do without")

    with pytest.raises(rlx.UnsupportedError) as caught:
        rlx.passes.run(graph(), Probe(refuse))
    problem = caught.value
    assert (problem.message, problem.location, problem.hint) == (
        "rlx-probe: no such thing",
        "model.py:3",
        "do without",
    )


def test_a_defect_of_a_pass_is_a_pass_error() -> None:
    def crash(_: Any) -> None:
        raise KeyError("k")

    with pytest.raises(rlx.PassError, match="rlx-probe: internal error: KeyError: 'k'") as caught:
        rlx.passes.run(graph(), Probe(crash))
    assert isinstance(caught.value.__cause__, KeyError)
    assert f"see {__file__}:{crash.__code__.co_firstlineno + 1}" in str(caught.value.hint)


def test_an_invalid_result_names_the_pass_and_the_users_line() -> None:
    def damage(module: Any) -> None:
        (op,) = rewrite.collect(module, {"activation"})
        with mlir.entered():
            op.attributes["kind"] = mlir.ir.StringAttr.get("tanhh")

    with pytest.raises(rlx.VerificationError) as caught:
        rlx.passes.run(graph(), Probe(damage))
    assert caught.value.message.startswith("rlx-probe gave an invalid module: 'rlx.activation' op attribute 'kind'")
    assert caught.value.location is not None and "test_runner.py:" in caught.value.location
    rlx.passes.run(graph(), Probe(damage), verify_each=False)


def test_no_pass_is_blamed_for_an_invalid_input() -> None:
    g: Any = rlx.Graph("f", stage="hir")
    g.set_outputs([g.linear(g.input("x", (2, 3)), g.param("w", (3, 4)))])
    rewrite.set_stage(g.module, "mir")
    with pytest.raises(rlx.VerificationError) as caught:
        rlx.passes.run(g, "cse")
    assert caught.value.message.startswith("'rlx.linear' op is a block, which is allowed at stage hir only")


def test_a_native_pass_that_fails_is_a_pass_error() -> None:
    g = graph()
    with pytest.raises(rlx.PassError, match=r"^.*snapshot-op-locations: "):
        rlx.passes.run(g, "snapshot-op-locations{filename=/nonexistent/x}")


def test_printing_the_ir() -> None:
    stream = io.StringIO()
    printer = PrintIR(before=["cse"], after_change=True, stream=stream)
    rlx.passes.run(graph(), "rlx-simplify,cse", instruments=[printer])
    titles = [line for line in stream.getvalue().split("\n") if line.startswith("// -----//")]
    assert titles == [
        "// -----// IR Dump After Simplify (rlx-simplify) //----- //",
        "// -----// IR Dump Before Cse (cse) //----- //",
    ]


def test_printing_the_ir_of_a_pass_that_fails() -> None:
    def refuse(_: Any) -> None:
        raise rlx.PassError("no")

    stream = io.StringIO()
    with pytest.raises(rlx.PassError):
        rlx.passes.run(graph(), Probe(refuse), instruments=[PrintIR(after_failure=True, stream=stream)])
    assert stream.getvalue().startswith("// -----// IR Dump After Probe Failed (rlx-probe) //----- //\nmodule")


def test_timing_has_a_line_for_each_pass() -> None:
    timing = Timing()
    rlx.passes.run(graph(), "rlx-simplify,cse,cse", instruments=[timing])
    names = [name for name, _ in timing.seconds]
    assert names == ["Simplify (rlx-simplify)", "(V) Verifier", "Cse (cse)", "Cse (cse)"]
    assert all(seconds >= 0 for _, seconds in timing.seconds)
    lines = str(timing).split("\n")
    assert lines[1].strip() == "... Execution time report ..."
    assert lines[-2].endswith("(100.0%)  Total")


def test_instruments_see_every_step_in_order() -> None:
    seen: list[str] = []

    class Watch(Instrument):
        def start(self, module: Any) -> None:
            seen.append("start")

        def before(self, step: Any, module: Any) -> None:
            seen.append(f"before {step.name}")

        def after(self, step: Any, module: Any) -> None:
            seen.append(f"after {step.name}")

        def finish(self) -> None:
            seen.append("finish")

    rlx.passes.run(graph(), "rlx-simplify,cse", instruments=[Watch()])
    middle = ["before rlx-simplify", "after rlx-simplify", "before cse", "after cse"]
    assert seen == ["start", *middle, "finish"]


# --- check-numerics -------------------------------------------------------------------------------


def checked(g: Any, pipeline: Any, seed: int = 0) -> list[str]:
    """Run a pipeline under the check. Return the notes."""
    notes: list[str] = []
    rlx.passes.run(g, pipeline, instruments=[CheckNumerics(seed, notes.append)])
    return notes


def test_the_first_pass_that_changes_a_result_is_named() -> None:
    pipeline = PassPipeline.of(["rlx-simplify", Probe(change_kind("sigmoid")), "cse"])
    message = r"check-numerics: rlx-probe changes the result of @f: output 'y' at \[\d, \d\] was .* \(seed 3\)"
    with pytest.raises(rlx.PassError, match=message):
        checked(graph(), pipeline, seed=3)


def test_passes_that_keep_results_pass_the_check() -> None:
    assert checked(graph(), "rlx-simplify,rlx-decompose,rlx-bind{n=3},rlx-promote-params,canonicalize,cse") == []


def test_a_bound_symbol_has_its_size_in_the_inputs() -> None:
    g: Any = rlx.Graph("f")
    x = g.input("x", ("n", 4))
    g.set_outputs([g.narrow(x, 0, 7, 2)])  # only sizes from 9 on have a value
    assert checked(g, "rlx-bind{n=9}") == []


def test_indices_are_drawn_in_range() -> None:
    g: Any = rlx.Graph("f")
    table = g.param("table", (3, 2))
    picked = g.gather(table, g.reshape(g.input("i", ("n",), rlx.i32), ("n", 1)))
    g.set_outputs([picked])

    def read_past_the_end(module: Any) -> None:
        """Replace the clamping, so that only results outside the range change."""
        function = find_function(module)
        for op in rewrite.collect(module, {"gather"}):
            rewrite.replace_with(
                op, lambda b, t, i, **_: b.where((i < 3).reshape("n", 1, 1), b.gather(t, i), 99.0), "test", axis=0
            )
        assert function is not None

    for seed in range(3):
        assert checked(g, Probe(read_past_the_end), seed) == []


def test_a_function_that_loses_its_value_is_reported() -> None:
    def narrow_too_far(module: Any) -> None:
        for op in rewrite.collect(module, {"activation"}):
            rewrite.replace_with(
                op, lambda b, x, **_: b.expand(b.narrow(x, 0, "n-1000", 1), ("n", 4)), "test", kind="tanh"
            )

    with pytest.raises(rlx.PassError, match="check-numerics: rlx-probe gives a @f that cannot be evaluated"):
        checked(graph(), Probe(narrow_too_far))


def test_a_removed_function_and_changed_arguments_are_reported() -> None:
    def rename(module: Any) -> None:
        with mlir.entered():
            find_function(module).attributes["sym_name"] = mlir.ir.StringAttr.get("g")

    with pytest.raises(rlx.PassError, match="check-numerics: rlx-probe removes @f"):
        from rlx.passes.runner import clone_module, run_on_module

        run_on_module(clone_module(graph().module), PassPipeline.of(Probe(rename)), instruments=[CheckNumerics()])


def test_a_pass_that_changes_results_on_purpose_is_noted() -> None:
    class Gradient(Probe, abstract=True):
        """Gives another function."""

        preserves_results = False

    assert checked(graph(), Gradient(change_kind("sin"))) == ["rlx-probe changes results on purpose"]


def test_what_cannot_be_evaluated_is_noted() -> None:
    g: Any = rlx.Graph("f")
    g.set_outputs([g.narrow(g.input("x", ("n",)), 0, 99, 1)])  # larger than any size that is tried
    (note,) = checked(g, "cse")
    assert note.startswith("@f is not checked: it cannot be evaluated")


def test_a_pass_that_another_thread_imports_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread looks for the pass between its class statement and the decorator that adds the options."""
    begun, looked = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "half_made_events", SimpleNamespace(begun=begun, looked=looked))
    (tmp_path / "half_made.py").write_text(
        "import dataclasses, half_made_events as t\n"
        "from rlx.passes.base import Pass, option\n"
        "def waiting(cls):\n"
        "    t.begun.set()\n"
        "    t.looked.wait(0.2)\n"
        "    return dataclasses.dataclass(frozen=True)(cls)\n"
        "@waiting\n"
        "class HalfMade(Pass, name='rlx-half-made'):\n"
        "    count: int = option(1, 'a number')\n"
        "    def run(self, module): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    made: list[Pass] = []

    def look() -> None:
        begun.wait(60)
        found = base.find("rlx-half-made")
        assert found is not None
        made.append(found.from_options([("count", "3")]))
        looked.set()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        importlib.import_module("half_made")
        thread.join(60)
        assert [getattr(one, "count", None) for one in made] == [3]
    finally:
        base._passes.pop("rlx-half-made")
