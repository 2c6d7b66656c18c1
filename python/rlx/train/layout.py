"""`compile_training`: forward and backward graphs at every stage, with a common layout of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Unpack

from rlx.ir.calls import Answered, with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.plan import MemoryPlan, MemoryPlanOptions, align_up, plan_memory
from rlx.report.text import bytes_text, table
from rlx.runtime.pipeline import CompileResult, Pipeline
from rlx.support.errors import Error
from rlx.support.options import takes_options
from rlx.support.printable import printable
from rlx.targets import stages
from rlx.targets.options import CompileKeywords, CompileOptions
from rlx.transforms.base import arguments_of, names_of, tensor_graph
from rlx.transforms.grad import grad_with_loss

ALIGNMENT = 64


@dataclass(frozen=True)
class WeightSlot(Answered):
    """The location of a weight.

    Attributes:
        name: The name of the parameter.
        forward_id: Its position among the arguments of the forward function.
        offset: Its first byte, a multiple of 64.
        size: Its size in bytes.
    """

    name: str
    forward_id: int
    offset: int
    size: int


@dataclass(frozen=True)
class SharedWeightLayout(Answered):
    """One memory region with all weights, for the forward and the backward function.

    Attributes:
        arena_size: Its size in bytes, a multiple of 64.
        slots: The locations of the weights, consecutive, in the order of the forward function's arguments.
    """

    arena_size: int
    slots: tuple[WeightSlot, ...]

    @classmethod
    def of(cls, graph: Graph) -> SharedWeightLayout:
        """Return the layout of a graph's parameters.

        Raises:
            Error: The size of a parameter is not known.
        """
        slots, offset = [], 0
        for i, a in enumerate(graph.arguments):
            if a.kind != "param":
                continue
            if not a.shape.is_static:
                raise Error(f"parameter '{a.name}' is {a.shape}; its size must be known", hint="fix symbols with bind=")
            size = prod(a.shape.static) * a.shape.dtype.itemsize
            slots.append(WeightSlot(a.name, i, offset, size))
            offset += align_up(size, ALIGNMENT)
        return cls(offset, tuple(slots))

    def __getitem__(self, name: str) -> WeightSlot:
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise Error(f"there is no weight '{name}'; there are {', '.join(s.name for s in self.slots) or 'none'}")

    def __str__(self) -> str:
        rows = [(s.name, str(s.forward_id), str(s.offset), str(s.size)) for s in self.slots]
        lines = table(rows, ("weight", "argument", "offset", "bytes"), right=(1, 2, 3), indent="  ")
        return "\n".join([f"weights: {bytes_text(self.arena_size)} ({self.arena_size} B)", *lines])


@dataclass(frozen=True)
class TrainingCompileResult(Answered):
    """A graph and its gradients at every stage; `str()` is a summary.

    Attributes:
        forward: The stages of the graph.
        backward: The stages of the graph with the loss, the gradients `grad_<name>`, and the other outputs.
        weights: The layout of the weights for both.
        wrt: The names of the differentiated arguments.
    """

    forward: CompileResult
    backward: CompileResult
    weights: SharedWeightLayout
    wrt: tuple[str, ...]

    def activations(self, sizes: Mapping[str, int] | None = None) -> MemoryPlan:
        """Return the memory plan of the backward function's values, in one arena. Its weights are those of `weights`.

        Args:
            sizes: Sizes of symbols.

        Raises:
            ShapeError: A symbol has no size.
        """
        return plan_memory(self.backward.lir, MemoryPlanOptions.backward_activations_only(), sizes=sizes)

    def __str__(self) -> str:
        parts = [printable(f"gradients by: {', '.join(self.wrt)}", keep=""), str(self.weights)]
        for title, result in (("forward", self.forward), ("backward", self.backward)):
            parts.append(f"{title}:\n" + "\n".join(f"  {line}" for line in str(result).rstrip().splitlines()))
        return "\n".join(parts) + "\n"


@with_call_errors
@takes_options(CompileOptions)
def compile_training(
    graph: Any,
    wrt: Any = (),
    *,
    loss: str | None = None,
    target: str = "cpu",
    arch: str | None = None,
    **options: Unpack[CompileKeywords],
) -> TrainingCompileResult:
    """Take a graph and the graph of its gradients through all stages of a target, without compiling them.

    The backward graph is derived from primitives and simplified before ops are fused in it, and has the same arguments in the
    same order. The sizes of parameters must be known, or fixed by `bind`.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        wrt: The arguments to differentiate with respect to; all parameters if empty.
        loss: The name of the loss output; the first output by default.
        target: As in `rlx.Pipeline`.
        arch: As in `rlx.Pipeline`.
        options: As in `Session.compile`, by name.

    Raises:
        Error: The loss is not a scalar, an argument does not exist, an op has no derivative, the size of a parameter is
            not known, or the target does not exist.
    """
    chosen = CompileOptions(**options)
    pipeline = Pipeline(target=target, arch=arch, **chosen.prepared.keywords())
    prepared_graph = stages.prepare_graph(stages.graph_of(graph, "compile_training"), chosen)
    weights = SharedWeightLayout.of(prepared_graph)
    names = tuple(a.name for a in arguments_of(tensor_graph(prepared_graph), names_of(wrt, "wrt"), "wrt"))
    backward = grad_with_loss(prepared_graph, names, loss=loss)
    return TrainingCompileResult(pipeline.compile(prepared_graph), pipeline.compile(backward), weights, names)
