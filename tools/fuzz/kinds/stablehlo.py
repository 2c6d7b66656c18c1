"""StableHLO, as text and as portable artifacts: damaged, and imported."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from tools.fuzz import corpus
from tools.fuzz.frame import Kind
from tools.fuzz.kinds.texts import use
from tools.fuzz.mutators import Mutator, damaged_bytes


class StableHlo(Kind):
    name = "stablehlo"
    suffix = ".mlir"

    def prepare(self) -> None:
        import rlx

        self.rlx = rlx
        self.mutator = Mutator(texts(), corpus.words())

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.02:  # each is read by a process of its own
            return damaged_bytes(artifact(), rng)
        return self.mutator.text(rng).encode("utf-8", "surrogatepass")

    def attempt(self, data: bytes) -> Any:
        if data.startswith(b"ML"):
            graph = self.rlx.from_stablehlo(data)
        else:
            text = data.decode("utf-8", "surrogatepass")
            graph = self.rlx.from_stablehlo(text if "\n" in text else text + "\n")
        graph.verify()
        use(graph)
        assert str(self.rlx.parse(str(graph))) == str(graph)
        return graph


@cache
def texts() -> tuple[str, ...]:
    """Graphs of one op that the importer knows, lowered, and a few calls."""
    import rlx
    from rlx.backends.compilation import Compilation
    from rlx.backends.registry import target_of
    from rlx.ir.text import print_op
    from rlx.lower.stablehlo import lower_module

    made = {}
    for graph in corpus.graphs()[::3]:
        try:
            text = print_op(lower_module(Compilation(graph, target_of("stablehlo")).lir.module))  # type: ignore[arg-type]
            rlx.from_stablehlo(text)
        except rlx.Error:
            continue
        if len(text) < 6000:
            made[text] = None
    calls = """func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @g(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @g(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.tanh %x : tensor<2xf32> loc("g")
  return %0 : tensor<2xf32>
}
"""
    return (*made, calls)


@cache
def artifact() -> bytes:
    """A portable artifact."""
    import rlx
    from rlx.backends.xla.portable import to_portable
    from rlx.lower.stablehlo import lower_module

    g: Any = rlx.Graph("artifact")
    x = g.input("x", (2, 3))
    g.set_outputs([g.sum(g.tanh(x) @ g.input("w", (3, 2)), 0) + 1.0])
    return to_portable(lower_module(g.module))


KIND = StableHlo()
