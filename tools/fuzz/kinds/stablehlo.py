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
        if rng.random() < 0.02:  # each is read by a separate process
            return damaged_bytes(artifact(), rng)
        return self.mutator.text(rng).encode("utf-8", "surrogatepass")

    def attempt(self, data: bytes) -> Any:
        source = _source(data)
        graph = self.rlx.from_stablehlo(source if isinstance(source, bytes) or "\n" in source else source + "\n")
        graph.verify()
        use(graph)
        assert str(self.rlx.parse(str(graph))) == str(graph)
        return graph


def _source(data: bytes) -> str | bytes:
    """Return text as `str`; bytecode, also damaged bytecode, as `bytes`."""
    if data.startswith(b"ML"):
        return data
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data


@cache
def texts() -> tuple[str, ...]:
    """Return lowered graphs of one op that the importer supports, and a few calls."""
    import rlx
    from rlx.ir.text.modules import print_op
    from rlx.targets.compilation import Compilation
    from rlx.targets.registry import target_of
    from rlx.targets.stablehlo import lower_module

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
    return (*made, calls, *_OTHERS)


# Forms that the lowering never writes: other element types, random bits, tuples, CHLO functions, arbitrary regions.
_OTHERS = (
    """func.func @f(%x: tensor<3xui64>, %y: tensor<3xui64>, %z: tensor<3xui16>)
    -> (tensor<3xui64>, tensor<3xui16>, tensor<3xi1>) {
  %0 = stablehlo.divide %x, %y : tensor<3xui64>
  %1 = stablehlo.maximum %0, %y : tensor<3xui64>
  %2 = stablehlo.convert %1 : (tensor<3xui64>) -> tensor<3xui16>
  %3 = stablehlo.multiply %2, %z : tensor<3xui16>
  %4 = stablehlo.compare LT, %1, %y, UNSIGNED : (tensor<3xui64>, tensor<3xui64>) -> tensor<3xi1>
  return %1, %3, %4 : tensor<3xui64>, tensor<3xui16>, tensor<3xi1>
}
""",
    """func.func @f(%x: tensor<2x3xf32>, %w: tensor<3x2x!quant.uniform<i8:f32:1, {0.5, 0.25}>>) -> tensor<2x2xf32> {
  %0 = stablehlo.uniform_quantize %x : (tensor<2x3xf32>) -> tensor<2x3x!quant.uniform<i8:f32, 0.1:-30>>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<2x3x!quant.uniform<i8:f32, 0.1:-30>>,
      tensor<3x2x!quant.uniform<i8:f32:1, {0.5, 0.25}>>) -> tensor<2x2x!quant.uniform<i32:f32:1, {0.05, 0.025}>>
  %2 = stablehlo.uniform_dequantize %1 : (tensor<2x2x!quant.uniform<i32:f32:1, {0.05, 0.025}>>) -> tensor<2x2xf32>
  return %2 : tensor<2x2xf32>
}
""",
    """func.func @f(%x: tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>, tensor<4xf32>, tensor<4xi32>) {
  %0, %1 = stablehlo.rng_bit_generator %x, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>)
  %2, %3 = stablehlo.rng_bit_generator %0, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<9xi32>)
  %4 = stablehlo.bitcast_convert %3 : (tensor<9xi32>) -> tensor<9xf32>
  %5 = stablehlo.reduce_precision %4, format = e5m4 : tensor<9xf32>
  %6, %7 = chlo.top_k(%5, k = 4) : tensor<9xf32> -> (tensor<4xf32>, tensor<4xi32>)
  %8 = chlo.bessel_i1e %6 : tensor<4xf32> -> tensor<4xf32>
  %9 = stablehlo.tuple %2, %8 : tuple<tensor<2xui64>, tensor<4xf32>>
  %10 = stablehlo.get_tuple_element %9[1] : (tuple<tensor<2xui64>, tensor<4xf32>>) -> tensor<4xf32>
  return %2, %1, %10, %7 : tensor<2xui64>, tensor<3x5xui32>, tensor<4xf32>, tensor<4xi32>
}
""",
    """func.func @f(%x: tensor<4x5xi64>, %y: tensor<3x4xi64>, %i: tensor<i64>) -> tensor<4x5xi64> {
  %0 = "stablehlo.select_and_scatter"(%x, %y, %i) ({
  ^bb0(%a: tensor<i64>, %b: tensor<i64>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<i64>, %b: tensor<i64>):
    %1 = stablehlo.subtract %a, %b : tensor<i64>
    stablehlo.return %1 : tensor<i64>
  }) {window_dimensions = array<i64: 2, 2>} : (tensor<4x5xi64>, tensor<3x4xi64>, tensor<i64>) -> tensor<4x5xi64>
  return %0 : tensor<4x5xi64>
}
""",
)


@cache
def artifact() -> bytes:
    """Return a portable artifact."""
    import rlx
    from rlx.targets.stablehlo import lower_module
    from rlx.targets.xla.portable import to_portable

    g: Any = rlx.Graph("artifact")
    x = g.input("x", (2, 3))
    g.set_outputs([g.sum(g.tanh(x) @ g.input("w", (3, 2)), 0) + 1.0])
    return to_portable(lower_module(g.module))


KIND = StableHlo()
