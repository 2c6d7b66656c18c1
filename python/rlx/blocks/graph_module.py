"""`GraphModule`: one builder over HIR and MIR that tracks its stage."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rlx import mlir
from rlx.ir.calls import Answered
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.graph.listing import inspect_graph
from rlx.ir.op import registry
from rlx.ir.op.signature import POLICIES, POLICY_ATTRIBUTE, policy_of
from rlx.parts import PASS_RUNNER
from rlx.support.errors import Error, StageError

# The methods that build HIR: blocks, and names that are also tensor ops; the tensor ops are methods of `.graph`.
HIR_METHODS = (
    *(name for name, spec in registry.SPECS.items() if spec.stage == "hir"),
    "attention",
    "rope",
    "rms_norm",
)
# Functions of `rlx` that return another graph, as methods: `module.grad(["w"])`.
TRANSFORMS = (
    "grad",
    "grad_with_loss",
    "vjp",
    "jvp",
    "hvp",
    "vmap",
    "jacfwd",
    "jacrev",
    "hessian",
    "nth_order_grad",
    "directional_nth_grad",
    "linearize",
)
_ALIASES = {"transformer_block": "llama_decoder_block"}

Outputs = Sequence[Tensor] | Mapping[str, Tensor] | Tensor


class GraphModule(Answered):
    """A graph with its stage: `"hir"` (blocks), `"mir"` (tensor ops) or `"lir"` (ops of a target).

    All methods of `Graph` are methods of this class. Methods that build blocks exist at HIR only, `graph` from MIR on.

    Args:
        graph: The graph of the module; it is shared, not copied.
    """

    def __init__(self, graph: Graph):
        self._graph = graph

    @classmethod
    def hir(cls, name: str) -> GraphModule:
        """Return an empty module at HIR."""
        return cls(Graph(name, stage="hir"))

    @classmethod
    def mir(cls, name: str) -> GraphModule:
        """Return an empty module at MIR."""
        return cls(Graph(name, stage="mir"))

    @classmethod
    def from_graph(cls, graph: Graph) -> GraphModule:
        """Return a module around a graph, at the graph's stage."""
        return cls(graph)

    @classmethod
    def define(cls, name: str, build: Callable[[Any], Outputs | None]) -> GraphModule:
        """Return a module at HIR, built by a function.

        Args:
            name: Name of the graph.
            build: Called with the module. It returns the outputs, or sets them itself.

        Raises:
            Error: There are no outputs, or `build` is not a function.
        """
        if not callable(build):
            raise Error(f"define: expected a function that builds '{name}', got {build!r:.60}")
        module = cls.hir(name)
        outputs = build(module)
        if outputs is not None:
            module.set_outputs(outputs)
        if not module._graph.results:
            raise Error(f"define: the function of '{name}' gave no outputs", hint="return tensors from it")
        return module

    # --- stages -----------------------------------------------------------------------------------

    @property
    def stage(self) -> str:
        """The stage: `"hir"`, `"mir"` or `"lir"`."""
        return self._graph.stage

    def _graph_at(self, stage: str) -> Graph | None:
        return self._graph if self.stage == stage else None

    @property
    def as_hir(self) -> Graph | None:
        """The graph if the module is at HIR, else None."""
        return self._graph_at("hir")

    @property
    def as_mir(self) -> Graph | None:
        """The graph if the module is at MIR, else None."""
        return self._graph_at("mir")

    @property
    def as_lir(self) -> Graph | None:
        """The graph if the module is at LIR, else None."""
        return self._graph_at("lir")

    @property
    def graph(self) -> Graph:
        """The tensor graph.

        Raises:
            StageError: The module is at HIR.
        """
        if self.stage == "hir":
            raise StageError(
                f"module '{self.name}' is at stage hir and has no tensor graph yet", hint="call lower() first"
            )
        return self._graph

    def lower(self) -> GraphModule:
        """Return a new module at MIR, so that this one can still be extended. From MIR on, return the module itself."""
        if self.stage != "hir":
            return self
        passes = importlib.import_module(PASS_RUNNER)
        return GraphModule(passes.run(self._graph, passes.to_mir()))

    def into_graph(self) -> Graph:
        """Return the tensor graph, lowered if the module is at HIR."""
        return self.lower().graph

    @property
    def fusion_policy(self) -> str:
        """Whether lowering of blocks fuses ops (`"direct"`) or leaves primitives (`"fusable"`)."""
        return policy_of(self._graph.module.operation) or "direct"

    def with_fusion_policy(self, policy: str) -> GraphModule:
        """Choose whether lowering of blocks fuses ops; return the module itself.

        Args:
            policy: `"direct"` fuses them, `"fusable"` leaves primitives.

        Raises:
            StageError: The module is not at HIR, so it has no blocks.
            Error: The policy is unknown.
        """
        self._require_hir("with_fusion_policy")
        if policy not in POLICIES:
            raise Error(f"fusion policy {policy!r} is not one of {', '.join(POLICIES)}")
        with mlir.entered():
            self._graph.module.operation.attributes[POLICY_ATTRIBUTE] = mlir.ir.StringAttr.get(policy)
        return self

    def _require_hir(self, method: str) -> None:
        if self.stage == "hir":
            return
        also = method in HIR_METHODS and registry.SPECS[method].stage != "hir"
        instead = f"; the tensor op is graph.{method}" if also else ""
        raise StageError(
            f"{method} needs stage hir, but module '{self.name}' is at stage {self.stage}",
            hint=f"build blocks in GraphModule.hir(…), before lower(){instead}",
        )

    # --- building ---------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in TRANSFORMS:  # `rlx.transforms` comes later in the import order, so it is imported by name
            return partial(getattr(importlib.import_module("rlx"), name), self)
        name = _ALIASES.get(name, name)
        if name in HIR_METHODS:
            self._require_hir(name)
        return getattr(self._graph, name)

    # Without these methods, `__getattr__` would return those of the graph.
    def __reduce__(self) -> tuple[Any, ...]:
        return GraphModule, (self._graph,)

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        return GraphModule(self._graph.clone())

    def __copy__(self) -> GraphModule:
        return GraphModule(self._graph.clone())

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._graph), *_ALIASES, *TRANSFORMS})

    @contextlib.contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Scope names and locations: ops built inside carry `name` in their location."""
        with self._graph.named(name):
            yield

    def set_outputs(self, outputs: Outputs) -> None:
        """Set the results of the module: see `Graph.set_outputs`."""
        self._graph.set_outputs(outputs)

    def finish_hir(self, outputs: Outputs | None = None) -> GraphModule:
        """Set the outputs, unless they are set, and verify the module; return the module itself.

        Raises:
            StageError: The module is not at HIR.
            Error: There are no outputs.
            VerificationError: The module breaks a rule.
        """
        self._require_hir("finish_hir")
        if outputs is not None:
            self.set_outputs(outputs)
        if not self._graph.results:
            raise Error(f"module '{self.name}' has no outputs", hint="give them to finish_hir or set_outputs")
        self._graph.verify()
        return self

    # --- text -------------------------------------------------------------------------------------

    def inspect(self) -> str:
        """Return a readable dump: stage, histogram of ops, arguments, ops with their source locations, outputs."""
        return str(inspect_graph(self._graph)) + "\n"

    def __str__(self) -> str:
        return str(self._graph)

    def __repr__(self) -> str:
        return f"<GraphModule {self.stage} {self._graph!r}>"
