"""`rlx-opt --bisect`: the first rewriting of a pipeline after which a module is wrong.

First the pass is found, then, by halves over the number of rewrites that it may do, the rewriting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx import mlir
from rlx.passes.checking.numerics import Comparison
from rlx.passes.pipeline import PassPipeline, PipelineStep
from rlx.passes.rewrite_count import RewriteCounter, Rewriting, rewrites_counted
from rlx.passes.runner import clone_module, run_step, verify_after
from rlx.support.errors import Error, VerificationError


@dataclass(frozen=True)
class Failure:
    """What is wrong with a module after a pass.

    Attributes:
        kind: `"error"` (the pass raised), `"verifier"` (what it gave is invalid) or `"result"` (a function computes something
            else, or cannot be evaluated).
        message: What it is, in words; it begins with the name of the pass.
        location: The user's `file:line`, empty when unknown.
    """

    kind: str
    message: str
    location: str = ""


@dataclass(frozen=True)
class Culprit:
    """Where a pipeline goes wrong.

    Attributes:
        step: The pass.
        number: Which of the pipeline's it is, from 1 on.
        failure: What is wrong.
        rewriting: The rewriting, where the pass counts its own.
        index: Which of the pass it is, from 1 on; 0 where there is none.
        count: How many the pass does, as far as it comes.
        earlier: How many the passes before it do.
    """

    step: PipelineStep
    number: int
    failure: Failure
    rewriting: Rewriting | None = None
    index: int = 0
    count: int = 0
    earlier: int = 0

    @property
    def limit(self) -> int:
        """The number for `--rewrite-limit` after which the module is wrong."""
        return self.earlier + self.index


def bisect(module: mlir.Module, pipeline: str | PassPipeline, comparison: Comparison | None = None) -> Culprit | None:
    """The first rewriting that makes a module wrong; None where nothing does. The module is not changed.

    Args:
        module: A verified module.
        pipeline: The passes.
        comparison: How results are compared, and on which inputs. A pass that changes results on purpose is not judged by them.

    Raises:
        Error: The pipeline is wrong, or an array that is given fits no argument.
    """
    comparison = comparison or Comparison()
    comparison.check_given(module)
    current, earlier = module, 0
    for number, step in enumerate(PassPipeline.of(pipeline).steps, 1):
        before, current = current, clone_module(current)
        counter, failure = _attempt(before, current, step, comparison)
        if failure is not None:
            return _within(before, step, number, failure, counter.count, earlier, comparison)
        earlier += counter.count
    return None


def first_failure(
    module: mlir.Module, steps: Sequence[PipelineStep], comparison: Comparison
) -> tuple[int, Failure] | tuple[int, None]:
    """What goes wrong first in a pipeline, and the index of the pass; None where nothing does. The module is not changed."""
    current = module
    for number, step in enumerate(steps):
        before, current = current, clone_module(current)
        failure = _attempt(before, current, step, comparison)[1]
        if failure is not None:
            return number, failure
    return len(steps), None


def _attempt(
    before: mlir.Module, after: mlir.Module, step: PipelineStep, comparison: Comparison, limit: int | None = None
) -> tuple[RewriteCounter, Failure | None]:
    """Run a pass on `after`, a copy of a module, or the beginning of it, and judge what it gave."""
    with rewrites_counted(limit) as counter:
        try:
            run_step(step, after)
        except Error as problem:
            return counter, _failure(problem)
    try:
        if limit is not None and counter.count == limit:  # stopped, and so not verified
            with mlir.entered():
                verify_after(step, after)
    except Error as problem:
        return counter, _failure(problem)
    with mlir.entered():
        said = comparison.difference(before, after) if step.preserves_results else ""
    return counter, Failure("result", f"{step.name} {said}") if said else None


def _failure(problem: Error) -> Failure:
    kind = "verifier" if isinstance(problem, VerificationError) else "error"
    return Failure(kind, problem.message, problem.location or "")


def _within(
    before: mlir.Module,
    step: PipelineStep,
    number: int,
    failure: Failure,
    count: int,
    earlier: int,
    comparison: Comparison,
) -> Culprit:
    """The rewriting in a pass that fails: after `right` of them the module is as it should be, after `wrong` it is not."""
    right, wrong, rewriting = 0, count + 1, None
    while wrong - right > 1:
        middle = (right + wrong) // 2
        counter, said = _attempt(before, clone_module(before), step, comparison, middle)
        if said is None:
            right = middle
        else:
            wrong, failure, rewriting = middle, said, counter.last
    if (
        wrong > count
    ):  # each rewriting is right: what comes after the last one is not, or a rewriting that was not finished
        return Culprit(step, number, failure, None, 0, count, earlier)
    return Culprit(step, number, failure, rewriting, wrong, count, earlier)
