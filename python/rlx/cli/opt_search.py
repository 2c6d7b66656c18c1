"""`rlx-opt --bisect` and `--reduce`: their options and their output."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx.cli.opt_flags import PROGRAM, Settings
from rlx.cli.pairs import size_of
from rlx.cli.streams import say
from rlx.support.errors import Error
from rlx.support.printable import printable

if TYPE_CHECKING:
    from rlx.passes.checking.bisect import Culprit
    from rlx.passes.checking.numerics import Comparison
    from rlx.passes.pipeline import PassPipeline

_CANNOT_RUN = (126, 127)  # a shell's exit codes for a program that it cannot start


def comparison_of(settings: Settings) -> Comparison:
    """Return how results are compared: `--inputs` and `--tolerance`.

    Raises:
        Error: The file of inputs cannot be read.
    """
    from rlx.passes.checking.numerics import Comparison

    noted: set[str] = set()

    def note(text: str) -> None:
        if text not in noted:
            noted.add(text)
            say(f"{PROGRAM}: note: {text}", stream=sys.stderr)

    inputs, tolerance = settings.values.get("inputs") or "0", settings.values.get("tolerance")
    seed, given = (size_of(inputs, "inputs"), {}) if inputs.isdecimal() else (0, _tensors(inputs))
    return Comparison(seed, given, None if tolerance is None else float(tolerance), note)


def _tensors(path: str) -> dict[str, Any]:
    from rlx.weights import open as open_weights

    return dict(open_weights(path).items())


# --- bisect ---------------------------------------------------------------------------------------


def bisected(module: Any, pipeline: PassPipeline, settings: Settings) -> tuple[str, bool]:
    """Return the output of `--bisect`, and whether it found a difference."""
    from rlx.passes.checking.bisect import bisect
    from rlx.support.errors import Error

    if not pipeline.steps:
        raise Error("--bisect takes passes to search in", hint="give them as without it: --rlx-simplify --bisect")
    if "reduce" in settings.values:
        raise Error("--bisect and --reduce are two searches", hint="run --reduce first, and --bisect on what it prints")
    culprit = bisect(module, pipeline, comparison_of(settings))
    if culprit is None:
        return f"nothing is wrong: {len(pipeline.steps)} passes ran, and kept all results\n", False
    return _described(culprit, pipeline, settings), True


def _described(culprit: Culprit, pipeline: PassPipeline, settings: Settings) -> str:
    failure, rewriting, total = culprit.failure, culprit.rewriting, len(pipeline.steps)
    lines = [failure.message, f"pass: {culprit.number} of {total}, {culprit.step.text}"]
    if failure.location:
        lines.append(f"at: {failure.location}")
    if rewriting is not None:
        lines.append(f"rewriting: {culprit.index} of {culprit.count} of this pass, {rewriting.name}")
        if rewriting.location:
            lines.append(f"of the op at: {rewriting.location}")
        lines += ["before:", *(f"  {line}" for text in rewriting.before for line in text.splitlines())]
        lines += ["after:", *(f"  {line}" for text in rewriting.after for line in text.splitlines())]
    elif culprit.count:
        lines.append(f"each of the {culprit.count} rewritings that this pass finishes is right by itself")
    else:
        lines.append("this pass counted no rewriting before that")
    lines += ["to repeat it:", f"  {_command(culprit, pipeline, settings)}"]
    if rewriting is not None:
        lines.append(f"without this rewriting: --rewrite-limit={culprit.limit - 1}")
    return printable("\n".join(lines)) + "\n"


def _command(culprit: Culprit, pipeline: PassPipeline, settings: Settings) -> str:
    """Return the command that prints the module after the faulty rewrite, or reproduces its failure."""
    from rlx.passes.pipeline import PassPipeline

    words = [PROGRAM, settings.file if settings.file != "<stdin>" else "-"]
    words += [f"--load={name}" for name in settings.load]
    words.append(f"--pass-pipeline={PassPipeline.of([step.text for step in pipeline.steps[: culprit.number]])}")
    if culprit.rewriting is not None:
        words.append(f"--rewrite-limit={culprit.limit}")
    elif culprit.failure.kind == "result":
        words.append("--check-numerics")
        words += [f"--{name}={settings.values[name]}" for name in ("inputs", "tolerance") if name in settings.values]
    return shlex.join(words)


# --- reduce ---------------------------------------------------------------------------------------


def reduced(module: Any, pipeline: PassPipeline, settings: Settings) -> Any:
    """Return the module that `--reduce` finds.

    Raises:
        Error: The test is not interesting for the module, or cannot be run.
    """
    from rlx.passes.checking.reduce import fails_alike, reduce

    command = settings.values["reduce"]
    if command is None:
        test = fails_alike(module, pipeline, comparison_of(settings))
    elif pipeline.steps:
        raise Error("--reduce=COMMAND runs no passes: the command does", hint="--reduce takes the passes for the test")
    else:
        test = _command_test(command)
    return reduce(module, test, lambda line: say(f"{PROGRAM}: reduce: {line}", stream=sys.stderr))


def _command_test(command: str) -> Callable[[Any], bool]:
    """Return a test that runs a command with a file name appended.

    A module is interesting if the command fails, as in mlir-reduce.

    Raises:
        Error: It is not a command.
    """
    from rlx.ir.text.modules import print_op

    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise Error(f"--reduce={command}: {problem}") from None
    if not words:
        raise Error("--reduce= takes a command, to which the name of a file is added")

    def test(module: Any) -> bool:
        with tempfile.TemporaryDirectory(prefix="rlx-reduce-") as folder:
            path = Path(folder) / "candidate.mlir"
            path.write_text(print_op(module, verified=True), encoding="utf-8")
            try:
                done = subprocess.run([*words, os.fspath(path)], stdin=subprocess.DEVNULL, capture_output=True)
            except OSError as problem:
                raise Error(f"cannot run '{words[0]}': {problem.strerror}") from None
        if done.returncode in _CANNOT_RUN:
            said = done.stderr.decode(errors="replace").strip()[-400:]
            raise Error(f"the test could not be run (exit status {done.returncode}): {said}")
        return done.returncode != 0

    return test
