"""MLIR's own passes: their names, validation of their options, and execution."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from rlx import mlir
from rlx.ir.location import describe
from rlx.support.errors import PassError
from rlx.support.suggestions import suggestion


def names() -> Mapping[str, str]:
    """Return the passes of the provider's registry with their summaries, for listings and suggestions.

    The bindings cannot list the registry, so the names are a generated list in the repository. A pass that is not in
    the list can also be run.
    """
    from rlx.passes.native_gen import PASSES

    return PASSES


@dataclass(frozen=True)
class PassParserError:
    """The reason why the provider's parser rejects a pass: the pass is unknown, or `option` does not fit."""

    message: str
    unknown: bool = False
    option: str | None = None
    nest_in: str | None = None


@cache
def defaults(name: str) -> Mapping[str, str]:
    """Return the options of a pass and their defaults, as far as the provider prints them; lists are omitted."""
    try:
        with mlir.entered():
            manager = mlir.passmanager.PassManager("any")
            manager.add(name)
            text = str(manager)
    except ValueError:
        return {}
    return dict(re.findall(r"([a-z0-9-]+)=([^\s{}]*)", text))


def check(name: str, options: Sequence[tuple[str, str | None]], text: str) -> PassParserError | None:
    """Parse a pipeline of one pass with the provider. Returns the problem, or None.

    Args:
        name: The name of the pass.
        options: Its options.
        text: The pipeline, with the ops that the pass is nested in.
    """
    for key, value in options:
        message = _check_value(name, key, value)
        if message is not None:
            return PassParserError(message, option=key)
    try:
        with mlir.entered():
            mlir.passmanager.PassManager.parse(text)
    except ValueError as problem:
        return _explain(name, str(problem))
    return None


def _check_value(name: str, key: str, value: str | None) -> str | None:
    # The provider reports invalid values only on standard error. Therefore simple cases are checked here.
    default = defaults(name).get(key)
    if default is None:
        return None
    if default in ("true", "false") and value not in (None, "true", "false", "1", "0"):
        return f"{name}: option '{key}' takes true or false, not '{value}'"
    if re.fullmatch(r"-?\d+", default) and not re.fullmatch(r"[-+]?(\d+|0x[0-9a-fA-F]+)", value or ""):
        return f"{name}: option '{key}' takes an integer, not '{value or ''}'"
    return None


def _explain(name: str, message: str) -> PassParserError:
    if "does not refer to a registered pass" in message:
        return PassParserError(message, unknown=True)
    option = re.search(r"no such option (\S+)", message)
    if option:
        known = defaults(name)
        accepted = f"; it takes {', '.join(known)}" if known else ""
        key = option.group(1)
        return PassParserError(f"{name} has no option '{key}'{suggestion(key, known) or accepted}", option=key)
    restricted = re.search(r"restricted to '([^']+)' on a PassManager intended to run on '([^']+)'", message)
    if restricted:
        op = restricted.group(1)
        hint = f"nest it: {op}({name})"
        return PassParserError(f"'{name}' runs on '{op}', not on '{restricted.group(2)}': {hint}", nest_in=op)
    options = re.search(r"with options `([^`]+)`", message)
    if options:
        return PassParserError(f"{name}: a value does not fit in {{{options.group(1)}}}")
    return PassParserError(" ".join(message.split()))


def run(text: str, module: mlir.Module) -> None:
    """Run a pipeline of the provider's passes on a module, without verification.

    Raises:
        PassError: A pass failed.
    """
    with mlir.entered():
        try:
            _manager(text).run(module.operation)
        except mlir.ir.MLIRError as problem:
            diagnostics = problem.error_diagnostics
            message = diagnostics[0].message if diagnostics else "the pass failed and gave no reason"
            raise PassError(message, location=describe(diagnostics[0].location) if diagnostics else None) from problem


# The first run collects the canonicalisation patterns of all dialects, which takes ten times as long as a run.
@lru_cache(maxsize=64)
def _manager(text: str) -> Any:
    manager = mlir.passmanager.PassManager.parse(text)
    manager.enable_verifier(False)
    return manager
