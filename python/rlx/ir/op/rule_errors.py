"""Errors of rules: an exception in an op's rule becomes an error that names the op, the rule and the user's line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from rlx import mlir
from rlx.ir.location import describe
from rlx.ir.op import opview
from rlx.support.errors import Error
from rlx.support.traces import defined_at, raised_at


@contextlib.contextmanager
def calling(
    op: mlir.Operation, what: str, rule: Callable[..., Any] | None = None, passing: tuple[type[Error], ...] = ()
) -> Generator[None]:
    """The context in which a rule is called and its results are checked.

    Args:
        op: The op of the rule.
        what: The task of the rule: `"vjp"`, `"lowering to linalg"`.
        rule: The rule. The hint has its file and line if the exception was not raised in a user's file.
        passing: Errors that are passed on unchanged.

    Raises:
        Error: The rule raised an exception. Errors keep their class.
    """
    subject = f"{what} of rlx.{opview.name_of(op)}"
    try:
        yield
    except passing:
        raise
    except Error as problem:
        if problem.location and len(op.regions):
            raise  # the error is about an op inside a region
        hint = problem.hint or defined_at(rule)
        raise problem.moved(
            f"{subject}: {problem.message}", location=describe(op.location), hint=hint
        ) from problem.__cause__
    except Exception as problem:
        message = f"{subject} raised {type(problem).__name__}: {problem}"
        hint = raised_at(problem) or defined_at(rule)
        raise Error(message, location=describe(op.location), hint=hint) from problem
