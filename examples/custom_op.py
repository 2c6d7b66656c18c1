"""Custom ops in one file outside the package: Swish, and a smooth maximum with its own lowering and rules.

    python examples/custom_op.py
    rlx-opt --load=examples/custom_op.py model.mlir --rlx-decompose
    rlx compile --load=examples/custom_op.py model.mlir -o model.rlxa

The signature of `infer` declares the op: positional parameters are operands, keyword-only parameters are attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx import mlir
from rlx.ops import rules
from rlx.targets import linalg


class Swish(rlx.CustomOp, name="example.swish"):
    """x·sigmoid(beta·x) (Ramachandran et al., Searching for activation functions)."""

    dtypes = ("f32", "f16", "bf16", "f64")

    def infer(self, x: rlx.Shape, *, beta: float = 1.0) -> rlx.Shape:
        return x

    def evaluate(self, x: np.ndarray, *, beta: float) -> np.ndarray:
        wide = x.astype(np.float64)
        return (wide / (1 + np.exp(-beta * wide))).astype(x.dtype)

    def decompose(self, b: Any, x: rlx.Tensor, *, beta: float) -> rlx.Tensor:
        return x * b.sigmoid(x * beta)


class SoftMaximum(rlx.CustomOp, name="example.soft_maximum"):
    """log(exp(lhs) + exp(rhs)), elementwise. It is a primitive: it has a lowering instead of a decomposition, and
    rules for derivatives and batches.
    """

    dtypes = ("f32",)

    def infer(self, lhs: rlx.Shape, rhs: rlx.Shape) -> rlx.Shape:
        if lhs != rhs:
            raise rlx.ShapeError(f"lhs and rhs must have one shape, got {lhs} and {rhs}")
        return lhs

    def evaluate(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return np.logaddexp(lhs, rhs)

    def vjp(self, b: Any, operands: Any, results: Any, cotangents: Any) -> Any:
        """The derivatives are the softmax of the operands. Forward mode is the transpose of this rule."""
        (cotangent,) = cotangents
        share = b.sigmoid(operands[0] - operands[1])
        return cotangent * share, cotangent * (1.0 - share)

    def vmap(self, b: Any, operands: Any, batched: Any, *, size: Any) -> Any:
        """The op itself: it accepts any shape that both operands have."""
        lhs, rhs = (rules.batch(b, x, own, size) for x, own in zip(operands, batched, strict=True))
        return b.custom(SoftMaximum, lhs, rhs)


@linalg.lowers("example.soft_maximum")
def lower_soft_maximum(low: Any, results: Any, lhs: Any, rhs: Any) -> Any:
    """`max(a, b) + log(1 + exp(-|a - b|))` as one elementwise loop."""
    arith, math = low.arith, mlir.dialect("math")

    def body(a: Any, b: Any) -> Any:
        distance = math.absf(arith.subf(a, b))
        return arith.addf(arith.maximumf(a, b), math.log1p(math.exp(arith.negf(distance))))

    return low.map(results[0].dims, lhs.value.type.element_type, [lhs, rhs], body)


def main() -> None:
    g = rlx.Graph("example")
    x, y = g.input("x", ("n", 3)), g.input("y", ("n", 3))
    g.set_outputs({"result": g.custom(SoftMaximum, g.custom("example.swish", x, beta=2.0), y)})
    print(g)
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((4, 3)).astype(np.float32) for name in ("x", "y")}
    (expected,) = rlx.evaluate(g, inputs)
    (result,) = rlx.Session(rlx.Device.CPU).compile(g).run(inputs)
    print(f"largest difference to the evaluator: {np.abs(result - expected).max():.1e}")
    # Swish is differentiated through its decomposition, the maximum by its rule; vjp takes the cotangent of the result.
    pulled = rlx.vjp(g, ["x", "y"])
    inputs["cotangent_result"] = np.ones((4, 3), np.float32)
    _, by_x, by_y = rlx.Session(rlx.Device.CPU).compile(pulled).run(inputs)
    slope = rlx.evaluate(rlx.grad(swish_alone(), "x"), {"x": inputs["x"]})[0]
    print(f"largest difference to the chain rule: {np.abs(by_x - (1 - by_y) * slope).max():.1e}")


def swish_alone() -> rlx.Graph:
    """Return the graph of the sum of Swish."""
    g = rlx.Graph("swish")
    g.set_outputs([g.sum(g.custom(Swish, g.input("x", ("n", 3)), beta=2.0))])
    return g


if __name__ == "__main__":
    main()
