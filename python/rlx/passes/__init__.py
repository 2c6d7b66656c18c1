"""Passes: transforms of modules, registered by name and run by pipelines written as text.

`run(graph, "builtin.module(rlx-lower-blocks,canonicalize,cse)")` returns a new graph; `list()` lists all passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Import the packages to the left in the import order first, and completely. Otherwise a thread that imports one of
# their modules, while another thread imports the package, could see a half-initialised package.
import rlx.blocks  # noqa: F401  # pyright: ignore[reportUnusedImport]

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterable

    from rlx.ir.graph.graph import Graph
    from rlx.passes.base import Pass, PassInfo
    from rlx.passes.pipeline import PassPipeline
    from rlx.passes.runner import Instrument


def run(
    graph: Any,
    pipeline: str | Pass | PassPipeline | Iterable[str | Pass],
    *,
    verify_each: bool = True,
    instruments: Iterable[Instrument] = (),
) -> Graph:
    """Run passes on a copy of a graph.

    Args:
        graph: A `Graph`, a `GraphModule` or an MLIR module; it is not changed.
        pipeline: Text in MLIR's syntax, a pass, or a list of both.
        verify_each: Verify after every pass.
        instruments: Objects that observe the run: see `rlx.passes.instruments`.

    Returns:
        The result, with the same entry function, or the first public one if a pass has renamed it.

    Raises:
        PassError: The pipeline names an unknown pass or option, or a pass failed; the message names it.
        VerificationError: A pass produced an invalid module; the message names the pass.
    """
    from rlx.ir.graph.graph import Graph
    from rlx.ir.op.signature import functions
    from rlx.ir.text.modules import verify_module
    from rlx.passes.pipeline import PassPipeline
    from rlx.passes.runner import clone_module, run_on_module
    from rlx.support.errors import PassError, VerificationError

    steps = PassPipeline.of(pipeline)
    source = getattr(graph, "module", graph)
    if not hasattr(source, "operation"):
        raise PassError(f"passes.run takes a Graph, a GraphModule or a module, got {type(graph).__name__}")
    module = clone_module(source)
    try:
        run_on_module(module, steps, verify_each=verify_each, instruments=instruments)
    except VerificationError:
        verify_module(source)  # an input that was already invalid is not blamed on a pass
        raise
    entry = graph.name_symbol if hasattr(graph, "name_symbol") else None
    if entry not in [function.name.value for function in functions(module)]:
        entry = None  # rlx-rename has given the function another name
    result = Graph.from_module(module, entry)
    if isinstance(graph := getattr(graph, "_graph", graph), Graph):
        result.take_weights(graph)
    return result


def list() -> builtins.list[PassInfo]:
    """Return the passes of RLX by name, with summaries and options. MLIR's passes are in `rlx.passes.native.names()`."""
    from rlx.passes.base import infos

    return infos()


_MODULE_OF_NAME = {
    **dict.fromkeys(("Pass", "PassInfo", "option"), "rlx.passes.base"),
    "Pipeline": "rlx.passes.pipeline",
    **dict.fromkeys(("Instrument", "run_on_module"), "rlx.passes.runner"),
    **dict.fromkeys(("PrintIR", "Statistics", "Timing"), "rlx.passes.instruments"),
    "CheckNumerics": "rlx.passes.checking.check_numerics",
    "to_mir": "rlx.passes.levels",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'rlx.passes' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)
