"""The way from a graph as given to what a back end lowers: shared by all that compile or report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, SupportsIndex

import numpy as np

from rlx.ir.checks import check_string
from rlx.ir.errors import Error
from rlx.ir.graph import Graph
from rlx.ir.signature import POLICIES
from rlx.passes import run
from rlx.passes.rewrite import set_stage


def check_policy(policy: str) -> None:
    """The policy is one of those that there are.

    Raises:
        Error: It is not.
    """
    if not isinstance(policy, str) or policy not in POLICIES:
        raise Error(f"policy {policy!r} is not one of {', '.join(POLICIES)}")


def graph_of(graph: Any, what: str, *, lowered: bool = True) -> Graph:
    """The graph that a user gave, bare or in a `GraphModule`.

    Args:
        graph: A `Graph` or `GraphModule`.
        what: The method that was called, for the message.
        lowered: Take a module that is at HIR at MIR.

    Raises:
        Error: It is neither, or has no outputs.
    """
    if hasattr(graph, "into_graph"):
        graph = graph.into_graph() if lowered else graph.as_hir or graph.into_graph()
    if not isinstance(graph, Graph):
        raise Error(f"{what} takes a Graph or GraphModule, got {type(graph).__name__}")
    if not graph.results:
        raise Error(f"graph '{graph.name}' has no outputs", hint="call set_outputs")
    return graph


def _check_sizes(bind: Any) -> None:
    if not isinstance(bind, Mapping):
        raise Error(f"bind must be a mapping of symbols to sizes, got {bind!r}")
    for name, size in bind.items():
        if isinstance(size, (bool, np.ndarray, type)) or not isinstance(size, SupportsIndex):
            raise Error(f"bind: the size of {name} must be an integer, got {size!r}")


def prepared(
    graph: Graph,
    bind: Mapping[str, int] | None = None,
    precision: Any = None,
    passes: str | None = None,
    policy: str = "direct",
) -> Graph:
    """A graph after what its user asks for, in this order: sizes bound, passes run, precision lowered.

    Args:
        graph: HIR or MIR; it is not changed.
        bind: Sizes of symbols.
        precision: `"f16"` or `"bf16"`, or the dtype; None and f32 leave the graph as it is.
        passes: A pipeline.
        policy: Whether ops are fused before precision is lowered, which needs to see inside blocks.

    Raises:
        Error: A symbol is unknown, the pipeline is wrong, or a pass failed.
    """
    steps = []
    if bind is not None:
        _check_sizes(bind)
    if passes is not None:
        check_string(passes, "passes")
    if bind:
        unknown = set(bind) - graph.symbols
        if unknown:
            known = ", ".join(sorted(graph.symbols)) or "none"
            raise Error(f"bind: the graph has no symbol {', '.join(sorted(map(str, unknown)))}; it has {known}")
        steps.append("rlx-bind{" + " ".join(f"{name}={int(size)}" for name, size in bind.items()) + "}")
    if passes:
        steps.append(passes)
    name = precision_name(precision)
    if name != "f32":
        steps.append(f"{policy_passes(policy)},rlx-precision{{to={name}}}")
    for step in steps:
        graph = run(graph, step if step.startswith("builtin.module(") else f"builtin.module({step})")
    return graph


def precision_name(precision: Any) -> str:
    """The name of the dtype to compute in; f32 when it is not given."""
    return "f32" if precision is None else str(getattr(precision, "name", precision))


def lowered_blocks(graph: Graph, policy: str = "direct") -> Graph:
    """A graph at MIR: blocks replaced by tensor ops, and these fused unless the policy, or the module, says otherwise."""
    return run(graph, f"builtin.module({policy_passes(policy)})")


def policy_passes(policy: str) -> str:
    """What takes a module to MIR: `direct` makes fused ops, `fusable` leaves primitives."""
    return "rlx-lower-blocks,rlx-fuse" if policy == "direct" else "rlx-lower-blocks"


def legalise(module: Any, claimed: Collection[str], *, policy: str = "direct") -> None:
    """Make a module consist of claimed ops, as far as decompositions lead there, in place.

    Args:
        module: A module of rlx ops.
        claimed: Names of the ops that a target lowers, without prefix.
        policy: `"direct"` for fused ops, `"fusable"` for primitives.
    """
    from rlx.passes.pipeline import Pipeline

    keep = ",".join(sorted(claimed))
    steps = f"{policy_passes(policy)},rlx-decompose{{except={keep}}},canonicalize,cse"
    Pipeline.parse(f"builtin.module({steps})").run(module)


def legalised(graph: Graph, claimed: Collection[str], *, policy: str = "direct") -> Graph:
    """A graph at LIR for a target that claims these ops; see `legalise`."""
    lowered = graph.clone()
    legalise(lowered.module, claimed, policy=policy)
    set_stage(lowered.module, "lir")
    return lowered
