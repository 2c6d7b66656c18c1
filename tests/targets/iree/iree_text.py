"""IREE's input for a graph."""

from __future__ import annotations

from rlx.ir.graph.graph import Graph
from rlx.passes.runner import run_on_module
from rlx.targets.dispatch import with_kernels
from rlx.targets.iree.backend import module_text
from rlx.targets.iree.targets import Target
from rlx.targets.iree.targets import target as target_of
from rlx.targets.options import CompileOptions
from rlx.targets.stages import lower


def iree_text(graph: Graph, target: Target | None = None) -> str:
    """The module after all passes for a target, by default the CPU, without kernels. The graph is not changed."""
    target = target or target_of("cpu")
    module = graph.clone().module
    run_on_module(module, with_kernels(target, CompileOptions(kernels="off")))
    lower(module, target.lowering(target.level))
    return module_text(module)
