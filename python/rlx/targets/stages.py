"""The steps from a given graph to the input of a compiler, as text of passes: shared by compilation, reports and commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx import mlir
from rlx.blocks.graph_module import GraphModule
from rlx.ir.graph.graph import Graph
from rlx.ir.location import describe
from rlx.ir.shape import not_addressable
from rlx.passes import run
from rlx.passes.base import Pass
from rlx.passes.check_lir import CheckLir
from rlx.passes.decompose import Decompose
from rlx.passes.pipeline import PassPipeline, PipelineElement
from rlx.passes.rename import Rename
from rlx.passes.runner import Instrument
from rlx.support.errors import Error
from rlx.targets.options import CompileOptions


def graph_of(graph: Any, what: str) -> Graph:
    """Return the `Graph` of a user's argument, at its current stage.

    Args:
        graph: A `Graph` or `GraphModule`.
        what: The method that was called, for the message.

    Raises:
        Error: The argument is neither, or has no outputs.
    """
    if isinstance(graph, GraphModule):
        graph = graph.as_hir or graph.graph
    if not isinstance(graph, Graph):
        raise Error(f"{what} takes a Graph or GraphModule, got {type(graph).__name__}")
    if not graph.results:
        raise Error(f"graph '{graph.name}' has no outputs", hint="call set_outputs")
    return graph


def prepare_graph(graph: Graph, options: CompileOptions, *, instruments: Sequence[Instrument] = ()) -> Graph:
    """A graph with the first steps that its user asks for: it gets its name, sizes are bound, then passes are run.

    Args:
        graph: HIR or MIR; it is not changed.
        options: The options; `name`, `bind` and `passes` count.
        instruments: Instruments that observe the passes.

    Raises:
        ShapeError: An argument has more bytes than can be addressed.
        Error: A symbol is unknown, the pipeline is wrong, or a pass failed.
    """
    if options.bind and (unknown := set(options.bind) - graph.symbols):
        known = ", ".join(sorted(graph.symbols)) or "none"
        raise Error(f"bind: the graph has no symbol {', '.join(sorted(map(str, unknown)))}; it has {known}")
    steps = preparing(options)
    result = run(graph, steps, instruments=instruments) if steps else graph
    for argument, value in zip(result.arguments, result.function.entry_block.arguments, strict=True):
        if not argument.shape.is_addressable:
            raise not_addressable(argument.shape, f"{argument.kind} '{argument.name}': ", describe(value.location))
    return result


def preparing(options: CompileOptions) -> list[str]:
    """The pipelines that `prepare_graph` runs."""
    sizes = " ".join(f"{name}={int(size)}" for name, size in (options.bind or {}).items())
    return [
        *([str(Rename(options.name))] if options.name is not None else []),
        *([f"rlx-bind{{{sizes}}}"] if sizes else []),
        *([options.passes] if options.passes else []),
    ]


def to_lir(legal: CheckLir, before: Sequence[Pass] = (), after: Sequence[Pass] = ()) -> str:
    """Return the pipeline of a target to LIR: it decomposes the ops that the target lacks, and then checks the module.

    Args:
        legal: The check. Its options declare the ops and dtypes that the target supports.
        before: Passes that run first.
        after: Passes that run before the check.
    """
    decompose = Decompose(legal.for_, except_=legal.ops, without=legal.without)
    return str(PassPipeline([*before, decompose, *_CLEAN_UP, *after, legal]))


def lower(module: mlir.Module, lowering: str, instruments: Sequence[Instrument] = ()) -> None:
    """Lower a module at LIR to the input of a target's compiler, in place.

    Args:
        module: The module. It is not verified after each pass: compiling a graph waits for this.
        lowering: The passes: `Target.lowering`.
        instruments: Instruments that observe the passes.

    Raises:
        Error: A pass failed.
    """
    PassPipeline.parse(lowering).run(module, verify_each=False, instruments=instruments)


def check_of(pipeline: str) -> CheckLir:
    """Return the check in the pipeline of a target. Its options declare what the target supports.

    Raises:
        Error: The pipeline has no check.
    """
    checks = [step.ours for step in PassPipeline.parse(pipeline).steps if isinstance(step.ours, CheckLir)]
    if not checks:
        raise Error(f"no rlx-check-lir says what the target takes: {pipeline}")
    return checks[-1]


_CLEAN_UP = (PipelineElement("canonicalize"), PipelineElement("cse"))
