"""Products of 8-bit integers with constant matrices and a fused epilogue: four rows of weights at a time."""

from __future__ import annotations

from math import prod

from rlx import mlir
from rlx.ir.shape import Shape
from rlx.ops.quantization.quant_compute import ProductQuantization, QuantizedOperands
from rlx.targets.c.lower.contraction import plain_matmul
from rlx.targets.c.lower.kernel import KernelWriter
from rlx.targets.c.lower.layer import ConstantProduct, layer_of
from rlx.targets.c.lower.nest import LoopNest
from rlx.targets.c.lower.products import depth_of
from rlx.targets.c.lower.rules import loops
from rlx.targets.c.lower.values import Affine


@loops("q_matmul")
def q_matmul(
    kernel: KernelWriter,
    result: Shape,
    operands: QuantizedOperands[mlir.Value],
    *,
    quantization: ProductQuantization,
) -> None:
    layer = layer_of(kernel, operands, quantization.factors, 1)
    rows = prod(result.static[:-1])
    index = (
        *(Affine() for _ in result.static[:-2]),
        Affine.of("n") if rows > 1 else Affine(),
        Affine.of("o") if result.static[-1] > 1 else Affine(),
    )
    is_matrix = prod(result.static[:-2]) == 1
    if layer is None or 0 in result.static or not is_matrix or not layer.prepare(index):
        plain_matmul(kernel, result, operands, quantization)
        return
    _write_matmul(layer, rows, result.static[-1])


def _write_matmul(layer: ConstantProduct, rows: int, outputs: int) -> None:
    kernel, w = layer.kernel, layer.kernel.writer
    depth, is_packed = layer.rows.shape[1], layer.bits < 8
    weights, channels = layer.packed_tables() if is_packed else layer.tables(exchanged=False)
    x, y = kernel.pointer(layer.x), kernel.pointer(kernel.group.result)
    kind = kernel.program.record_kind(layer.channels.fields)
    inputs = f"{x} + n * {depth}" if rows > 1 else x
    base = f"{outputs} * n + " if rows > 1 else ""

    def block(count: int, start: str) -> None:
        """Write a block of four rows. Only the first `count` rows are outputs."""
        w.line(f"const {kind} *const channel = &{channels}[{start}];")
        first = [f"channel[{i}].bias" if i < count else "0" for i in range(4)]
        w.line(f"int32_t sums[4] = {{{', '.join(first)}}};")
        row = f"{weights}[{start} / {8 // layer.bits}]" if is_packed else f"{weights}[{start}]"
        stride = depth_of(depth, 8)
        function = kernel.program.need(f"multiply_4x1_{layer.suffix}")
        w.line(f"{function}({row}, {stride}, {inputs}, {depth}, sums);")
        for i in range(count):
            at = f"{start} + {i}" if i else start
            value = layer.finished(f"sums[{i}]", f"channel + {i}" if i else "channel", n="n", o=at)
            w.line(f"{y}[{base}{at}] = {value};")

    with LoopNest(w) as nest:
        nest.loop("n", rows)
        if is_packed:
            whole = outputs // 4 * 4
            if whole:
                with LoopNest(w) as blocks:
                    blocks.loop("o", whole, 4) if whole > 4 else blocks.once("const int32_t o = 0;")
                    block(4, "o")
            if outputs > whole:
                with LoopNest(w) as last:
                    last.once(f"const int32_t o = {whole}; /* the last rows */")
                    block(outputs - whole, "o")
            return
        if outputs < 4:
            function = kernel.program.need(f"multiply_1x1_{layer.suffix}")
            with w.loop("o", outputs):
                w.line(f"const {kind} *const channel = &{channels}[o];")
                w.line(f"const int32_t sum = channel->bias + {function}({weights}[o], {inputs}, {depth});")
                w.line(f"{y}[{base}o] = {layer.finished('sum', 'channel', n='n', o='o')};")
            return
        if outputs % 4 == 0:
            nest.loop("o", outputs, 4) if outputs > 4 else nest.once("const int32_t o = 0;")
        else:
            nest.loop("block", outputs, 4)
            w.line(f"const int32_t o = (block < {outputs - 4}) ? block : {outputs - 4}; /* the last four overlap */")
        block(4, "o")
