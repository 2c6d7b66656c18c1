"""Control flow ops with regions: a branch, a loop, a scan, and the terminator of their regions."""

# Functions of regions are lambdas of tensors. Their parameters have no types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, dim
from rlx.ir.dtype import EVERY, bool_, f32, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.evaluate import EvaluatedRegion
from rlx.ir.graph.typing import Size, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.op.dataflow import Flow, RegionFlow, carries, wholes
from rlx.ir.op.opview import RegionShapes
from rlx.ir.shape import Shape
from rlx.ops.control.control_rules import IfRules
from rlx.ops.control.loop_rules import ScanLoop, ScanRules, WhileRules
from rlx.ops.lift import tensor_like
from rlx.support.errors import ShapeError
from rlx.support.guards import is_sequence


class Yield(Card, op="yield"):
    def infer(self, values: list[Shape]) -> tuple[()]:
        return ()

    def evaluate(self, values: list[np.ndarray]) -> tuple[()]:
        return ()

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 0)

    def samples(self) -> Iterable[OpSample]:
        return ()


def shapes_text(shapes: Sequence[Shape]) -> str:
    """Format shapes for messages."""
    return ", ".join(map(str, shapes)) or "nothing"


def present(region: RegionShapes | None, name: str) -> RegionShapes:
    """Return a region that must not be empty.

    Raises:
        ShapeError: The region is empty.
    """
    if region is None:
        raise ShapeError(f"{name} must not be empty")
    return region


def expect_arguments(region: RegionShapes, expected: Sequence[Shape], name: str) -> None:
    """Check that a region takes exactly the expected arguments.

    Raises:
        ShapeError: The arguments differ.
    """
    if list(region.arguments) != list(expected):
        raise ShapeError(f"{name} takes {shapes_text(region.arguments)}; it is given {shapes_text(expected)}")


class If(IfRules, op="if"):
    def infer(self, condition: Shape, *, regions: Sequence[RegionShapes | None]) -> tuple[Shape, ...]:
        if condition.rank:
            raise ShapeError(f"the condition must be a scalar, got {condition}")
        then, otherwise = present(regions[0], "then_region"), present(regions[1], "else_region")
        expect_arguments(then, (), "then_region")
        expect_arguments(otherwise, (), "else_region")
        if then.results != otherwise.results:
            raise ShapeError(
                f"the branches yield {shapes_text(then.results)} and {shapes_text(otherwise.results)}; expected the same"
            )
        return then.results

    def evaluate(self, condition: np.ndarray, *, regions: Sequence[EvaluatedRegion]) -> tuple[np.ndarray, ...]:
        return tuple(regions[0 if condition else 1]())

    def flows(self, operands: int, results: int, attributes: Attributes) -> tuple[RegionFlow, ...]:
        return (RegionFlow((), wholes(results), repeats=False),) * 2

    def build(
        self, b: Builder, condition: TensorLike, then: Callable[..., Any], els: Callable[..., Any], *args: object
    ) -> Tensor | tuple[Tensor, ...]:
        """Only one of the functions runs: `then(*args)` if `condition`, a scalar, is true, and `els(*args)` otherwise.

        Both return tensors of the same shapes and dtypes, which are the results. They may also use tensors from outside.
        """
        for name, branch in (("then", then), ("els", els)):
            check_takes(branch, len(args), name)
        regions = [b.region(lambda branch=branch: branch(*args), ()) for branch in (then, els)]
        return unpacked(b.emit("if", (tensor_like(b, condition, bool_),), regions=regions))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, moved_bytes((), results))

    def samples(self) -> Iterable[OpSample]:
        def either(b: Builder, condition: Tensor, x: Tensor, y: Tensor) -> object:
            return b.if_(condition, lambda x, y: (x + y, y), lambda x, y: (x, x), x, y)

        def nested(b: Builder, condition: Tensor, inner_condition: Tensor, x: Tensor) -> object:
            inner = lambda: b.if_(inner_condition, lambda: x * 2.0, lambda: b.where(x < 0.0, -x, x))  # noqa: E731
            return b.if_(condition, inner, lambda: x * x)

        yield sample(SampleOperand((), "bool"), (3, 4), (3, 4), build=either, dtypes=EVERY)
        yield sample(SampleOperand((), "bool"), SampleOperand((), "bool"), (2, 3), build=nested, dtypes=("f32",))
        yield sample(SampleOperand((), "bool"), ("n", 4), ("n", 4), build=either, dtypes=("f32",))


