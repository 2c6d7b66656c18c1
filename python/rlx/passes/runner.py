"""Execution of pipelines on a module: passes in sequence, the verifier after each, and instruments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from rlx import mlir
from rlx.ir.location import describe
from rlx.ir.op import signature
from rlx.passes.pipeline import PassPipeline, PipelineStep
from rlx.passes.rewrite_count import RewritesStopped
from rlx.support.errors import Error, PassError, VerificationError
from rlx.support.traces import raised_at


class Instrument:
    """Observes the run of a pipeline. By default, all methods do nothing."""

    def start(self, module: mlir.Module) -> None:
        """Called before the first pass."""

    def before(self, step: PipelineStep, module: mlir.Module) -> None:
        """Called before a pass."""

    def verified(self, step: PipelineStep, module: mlir.Module) -> None:
        """Called after a pass has run and before its result is verified."""

    def after(self, step: PipelineStep, module: mlir.Module) -> None:
        """Called after a pass whose result is valid."""

    def failed(self, step: PipelineStep, module: mlir.Module) -> None:
        """Called after a pass that raised an error, was stopped, or gave an invalid result."""

    def finish(self) -> None:
        """Called after the last pass, or after the pass that failed."""


def clone_module(module: mlir.Module) -> mlir.Module:
    """Return an independent copy of a module."""
    with mlir.entered():
        return module.operation.clone().opview


def emitted_dialects(steps: Iterable[PipelineStep]) -> AbstractContextManager[None]:
    """Allow unregistered dialects inside if some of these passes emit ops of them: after the pass, others meet these ops."""
    emit = any(step.emits_unregistered for step in steps)
    return mlir.unregistered_dialects_allowed() if emit else nullcontext()


def run_on_module(
    module: mlir.Module,
    pipeline: str | PassPipeline,
    *,
    verify_each: bool = True,
    instruments: Iterable[Instrument] = (),
) -> None:
    """Run a pipeline on a module, in place.

    Args:
        module: A builtin module.
        pipeline: The passes to run.
        verify_each: Verify after every pass.
        instruments: Objects that observe the run.

    Raises:
        PassError: A pass does not exist or failed.
        VerificationError: A pass produced an invalid module; the message names the pass.
    """
    observers, steps = list(instruments), PassPipeline.of(pipeline).steps
    try:
        for instrument in observers:
            instrument.start(module)
        with emitted_dialects(steps):
            for step in steps:
                run_step(step, module, verify_each=verify_each, instruments=observers)
    finally:
        for instrument in observers:
            instrument.finish()


def run_step(
    step: PipelineStep, module: mlir.Module, *, verify_each: bool = True, instruments: Sequence[Instrument] = ()
) -> None:
    """Run one pass of a pipeline on a module, in place; raises as `run_on_module` does."""
    for instrument in instruments:
        instrument.before(step, module)
    try:
        _run_named(step, module)
        for instrument in instruments:
            instrument.verified(step, module)
        if verify_each and (step.ours is None or step.ours.edits_ops):
            verify_after(step, module)
    except (Error, RewritesStopped):
        for instrument in reversed(instruments):
            instrument.failed(step, module)
        raise
    for instrument in reversed(instruments):
        instrument.after(step, module)


def _run_named(step: PipelineStep, module: mlir.Module) -> None:
    """Run one pass. Every error gets the name of the pass."""
    try:
        with mlir.entered():
            step.run(module)
    except Error as problem:
        if problem.message.startswith(f"{step.name}: "):
            raise
        message = f"{step.name}: {problem.message}"
        raise problem.moved(message) from problem.__cause__
    except Exception as problem:
        message = f"{step.name}: internal error: {type(problem).__name__}: {problem}"
        place = raised_at(problem)
        hint = "this is a defect of the pass, not of the module" + (f": {place}" if place else "")
        raise PassError(message, hint=hint) from problem


def verify_after(step: PipelineStep, module: mlir.Module) -> None:
    """Verify the result of a pass.

    Raises:
        VerificationError: It is invalid; the message names the pass.
    """
    with mlir.entered():
        try:
            module.operation.verify()
            signature.check(module)
        except mlir.ir.MLIRError as problem:
            first = problem.error_diagnostics[0]
            message = f"{step.name} gave an invalid module: {first.message}"
            raise VerificationError(message, location=describe(first.location)) from problem
        except VerificationError as problem:
            message = f"{step.name} gave an invalid module: {problem.message}"
            raise VerificationError(message, location=problem.location, hint=problem.hint) from None
