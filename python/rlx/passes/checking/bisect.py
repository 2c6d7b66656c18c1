"""`rlx-opt --bisect`: search for the first rewrite of a pipeline after which a module is wrong.

First the pass is determined, then the rewrite, by a binary search over the number of rewrites that the pass may do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlx import mlir
from rlx.passes.checking.numerics import Comparison
from rlx.passes.pipeline import PassPipeline, PipelineStep
from rlx.passes.rewrite_count import RewriteCounter, Rewriting, rewrites_counted
from rlx.passes.runner import clone_module, emitted_dialects, run_step, verify_after
from rlx.support.errors import Error, VerificationError


@dataclass(frozen=True)
class Failure:
    """A failure of a module after a pass.

    Attributes:
        kind: `"error"` (the pass raised), `"verifier"` (the module is invalid) or `"result"` (a function computes
            something else, or cannot be evaluated).
        message: The description; it begins with the name of the pass.
        location: The user's `file:line`, empty when unknown.
    """

    kind: str
    message: str
    location: str = ""


@dataclass(frozen=True)
class Culprit:
    """The place where a pipeline goes wrong.

    Attributes:
        step: The pass.
        number: Its position in the pipeline, from 1.
        failure: The failure.
        rewriting: The rewrite, if the pass counts its rewrites.
        index: The number of the rewrite in the pass, from 1; 0 if there is none.
        count: The number of rewrites that the pass did.
        earlier: The number of rewrites of the passes before it.
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
        """The value of `--rewrite-limit` at which the module is wrong."""
        return self.earlier + self.index


def bisect(module: mlir.Module, pipeline: str | PassPipeline, comparison: Comparison | None = None) -> Culprit | None:
    """Return the first rewrite that makes a module wrong, or None. The module is not changed.

    Args:
        module: A verified module.
        pipeline: The passes.
        comparison: The inputs and the comparison of results. Results of passes that change them intentionally are not
            compared.

    Raises:
        Error: The pipeline is invalid, or a given array does not fit any argument.
    """
    comparison = comparison or Comparison()
    comparison.check_given(module)
    current, earlier = module, 0
    for number, step in enumerate(PassPipeline.of(pipeline).steps, 1):
        before, current = current, clone_module(current)
        counter, failure = _attempt(before, current, step, comparison)
        if failure is not None:
            return _within(Culprit(step, number, failure, None, 0, counter.count, earlier), before, comparison)
        earlier += counter.count
    return None


def first_failure(
    module: mlir.Module, steps: Sequence[PipelineStep], comparison: Comparison
) -> tuple[int, Failure] | tuple[int, None]:
    """Return the first failure in a pipeline and the index of its pass; None if there is none. The module is not changed."""
    current = module
    with emitted_dialects(steps):
        for number, step in enumerate(steps):
            before, current = current, clone_module(current)
            failure = _attempt(before, current, step, comparison)[1]
            if failure is not None:
                return number, failure
    return len(steps), None


def _attempt(
    before: mlir.Module, after: mlir.Module, step: PipelineStep, comparison: Comparison, limit: int | None = None
) -> tuple[RewriteCounter, Failure | None]:
    """Run a pass, or its first `limit` rewrites, on `after`, a copy of a module, and check the result."""
    with rewrites_counted(limit) as counter:
        try:
            run_step(step, after)
        except Error as problem:
            return counter, _failure(problem)
    try:
        if limit is not None and counter.count == limit:  # stopped at the limit, before verification
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


def _within(culprit: Culprit, before: mlir.Module, comparison: Comparison) -> Culprit:
    """The rewriting in a pass that fails: after `right` of them the module is as it should be, after `wrong` it is not.

    Args:
        culprit: The pass.
        before: The module that it fails on.
        comparison: As for `bisect`.
    """
    right, wrong, found = 0, culprit.count + 1, culprit
    while wrong - right > 1:
        middle = (right + wrong) // 2
        counter, said = _attempt(before, clone_module(before), culprit.step, comparison, middle)
        if said is None:
            right = middle
        else:
            wrong, found = middle, replace(culprit, failure=said, rewriting=counter.last, index=middle)
    # If each rewriting is right, what comes after the last one is not, or a rewriting that was not finished.
    return found
