"""Functions as ops: a function with its own derivative rules, and a chain of elementwise ops."""

# Functions of regions are lambdas of tensors. Their parameters have no types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import EVERY, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.evaluate import EvaluatedRegion
from rlx.ir.graph.regions import Region
from rlx.ir.graph.typing import TensorLike
from rlx.ir.op import opview
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, sample
from rlx.ir.op.opview import RegionShapes
from rlx.ir.shape import Shape
from rlx.ops.control.control import expect_arguments, flat, present, shapes_text, unpacked
from rlx.ops.control.control_rules import CustomFnRules
from rlx.ops.lift import tensor_like
from rlx.support.errors import ShapeError


class CustomFn(CustomFnRules, op="custom_fn"):
    def infer(
        self, inputs: list[Shape], *, no_derivative: str | None = None, regions: Sequence[RegionShapes | None]
    ) -> tuple[Shape, ...]:
        forward = present(regions[0], "forward_region")
        expect_arguments(forward, inputs, "forward_region")
        results = forward.results
        _check_rule("vjp_region", regions[1], [*inputs, *results, *results], inputs)
        _check_rule("jvp_region", regions[2], [*inputs, *inputs], results)
        if no_derivative is not None and any(regions[1:]):
            raise ShapeError("no_derivative is for a function without rules, but this one has some")
        return results

    def evaluate(
        self, inputs: list[np.ndarray], *, no_derivative: str | None = None, regions: Sequence[EvaluatedRegion]
    ) -> tuple[np.ndarray, ...]:
        return tuple(regions[0](*inputs))

    def decompose(
        self, b: Builder, inputs: list[Tensor], *, no_derivative: str | None = None, regions: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        return tuple(b.inline(regions[0], inputs))

    def build(
        self,
        b: Builder,
        fwd: Callable[..., Any],
        *args: TensorLike,
        vjp: Callable[..., Any] | None = None,
        jvp: Callable[..., Any] | None = None,
        no_derivative: str | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """The result is `fwd(*args)`, with the derivatives `vjp(args, results, cotangents)` and `jvp(args, tangents)`.

        `vjp` returns a cotangent of each argument, `jvp` a tangent of each result. `args`, `results`, `cotangents` and
        `tangents` are tuples. The functions may use tensors from outside, which count as constants for the rules.

        Own arguments:
            no_derivative: The reason why there is no derivative, for the error message, in place of the rules; or None.
        """
        for name, function in (("fwd", fwd), ("vjp", vjp), ("jvp", jvp)):
            if not callable(function) and (name == "fwd" or function is not None):
                raise ShapeError(f"{name} must be a function of tensors, got {function!r}")
        inputs = [tensor_like(b, value, f32) for value in args]
        shapes = [t.shape for t in inputs]
        forward = b.region(fwd, shapes)
        results = list(forward.shapes.results)
        count, num_results = len(inputs), len(results)
        rules: list[Region | None] = [None, None]
        if vjp is not None:
            rules[0] = b.region(
                lambda *t: _list(vjp(t[:count], t[count : count + num_results], t[count + num_results :]), "vjp"),
                [*shapes, *results, *results],
            )
        if jvp is not None:
            rules[1] = b.region(lambda *t: _list(jvp(t[:count], t[count:]), "jvp"), [*shapes, *shapes])
        return unpacked(b.emit("custom_fn", (inputs,), regions=[forward, *rules], no_derivative=no_derivative))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 0)  # the cost is that of the ops in its region

    def samples(self) -> Iterable[OpSample]:
        def squared(b: Builder, x: Tensor) -> object:
            rule = lambda args, results, cotangents: cotangents[0] * args[0]  # noqa: E731
            return b.custom_fn(lambda x: x * x, x, vjp=rule)

        def two(b: Builder, x: Tensor, w: Tensor) -> object:
            rule = lambda args, tangents: (tangents[0] @ args[1], b.sum(tangents[0]))  # noqa: E731
            return b.custom_fn(lambda x, w: (x @ w, b.sum(x)), x, w, jvp=rule)

        def captured(b: Builder, x: Tensor, w: Tensor) -> object:
            return b.custom_fn(lambda x: b.where(x == x, x, w), x)

        def underived(b: Builder, x: Tensor, *, no_derivative: str) -> object:
            return b.custom_fn(lambda x: b.where(x == x, x, x), x, no_derivative=no_derivative)

        yield sample([(2, 3), (2, 3)], build=captured, dtypes=EVERY)
        yield sample([(2, 3)], build=underived, dtypes=("f32",), no_derivative="nobody knows it")
        yield sample([(2, 3)], build=squared, dtypes=("f32",))
        yield sample([("n", 3), (3, 2)], build=two, dtypes=("f32",))


def _list(values: object, name: str) -> list[Tensor]:
    result = flat(values)
    for value in result:
        if not isinstance(value, Tensor):
            raise ShapeError(f"{name} must return tensors, got {type(value).__name__}")
    return result


def _check_rule(name: str, region: RegionShapes | None, arguments: Sequence[Shape], results: Sequence[Shape]) -> None:
    if region is None:
        return
    expect_arguments(region, arguments, name)
    if list(region.results) != list(results):
        raise ShapeError(f"{name} must yield {shapes_text(results)}, got {shapes_text(region.results)}")


class ElementwiseRegion(Card, op="elementwise_region"):
    one_loop = True

    def infer(self, inputs: list[Shape], *, regions: Sequence[RegionShapes | None]) -> tuple[Shape, ...]:
        body = present(regions[0], "body_region")
        expect_arguments(body, inputs, "body_region")
        return body.results

    def check_regions(self, op: mlir.Operation) -> None:
        body = op.regions[0].blocks[0]
        *inner, end = opview.operations(body)
        for step in inner:
            last = step.name == "rlx.reduce" and all(use.owner.operation == end for use in step.results[0].uses)
            if step.name != "rlx.constant" and not last and not opview.has_trait(step, "elementwise"):
                expected = "elementwise ops, constants, and reductions that are results"
                raise ShapeError(f"body_region holds '{step.name}'; expected {expected}")
            if any(opview.home_of(v) != body for v in step.operands):
                raise ShapeError("body_region reads a value from outside; make it an input")

    def evaluate(self, inputs: list[np.ndarray], *, regions: Sequence[EvaluatedRegion]) -> tuple[np.ndarray, ...]:
        return tuple(regions[0](*inputs))

    def decompose(self, b: Builder, inputs: list[Tensor], *, regions: Sequence[Any]) -> tuple[Tensor, ...]:
        return tuple(b.inline(regions[0], inputs))

    def build(self, b: Builder, function: Callable[..., Any], *args: TensorLike) -> Tensor | tuple[Tensor, ...]:
        """`function(*args)` computes the results, in one op.

        It consists of elementwise ops (activation, cast, binary, compare, where, clamp, constant), which may be followed
        by reductions of their results. The tensors broadcast as in NumPy wherever these ops do. It does not use tensors
        from outside.
        """
        inputs = [tensor_like(b, value, f32) for value in args]
        region = b.region(function, [t.shape for t in inputs])
        return unpacked(b.emit("elementwise_region", (inputs,), regions=[region]))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 0)

    def samples(self) -> Iterable[OpSample]:
        def chain(b: Builder, x: Tensor, y: Tensor, mask: Tensor) -> object:
            return b.elementwise_region(lambda x, y, mask: (b.where(mask, x + y, x), x == y), x, y, mask)

        def gelu(b: Builder, x: Tensor, bias: Tensor) -> object:
            return b.elementwise_region(lambda x, bias: b.gelu(x + bias) * 2.0, x, bias)

        yield sample([(2, 3), (3,), SampleOperand((2, 1), "bool")], build=chain, dtypes=EVERY)

        def reduced(b: Builder, x: Tensor) -> object:
            return b.elementwise_region(lambda x: (y := b.tanh(x * x), b.sum(y, -1)), x)

        yield sample([("n", 4), (4,)], build=gelu, dtypes=("f32",))
        yield sample([("n", 4)], build=reduced, dtypes=("f32",))
