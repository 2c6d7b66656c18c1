"""A fused loss as a CPU kernel in one file outside the package, timed against the graph without the kernel.

    python examples/cpu_kernel.py
    rlx-opt --load=examples/cpu_kernel.py model.mlir --rlx-iree-kernels

docs/kernels.md describes the language.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import rlx
from rlx.kernels.case import KernelCase
from rlx.kernels.functions import exp_of_nonpositive, log


class CrossEntropy(rlx.CustomOp, name="example.cross_entropy"):
    """log(sum of exp(row)) - row[class], for the class of each row of logits."""

    def infer(self, logits: rlx.Shape, classes: rlx.Shape) -> rlx.Shape:
        return rlx.Shape(logits.dims[:1], logits.dtype)

    def decompose(self, b: Any, logits: rlx.Tensor, classes: rlx.Tensor) -> rlx.Tensor:
        chosen = b.one_hot(classes, logits.shape[1])
        return -b.sum(b.log(b.softmax(logits, axis=1)) * chosen, axes=[1])


def takes_f32(case: KernelCase) -> bool:
    """Whether the code is right: for rows of f32 and classes of i32."""
    logits, classes = case.tensors
    return logits.dtype == rlx.f32 and classes.dtype == rlx.i32


@rlx.kernel(CrossEntropy, name="example_cross_entropy", takes=takes_f32)
def cross_entropy(k: Any, x: Any, classes: Any, loss: Any) -> None:
    """Read each row twice: for its maximum, and for the sum of exponentials."""
    rows, columns = x.shape
    for i in k.parallel(rows, 16):
        greatest = k.accumulator("max")
        for c in k.vectors(columns):
            greatest.include(c, x[i, c])
        top, total = greatest.result(), k.accumulator("add")
        for c in k.vectors(columns):
            total.include(c, exp_of_nonpositive(x[i, c] - top))
        loss[i] = log(total.result()) + top - x[i, classes[i]]


def main(rows: int = 512, columns: int = 1000) -> None:
    g = rlx.Graph("loss")
    logits, classes = g.input("logits", ("n", columns)), g.input("classes", ("n",), "i32")
    g.set_outputs([g.custom(CrossEntropy, logits, classes)])
    rng = np.random.default_rng(0)
    inputs = {
        "logits": rng.normal(size=(rows, columns)).astype(np.float32),
        "classes": rng.integers(0, columns, rows).astype(np.int32),
    }
    (expected,) = rlx.evaluate(g, inputs)
    few = cross_entropy.run(inputs["logits"][:4], inputs["classes"][:4])
    print(f"with NumPy: largest difference to the evaluator {np.abs(few - expected[:4]).max():.1e}")
    for choice in ("auto", "auto -example_cross_entropy"):
        program = rlx.Session(rlx.Device.CPU).compile(g, kernels=choice)
        (loss,) = program.run(inputs)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            program.run(inputs)
            times.append(time.perf_counter() - start)
        difference = np.abs(loss - expected).max()
        print(f"kernels='{choice}': {min(times) * 1e3:.2f} ms, largest difference {difference:.1e}")


if __name__ == "__main__":
    main()
