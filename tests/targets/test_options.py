"""`CompileOptions`: one list of options for Python and the command line."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ForwardRef

import numpy as np
import pytest

import rlx
from rlx.cli.options import add_options, first_given, options_of
from rlx.cli.parser import Parser
from rlx.ir.op.signature import POLICIES
from rlx.passes.dtypes.quantization_scheme import QuantizationScheme, SchemeKeywords
from rlx.support.options import option_help
from rlx.targets.compilation import Compilation
from rlx.targets.options import CompileKeywords, CompileOptions
from rlx.targets.registry import target_of
from rlx.train.layout import compile_training
from rlx.train.options import TrainingKeywords, TrainingOptions
from tests.cli.calling import Command

NAMES = [option.name for option in fields(CompileOptions)]
# Each option with another value than its default, and how a command gives it.
OTHERS: dict[str, tuple[Any, str]] = {
    "bind": ({"n": 3}, "--bind=n=3"),
    "precision": ("bf16", "--precision=bf16"),
    "passes": ("rlx-simplify", "--passes=rlx-simplify"),
    "policy": ("fusable", "--policy=fusable"),
    "opt": (1, "-O1"),
    "fast_math": (True, "--fast-math"),
    "dispatch": ("force-common", "--dispatch=force-common"),
    "kernels": ("off", "--kernels=off"),
    "lapack": ("off", "--lapack=off"),
    "name": ("other", "--name=other"),
}


def graph() -> Any:
    g: Any = rlx.Graph("loss")
    x, w = g.input("x", ("n", 4)), g.param("w", (4, 4))
    g.set_outputs({"y": g.sum(g.softmax(g.relu(x @ w), -1) * x)})
    return g


def test_the_keywords_are_the_fields() -> None:
    pairs = (CompileOptions, CompileKeywords), (TrainingOptions, TrainingKeywords), (QuantizationScheme, SchemeKeywords)
    for options, keywords in pairs:
        annotations: dict[str, Any] = dict(keywords.__annotations__)
        known = {name: t.__forward_arg__ if isinstance(t, ForwardRef) else t for name, t in annotations.items()}
        assert known == {option.name: option.type for option in fields(options)}
        assert all("help" in option.metadata for option in fields(options))
    assert CompileOptions().keywords() == {name: default for name, (default, _) in option_help(CompileOptions).items()}


def parsed(*argv: str) -> argparse.Namespace:
    parser = Parser()
    add_options(parser)
    return parser.parse_args(argv)


def test_each_option_is_one_of_the_command_line() -> None:
    assert list(OTHERS) == NAMES
    nothing = parsed()
    assert sorted(vars(nothing)) == sorted(NAMES) and first_given(nothing) == ""
    assert options_of(nothing) == CompileOptions(bind={})
    for name, (value, text) in OTHERS.items():
        arguments = parsed(text)
        assert options_of(arguments) == CompileOptions(**{"bind": {}, name: value})
        assert text.startswith(first_given(arguments)) and first_given(arguments)


def test_choices_are_those_that_are_checked() -> None:
    choices = {
        name: tuple(option.argument.get("choices", ())) for name, (_, option) in option_help(CompileOptions).items()
    }
    assert choices["policy"] == tuple(POLICIES)
    for name, values in choices.items():
        for value in values:
            CompileOptions(**{name: value})


@pytest.mark.parametrize(
    ("call", "options"),
    [
        *((call, CompileOptions) for call in (rlx.Session.compile, rlx.Pipeline, rlx.jit, compile_training)),
        *((call, TrainingOptions) for call in (rlx.train.TrainStep, rlx.train.JaxStep)),
        *((call, QuantizationScheme) for call in (rlx.quantize, rlx.quantization_sensitivity)),
    ],
)
def test_calls_name_each_option(call: Any, options: type) -> None:
    parameters = inspect.signature(call.__init__ if isinstance(call, type) else call).parameters
    known = option_help(options)
    assert {name: parameters[name].default for name in known} == {name: default for name, (default, _) in known.items()}
    assert not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    text = " ".join((call.__doc__ or "").split())
    for name, (_, option) in known.items():
        assert f" {name}: {' '.join(option.text.split())}" in text
    assert " options:" not in text


def test_unknown_options_are_answered() -> None:
    calls: list[Callable[..., Any]] = [
        lambda **options: rlx.Session().compile(graph(), **options),
        lambda **options: rlx.Pipeline("cpu", **options),
        lambda **options: rlx.jit(**options),
        lambda **options: compile_training(graph(), **options),
    ]
    for call in calls:
        with pytest.raises(
            rlx.Error, match=r"unexpected keyword argument 'optt' \(did you mean 'opt'\?\); it takes .*bind"
        ):
            call(optt=3)


@pytest.mark.parametrize("step", [rlx.train.TrainStep, rlx.train.JaxStep])
def test_steps_check_their_options(step: Any) -> None:
    for name, value in (("accumulate", 0), ("clip_norm", -1.0), ("ema", 2.0), ("loss_scale", "x"), ("wrt", ["v"])):
        with pytest.raises(rlx.Error, match=name):
            step(graph(), rlx.train.SGD(0.1), bind={"n": 4}, **{name: value})
    with pytest.raises(rlx.Error, match=r"did you mean 'clip_norm'\?"):
        step(graph(), rlx.train.SGD(0.1), max_norm=1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "call",
    [
        lambda **options: rlx.Session().compile(graph(), **options),
        lambda **options: rlx.Session().compile({"main": graph()}, **options),
        lambda **options: rlx.Pipeline(**options),
        lambda **options: rlx.jit(lambda x: x, **options),
        lambda **options: rlx.jit(**options),
        lambda **options: rlx.train.TrainStep(graph(), rlx.train.Adam(1e-3), **options),
        lambda **options: rlx.train.JaxStep(graph(), rlx.train.Adam(1e-3), **options),
        lambda **options: compile_training(graph(), **options),
    ],
)
def test_each_call_checks_each_option(call: Callable[..., Any], name: str) -> None:
    with pytest.raises(rlx.Error, match=f"{name}|sizes" if name != "precision" else "precision must be one of"):
        call(**{name: object()})


@pytest.mark.parametrize("name", NAMES)
def test_each_option_reaches_the_passes(name: str) -> None:
    target, value = target_of("cpu"), OTHERS[name][0]
    both = CompileOptions(**{name: value}), None
    given = graph()
    if name == "lapack":  # other graphs have no factorisations to choose for
        given.set_outputs([given.cholesky(given.input("a", (4, 4)))])
    changed, plain = (Compilation(given, target, options, in_session=True) for options in both)
    assert changed.pipeline_text != plain.pipeline_text
    assert rlx.Pipeline(**{name: value}).compile(given).pipeline_text == changed.pipeline_text


def test_a_program_has_the_name_that_is_asked_for() -> None:
    compilation = Compilation(graph(), target_of("stablehlo"), CompileOptions(name="stem-2.b"))
    assert compilation.signature.name == compilation.lir.name == "stem-2.b"
    assert compilation.given.name == "loss"
    for name in ("", "2x", "a b", "a/b", "a}", "é", "x" * 65, 3):
        with pytest.raises(rlx.Error, match="is not the name of a program"):
            CompileOptions(name=name)  # pyright: ignore[reportArgumentType]
    with pytest.raises(rlx.Error, match="is for one graph, not for 2 entry points"):
        rlx.Session().compile({"a": graph(), "b": graph()}, name="stem")


def test_options_reach_functions_and_training() -> None:
    f: Any = rlx.jit(lambda x, y: rlx.ops.softmax(x @ y), opt=0, policy="fusable")
    array = np.ones((4, 4), np.float32)
    assert f.compiled_for(array, array)._function.compilation.options == CompileOptions(opt=0, policy="fusable")
    step: Any = rlx.train.TrainStep(graph(), rlx.train.SGD(0.1), bind={"n": 4}, precision="bf16", opt=1, fast_math=True)
    assert step.compiled._function.compilation.options == CompileOptions(opt=1, fast_math=True)
    assert "bf16" in str(step.graph) and str(step.graph.inputs[0].shape) == "f32[4, 4]"
    result = compile_training(graph(), bind={"n": 4}, opt=0)
    assert result.backward.options.opt == 0 and replace(result.forward.pipeline, opt=2) == rlx.Pipeline()


def test_a_compiled_file_takes_no_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = Command(capsys)
    (tmp_path / "g.mlir").write_text(str(graph()))
    command("compile", tmp_path / "g.mlir", "-O1", "-o", tmp_path / "g.rlxa")
    for name, (_, text) in OTHERS.items():
        flag = option_help(CompileOptions)[name][1].flag
        assert f"{flag} needs MLIR text" in command.error("run", tmp_path / "g.rlxa", text)
