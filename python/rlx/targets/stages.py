"""The steps from a given graph to LIR, as text of passes: shared by compilation, reports and the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from rlx.blocks.graph_module import GraphModule
from rlx.ir.checks import check_string
from rlx.ir.graph.graph import Graph
from rlx.ir.location import describe
from rlx.ir.op.signature import POLICIES
from rlx.ir.shape import not_addressable
from rlx.passes import run
from rlx.passes.check_lir import CheckLir
from rlx.passes.decompose import Decompose
from rlx.passes.dtypes.precision_policies import precision_policy
from rlx.passes.pipeline import PassPipeline, PipelineElement
from rlx.passes.runner import Instrument
from rlx.support.errors import Error
from rlx.support.short import shown


def check_policy(policy: str) -> None:
    """Check that a policy exists.

    Raises:
        Error: It does not.
    """
    if not isinstance(policy, str) or policy not in POLICIES:
        raise Error(f"policy {shown(policy)} is not one of {', '.join(POLICIES)}")


def graph_of(graph: Any, what: str) -> Graph:
    """The graph that a user gives, itself or in a `GraphModule`, at the stage that it has.

    Args:
        graph: A `Graph` or `GraphModule`.
        what: The method that was called, for the message.

    Raises:
        Error: It is neither, or has no outputs.
    """
    if isinstance(graph, GraphModule):
        graph = graph.as_hir or graph.graph
    if not isinstance(graph, Graph):
        raise Error(f"{what} takes a Graph or GraphModule, got {type(graph).__name__}")
    if not graph.results:
        raise Error(f"graph '{graph.name}' has no outputs", hint="call set_outputs")
    return graph


def _check_sizes(bind: Any) -> None:
    if not isinstance(bind, Mapping):
        raise Error(f"bind must be a mapping of symbols to sizes, got {shown(bind)}")
    for name, size in bind.items():
        if isinstance(size, (bool, np.ndarray, type)) or not isinstance(size, SupportsIndex):
            raise Error(f"bind: the size of {name} must be an integer, got {shown(size)}")


def prepared(
    graph: Graph,
    bind: Mapping[str, int] | None = None,
    passes: str | None = None,
    *,
    instruments: Sequence[Instrument] = (),
) -> Graph:
    """A graph with the first steps that its user asks for: sizes are bound, then passes are run.

    Args:
        graph: HIR or MIR; it is not changed.
        bind: Sizes of symbols.
        passes: A pipeline.
        instruments: What observes them.

    Raises:
        ShapeError: An argument has more bytes than can be addressed.
        Error: A symbol is unknown, the pipeline is wrong, or a pass failed.
    """
    check_options(bind, passes)
    if bind and (unknown := set(bind) - graph.symbols):
        known = ", ".join(sorted(graph.symbols)) or "none"
        raise Error(f"bind: the graph has no symbol {', '.join(sorted(map(str, unknown)))}; it has {known}")
    steps = preparing(bind, passes)
    result = run(graph, steps, instruments=instruments) if steps else graph
    for argument, value in zip(result.arguments, result.function.entry_block.arguments, strict=True):
        if not argument.shape.is_addressable:
            raise not_addressable(argument.shape, f"{argument.kind} '{argument.name}': ", describe(value.location))
    return result


def check_options(bind: Any = None, passes: Any = None, precision: Any = None) -> None:
    """Check the options of a user: `bind` is sizes by symbol, `passes` is text, `precision` is a dtype to compute in.

    Raises:
        Error: One is not.
    """
    if bind is not None:
        _check_sizes(bind)
    if passes is not None:
        check_string(passes, "passes")
    precision_policy(precision)


def preparing(bind: Mapping[str, int] | None, passes: str | None) -> list[str]:
    """The pipelines that `prepared` runs."""
    sizes = " ".join(f"{name}={int(size)}" for name, size in (bind or {}).items())
    return [*([f"rlx-bind{{{sizes}}}"] if sizes else []), *([passes] if passes else [])]


def to_lir(legal: CheckLir) -> str:
    """The pipeline of a target to LIR: ops that it does not take are decomposed, and then the module is checked.

    Args:
        legal: The check, whose options say what the target takes.
    """
    return str(PassPipeline([Decompose(legal.for_, except_=legal.ops, without=legal.without), *_CLEAN_UP, legal]))


def check_of(pipeline: str) -> CheckLir:
    """The check in the pipeline of a target, whose options say what the target takes.

    Raises:
        Error: There is none.
    """
    checks = [step.ours for step in PassPipeline.parse(pipeline).steps if isinstance(step.ours, CheckLir)]
    if not checks:
        raise Error(f"no rlx-check-lir says what the target takes: {pipeline}")
    return checks[-1]


_CLEAN_UP = (PipelineElement("canonicalize"), PipelineElement("cse"))
