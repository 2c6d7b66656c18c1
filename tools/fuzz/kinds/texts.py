"""Module texts: parsed, printed, parsed again, and processed by inference and passes."""

from __future__ import annotations

import random
from typing import Any

from tools.fuzz import corpus
from tools.fuzz.frame import Kind
from tools.fuzz.mutators import Mutator

PIPELINES = (
    "rlx-lower-blocks,canonicalize,cse",
    "rlx-lower-blocks,rlx-decompose",
    "rlx-lower-blocks,rlx-simplify",
    "rlx-lower-blocks,rlx-grad",
    "rlx-lower-blocks,rlx-vmap{size=2}",
    "rlx-lower-blocks,rlx-decompose,rlx-to-linalg",
    "rlx-lower-blocks,rlx-decompose,rlx-to-stablehlo",
    "rlx-lower-blocks,rlx-prune-regions,rlx-lower-control-flow,inline,symbol-dce",
    "rlx-bind{n=3 batch=2},rlx-lower-blocks,rlx-precision{policy=f16}",
)


class Texts(Kind):
    name = "texts"
    suffix = ".mlir"

    def prepare(self) -> None:
        import rlx
        from rlx import mlir

        mlir.context()
        self.rlx = rlx
        self.mutator = Mutator(corpus.texts(), corpus.words())

    def make(self, rng: random.Random) -> bytes:
        return self.mutator.text(rng).encode("utf-8", "surrogatepass")

    def attempt(self, data: bytes) -> Any:
        """Use a text in all ways except execution."""
        text = data.decode("utf-8", "surrogatepass")
        if "\n" not in text:
            text += "\n"  # otherwise it would be treated as a path
        graph = self.rlx.parse(text)
        printed = str(graph)
        assert str(self.rlx.parse(printed)) == printed, "prints otherwise when read again"
        graph.verify()
        use(graph)
        chosen = random.Random(data)
        for pipeline in chosen.sample(PIPELINES, 2):
            try:
                after = self.rlx.passes.run(graph, pipeline)
                str(after)
            except self.rlx.PassError as problem:
                if "internal error" in problem.message:
                    raise problem.__cause__ or problem from None
            except self.rlx.Error:
                pass
        assert str(graph) == printed, "a pass changed the graph that it was given"
        return graph


def use(graph: Any) -> None:
    """Run the checks that apply to every graph."""
    from rlx.ir.op import opview

    assert isinstance(repr(graph), str)
    assert graph.symbols is not None
    for op in opview.operations(graph.function.entry_block):
        if op.name.startswith("rlx."):
            opview.attributes_of(op)
            opview.cost_of(op)
    str(graph.clone())


KIND = Texts()