class While(WhileRules, op="while"):
    def infer(
        self, inits: list[Shape], *, max_iterations: int | None, regions: Sequence[RegionShapes | None]
    ) -> tuple[Shape, ...]:
        condition, body = present(regions[0], "cond_region"), present(regions[1], "body_region")
        expect_arguments(condition, inits, "cond_region")
        expect_arguments(body, inits, "body_region")
        if condition.results != (Shape((), "bool"),):
            raise ShapeError(f"cond_region must yield one scalar bool, got {shapes_text(condition.results)}")
        if body.results != tuple(inits):
            raise ShapeError(
                f"body_region must yield the carries {shapes_text(inits)}, got {shapes_text(body.results)}"
            )
        return tuple(inits)

    def evaluate(
        self, inits: list[np.ndarray], *, max_iterations: int | None, regions: Sequence[EvaluatedRegion]
    ) -> tuple[np.ndarray, ...]:
        condition, body = regions
        carries, done = list(inits), 0
        while (max_iterations is None or done < max_iterations) and bool(condition(*carries)[0]):
            carries, done = body(*carries), done + 1
        return tuple(carries)

    def flows(self, operands: int, results: int, attributes: Attributes) -> tuple[RegionFlow, ...]:
        carried = carries(operands)
        return RegionFlow(carried, (None,), repeats=True), RegionFlow(carried, carried, repeats=True)

    def build(
        self,
        b: Builder,
        cond: Callable[..., Any],
        body: Callable[..., Any],
        *init: TensorLike,
        max_iterations: int | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """`body(*carries)` returns the next carries, of the same shapes and dtypes, as long as `cond(*carries)` is true.

        The results are the last carries. Both functions may also use tensors from outside.

        Own arguments:
            max_iterations: The largest number of steps, which reverse mode needs; or None.
        """
        carries = [carry_like(b, value) for value in init]
        shapes = [c.shape for c in carries]
        for name, function in (("cond", cond), ("body", body)):
            check_takes(function, len(carries), name)
        regions = [b.region(cond, shapes), b.region(lambda *c: carries_like(b, c, body(*c)), shapes)]
        return unpacked(b.emit("while", (carries,), max_iterations=max_iterations, regions=regions))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        def doubled(b: Builder, x: Tensor) -> object:
            return b.while_(lambda i, x: i < 5, lambda i, x: (i + 2, x + x), 0, x)

        def bounded(b: Builder, x: Tensor, w: Tensor, *, max_iterations: int) -> object:
            step = lambda x: b.tanh(x @ w) + x  # noqa: E731
            return b.while_(lambda x: b.sum(x * x) < 1e3, step, x, max_iterations=max_iterations)

        yield sample([(2, 3)], build=doubled, dtypes=EVERY)
        yield sample([(2, 3), (3, 3)], build=bounded, max_iterations=4, dtypes=("f32",))
        yield sample([(2, 3), (3, 3)], build=bounded, max_iterations=0, dtypes=("f32",))
        yield sample([("n", 3)], build=doubled, dtypes=("f32",))


class Scan(ScanRules, op="scan"):
    def infer(
        self,
        inputs: list[Shape],
        *,
        num_carries: int,
        length: tuple[Dim, ...],
        regions: Sequence[RegionShapes | None],
        **_: object,
    ) -> tuple[Shape, ...]:
        body = present(regions[0], "body_region")
        if num_carries > len(inputs):
            raise ShapeError(f"num_carries = {num_carries} does not fit {len(inputs)} inputs")
        if len(length) != 1:
            raise ShapeError(f"length must be a list of one dimension, got {list(length)}")
        carries, xs = inputs[:num_carries], inputs[num_carries:]
        for i, x in enumerate(xs):
            if not x.rank or x.dims[0] != length[0]:
                raise ShapeError(f"xs {i} must have the leading axis {length[0]}, got {x}")
        expect_arguments(body, [*carries, *(x.with_dims(x.dims[1:]) for x in xs)], "body_region")
        if body.results[:num_carries] != tuple(carries):
            raise ShapeError(
                f"body_region must yield the carries {shapes_text(carries)} first, got {shapes_text(body.results)}"
            )
        return (*carries, *(y.with_dims((length[0], *y.dims)) for y in body.results[num_carries:]))

    def requires(self, inputs: list[Shape], *, length: tuple[Dim, ...], **_: object) -> list[tuple[Dim, str]]:
        return [(length[0], f"the length {length[0]} is negative")]

    def evaluate(
        self, inputs: list[np.ndarray], *, loop: ScanLoop, regions: Sequence[EvaluatedRegion]
    ) -> tuple[np.ndarray, ...]:
        (length,), num_carries = loop.length, loop.num_carries
        assert type(length) is int
        body, xs = regions[0], inputs[num_carries:]
        carries = inputs[:num_carries]
        stacks = [np.zeros((length, *s.static), s.dtype.numpy) for s in body.results[num_carries:]]
        for step in range(length)[:: -1 if loop.reverse else 1]:
            yielded = body(*carries, *(x[step, ...] for x in xs))  # arrays, and no scalars: parts of x
            carries = yielded[:num_carries]
            for stack, value in zip(stacks, yielded[num_carries:], strict=True):
                stack[step] = value
        return (*carries, *stacks)

    def flows(self, operands: int, results: int, attributes: Attributes) -> tuple[RegionFlow, ...]:
        num_carries = attributes["num_carries"]
        rows = tuple(Flow("row", i) for i in range(num_carries, operands))
        stacks = tuple(Flow("row", i) for i in range(num_carries, results))
        carried = carries(num_carries)
        return (RegionFlow((*carried, *rows), (*carried, *stacks), repeats=True),)

    def build(
        self,
        b: Builder,
        body: Callable[..., Any],
        init: TensorLike | Sequence[TensorLike] | None,
        xs: TensorLike | Sequence[TensorLike] | None = None,
        length: Size | None = None,
        reverse: bool = False,
        num_checkpoints: int | None = None,
    ) -> tuple[Any, Any]:
        """`body(carry, x)` returns the next carry and the values to stack, as in JAX.

        `x` is a slice of `xs` along its leading axis. The results are the last carry, then the values stacked on a
        leading axis. `init` and `xs` are a tensor, a tuple or list of tensors, or None; `carry` and `x` have the same
        structure. A body may also take every tensor as its own argument, `body(*carries, *slices)`, and return a flat
        tuple with the carries first. It may use tensors from outside.

        Own arguments:
            xs: The tensors to loop over; or None.
            length: The number of steps, if `xs` is None.
            reverse: Whether the loop runs from the end, for slices and stacked values alike.
            num_checkpoints: The number of carries that the gradient keeps: it computes the others again. None keeps all.
        """
        carries = [carry_like(b, value) for value in flat(init)]
        inputs = [tensor_like(b, value, f32) for value in flat(xs)]
        size = _length(inputs, length)
        for i, x in enumerate(inputs):
            if not x.rank:
                raise ShapeError(f"xs {i} is a scalar; expected the leading axis {size}")
        shapes = [*(c.shape for c in carries), *(x.shape.with_dims(x.shape.dims[1:]) for x in inputs)]
        stacked: object = None

        def step(call: Callable[..., Any], tensors: tuple[Tensor, ...]) -> list[Tensor]:
            nonlocal stacked
            following, stacked = _split(call(tensors[: len(carries)], tensors[len(carries) :]), len(carries))
            return [*carries_like(b, carries, following), *(tensor_like(b, v, f32) for v in flat(stacked))]

        def as_jax(carry_values: Tensors, slices: Tensors) -> object:
            return body(like(init, carry_values), like(xs, slices))

        def by_itself(carry_values: Tensors, slices: Tensors) -> object:
            return body(*carry_values, *slices)

        # A body with two parameters may follow either convention. The first convention that raises no error is used.
        conventions = [as_jax] * _takes(body, 2) + [by_itself] * _takes(body, len(shapes))
        if not conventions:
            check_takes(body, 2, "body")
        region = b.first_region(
            [partial(lambda convention, *t: step(convention, t), convention) for convention in conventions], shapes
        )
        results = b.emit(
            "scan",
            ([*carries, *inputs],),
            num_carries=len(carries),
            length=(size,),
            reverse=reverse,
            num_checkpoints=num_checkpoints,
            regions=[region],
        )
        return like(init, results[: len(carries)]), like(stacked, results[len(carries) :])

    def runs(self, attributes: Attributes) -> Dim:
        return attributes["length"][0]

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        def sums(b: Builder, carry: Tensor, xs: Tensor, *, reverse: bool = False) -> object:
            return b.scan(lambda c, x: (c + x, c * x), carry, xs, reverse=reverse)

        def recurrence(
            b: Builder, h: Tensor, c: Tensor, xs: Tensor, w: Tensor, *, num_checkpoints: int | None = None
        ) -> object:
            def step(carries: tuple[Tensor, Tensor], x: Tensor) -> object:
                h, c = carries
                h = b.tanh(x @ w + h)
                return (h, c + b.sum(h, 1)), (h, b.max(c))

            return b.scan(step, (h, c), xs, num_checkpoints=num_checkpoints)

        def powers(b: Builder, x: Tensor) -> object:
            return b.scan(lambda c, _: (c * 0.5, c), x, length=4)

        yield sample([(2, 3), (5, 2, 3)], build=sums, dtypes=EVERY)
        yield sample([(3,), (4, 3)], build=sums, reverse=True, dtypes=("f32",))
        yield sample([(2, 3), (2,), (4, 2, 3), (3, 3)], build=recurrence, dtypes=("f32", "f16"))
        yield sample([(2, 3), (2,), (4, 2, 3), (3, 3)], build=recurrence, num_checkpoints=2, dtypes=("f32",))
        yield sample([(2,)], build=powers, dtypes=("f32",))
        yield sample([("n", 3), ("t", "n", 3)], build=sums, dtypes=("f32",))


# --- user calls -----------------------------------------------------------------------------------


def flat(values: object) -> list[Any]:
    """Return a list of tensors, from a tensor, a tuple or list of tensors, or None."""
    if values is None:
        return []
    return list(values) if is_sequence(values) else [values]


def like(pattern: object, values: Sequence[Any]) -> Any:
    """Return values in the structure of a pattern: None, one value, or a tuple."""
    if pattern is None:
        return None
    return tuple(values) if is_sequence(pattern) else values[0]


def unpacked(results: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """Return a single result itself, and several results as a tuple."""
    return results[0] if len(results) == 1 else results


def carry_like(b: Builder, value: object) -> Tensor:
    """Return an initial carry as a tensor. A Python number becomes i32, f32, bool or c64."""
    like = bool_ if isinstance(value, bool) else i32 if isinstance(value, int) else f32
    return tensor_like(b, value, like)


def carries_like(b: Builder, carries: Sequence[Tensor], returned: object) -> list[Tensor]:
    """Return the next carries of a body as tensors. Python numbers take the dtype and shape of their carry.

    Raises:
        ShapeError: The body returned a different number of carries.
    """
    values = flat(returned)
    if len(values) != len(carries):
        raise ShapeError(f"the body must return {len(carries)} carries, got {len(values)}")
    result: list[Tensor] = []
    for carry, value in zip(carries, values, strict=True):
        tensor = tensor_like(b, value, carry.dtype)
        constant = not isinstance(value, Tensor) and tensor.shape != carry.shape
        result.append(b.expand(tensor, carry.shape.dims) if constant else tensor)
    return result


def _split(returned: object, count: int) -> tuple[object, object]:
    """Split the values that a body returned into the carries and the values to stack."""
    if is_sequence(returned) and len(returned) == 2 and len(flat(returned[0])) == count:
        return returned[0], returned[1]
    values = flat(returned)
    if len(values) < count or any(is_sequence(v) for v in values):
        raise ShapeError(f"the body of a scan must return the next {count} carries and what is stacked, as a pair")
    return values[:count], tuple(values[count:]) or None


def check_takes(function: object, count: int, name: str) -> None:
    """Check that a user's function can be called with `count` tensors.

    Raises:
        ShapeError: It cannot be called like this, or it is not a function.
    """
    if not callable(function):
        raise ShapeError(f"{name} must be a function of tensors, got {type(function).__name__}")
    if not _takes(function, count):
        raise ShapeError(f"{name} is called with {count} arguments, but is {name}{inspect.signature(function)}")


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function accepts `count` positional arguments."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        pass  # a built-in without a signature
    return True


def _length(inputs: Sequence[Tensor], length: Size | None) -> Dim:
    if length is not None:
        return dim(length)
    if not inputs:
        raise ShapeError("a scan without xs needs a length")
    if not inputs[0].rank:
        raise ShapeError("xs 0 is a scalar; expected a leading axis")
    return inputs[0].shape.dims[0]
