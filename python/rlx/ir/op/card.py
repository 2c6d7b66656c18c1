"""`Card`: all information about an op that is not in its TableGen record, in one class.

A card infers result shapes and evaluates the op on NumPy arrays (this *is* the op's meaning). The card of a composite
op also decomposes it into other ops. Missing methods are derived: an op without `evaluate` is evaluated through its
decomposition.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType
from rlx.ir.dtype import dtype as dtype_of
from rlx.ir.op.argument_groups import takes_flat
from rlx.ir.op.dataflow import RegionFlow, wholes
from rlx.ir.shape import DimLike, Shape
from rlx.parts import EVALUATOR
from rlx.support.guards import is_list, is_tuple

if TYPE_CHECKING:
    from rlx.dialect.spec import OpSpec
    from rlx.ir.graph.builder import Builder, Tensor

Inferred = Shape | tuple[Shape, ...]
# The attributes of an op by name: numbers, strings, dtypes and tuples of sizes, each of the kind that the record declares.
Attributes: TypeAlias = dict[str, Any]
Shapes: TypeAlias = Sequence[Shape]
# One entry for each operand of the record: a value, None for an absent optional operand, or a list for a variadic one.
Groups: TypeAlias = Sequence[Any]


@dataclass(frozen=True)
class Cost:
    """Work of one op: floating-point (or integer) operations, and bytes read and written, each counted once."""

    flops: Dim
    bytes: Dim


@dataclass(frozen=True)
class SampleOperand:
    """One operand of a sample: its dimensions, and the distribution of its values.

    Args:
        dims: Sizes; the test harness binds symbols to several sizes.
        dtype: A fixed dtype; None means the dtype of the test case, and `"part"` the dtype of its real and imaginary
            parts.
        low: The smallest value drawn.
        high: The largest value drawn (exclusive for integers).
        distinct: Draw distinct values, for ops whose result is discontinuous at equal values.
        diagonal: Added to the diagonal of the matrices of the last two axes, to make them definite.
        ascending: Sort the values, for offsets.
    """

    dims: tuple[DimLike, ...]
    dtype: object = None
    low: float = -2.0
    high: float = 2.0
    distinct: bool = False
    diagonal: float = 0.0
    ascending: bool = False

    def dtype_in(self, case: object) -> DType:
        """Return the dtype of the operand in a test case of a dtype."""
        if self.dtype == "part":
            return dtype_of(case).part
        return dtype_of(case if self.dtype is None else self.dtype)


@dataclass(frozen=True)
class OpSample:
    """One use of an op: operands (None for an absent optional operand, a list for a variadic one) and attributes.

    Args:
        operands: In the order of the record.
        attributes: By name; absent ones take their defaults.
        dtypes: Names of the dtypes to try; None tries all that the first operand accepts.
        tolerance: A factor on the tolerance of the test harness, for ops that cannot be exact.
        build: For an op with regions, a function that emits it, called with a builder, each operand, and the
            attributes.
    """

    operands: tuple[SampleOperand | list[SampleOperand] | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    dtypes: tuple[str, ...] | None = None
    tolerance: float = 1.0
    build: Callable[..., Any] | None = None


def sample(
    *operands: Any,
    dtypes: Sequence[str] | None = None,
    tolerance: float = 1.0,
    build: Callable[..., Any] | None = None,
    **attributes: Any,
) -> OpSample:
    """Return a `OpSample`. Operands may be passed as plain tuples of dimensions."""

    def operand(value: Any) -> Any:
        if value is None or isinstance(value, SampleOperand):
            return value
        if is_list(value):
            return [operand(v) for v in value]
        return SampleOperand(tuple(value))

    names = None if dtypes is None else tuple(dtypes)
    return OpSample(tuple(map(operand, operands)), attributes, names, tolerance, build)


# The methods of a card that take an op's operands or attributes as separate parameters.
_RULES = frozenset(
    ("infer", "requires", "evaluate", "decompose", "jvp", "vjp", "vmap", "pushforward", "pullback", "reversible")
)


class Card:
    """Base of all op cards. Subclass it with the op's name: `class Softmax(Card, op="softmax")`.

    A card must define `infer`, and either `evaluate` or `decompose`. Operands are passed in the order of the record, an
    absent optional operand as None and a variadic one as a list. All attributes are passed by name. A rule may take
    several of them as one object: see `rlx.ir.op.argument_groups`.
    """

    spec: ClassVar[OpSpec]
    # The named tuple of the results, for an op whose results have names in other libraries.
    named: ClassVar[type[Any] | None] = None
    # Whether dimension attributes may be negative, because they are positions or offsets rather than sizes.
    signed_sizes: ClassVar[bool] = False
    # Whether the op computes its region element by element, in one loop, so that values in the region have no memory.
    one_loop: ClassVar[bool] = False

    def __init_subclass__(cls, op: str | None = None, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        for name in _RULES & vars(cls).keys():
            if inspect.isfunction(rule := vars(cls)[name]):
                setattr(cls, name, takes_flat(rule))
        if op is not None:
            from rlx.ir.op import registry

            registry.register(cls, op)

    @property
    def name(self) -> str:
        """The op's name without the `rlx.` prefix."""
        return self.spec.name

    def infer(self, *operands: Any, **attributes: Any) -> Inferred:
        """Infer result shapes from operand shapes.

        Raises:
            ShapeError: The operands or attributes do not fit together; the message names the expected form.
        """
        raise NotImplementedError(f"rlx.{self.name} has no inference")

    def check_regions(self, op: mlir.Operation) -> None:
        """Check the ops inside the regions of an MLIR op. `infer` checks the shapes that regions take and yield.

        Raises:
            ShapeError: An op is not allowed there.
        """

    def requires(self, *operands: Any, **attributes: Any) -> Iterable[tuple[Dim, str]]:
        """Yield symbolic expressions that must not be negative, each with an error message.

        `infer` has already rejected errors that hold for all sizes. The sizes of results need not be listed.
        """
        return ()

    def evaluate(self, *operands: Any, **attributes: Any) -> Any:
        """Evaluate the op on NumPy arrays. Returns one array, or a tuple for several results."""
        return importlib.import_module(EVALUATOR).evaluate_decomposition(self, operands, attributes)

    def decompose(self, b: Builder, *operands: Any, **attributes: Any) -> Any:
        """Compute the same value with other ops. Returns a tensor, or a tuple for several results."""
        raise NotImplementedError(f"rlx.{self.name} is a primitive: it has no decomposition")

    def build(self, b: Builder, /, *args: Any, **kwargs: Any) -> Any:
        """Emit the op for a call `Graph.<op>(…)`: convert the user's arguments to operands and canonical attributes.

        The default takes operands by position (or name) and attributes by keyword.
        """
        return b.emit_bound(self, args, kwargs)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        """Return the work of the op.

        By default this is one operation per element of the results; for a composite op, it is the work of the
        decomposition (`opview.cost_of`).
        """
        flops: Dim = 0
        for result in results:
            flops = flops + result.num_elements
        return Cost(flops, moved_bytes(operands, results))

    def label(self, attributes: Mapping[str, Any]) -> str:
        """Return the name of the op in listings: its own name, or its kind, such as `add` for a `binary` of kind `add`."""
        return str(attributes.get("kind", self.name))

    def runs(self, attributes: Attributes) -> Dim:
        """Return how often the op runs each of its regions; 1 if unknown."""
        return 1

    # --- byte layout, for memory plans ---------------------------------------------------------

    def aliases(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Sequence[tuple[int, int] | None]:
        """Return for each result an (operand, offset) pair, if the result is a contiguous range of the operand, else None.

        The offset is the first element of the range. The elements keep their order. All shapes are static.
        """
        return [(0, 0) if self.spec.has_trait("view", attributes) else None] * len(results)

    def parts(self, operands: Shapes, attributes: Attributes) -> Sequence[int | None]:
        """Return for each operand its offset in the result, if it is a contiguous range of the result, else None.

        These operands may be computed in the memory of the result. All shapes are static.
        """
        return [None] * len(operands)

    def flows(self, operands: int, results: int, attributes: Attributes) -> tuple[RegionFlow | None, ...]:
        """Return for each region of the op how values flow in and out; None for a region that does not run.

        Args:
            operands: The number of operands.
            results: The number of results.
            attributes: All attributes by name.
        """
        body = RegionFlow(wholes(operands), wholes(results), repeats=False)
        return (body, *[None] * (len(self.spec.regions) - 1))

    def samples(self) -> Iterable[OpSample]:
        """Yield typical and extreme uses, from which the conformance harness generates its cases."""
        raise NotImplementedError(f"rlx.{self.name} has no samples")

    # --- transform rules; missing ones are derived -----------------------------------------------

    # A card's own rule lists the attributes of its op by name. Type checkers allow this only for `*_, **attributes`.

    # The operands in which the op is linear if the others are constant. Several names in one string, "on_true
    # on_false", mean that it is jointly linear in them. The tangent of the result is the op applied to tangents.
    linear: ClassVar[tuple[str, ...]] = ()

    def jvp(
        self, b: Builder, operands: Groups, tangents: Groups, results: Sequence[Tensor], *_: Any, **attributes: Any
    ) -> Tensor | Sequence[Tensor | None] | None:
        """Return the tangents of the results.

        Args:
            b: The builder to emit with.
            operands: In the groups of the record.
            tangents: The same groups; None where a tangent is zero or does not exist (integers).
            results: The results of the op, flat.
            attributes: All attributes by name.

        Returns:
            A tangent, or a tuple with one for each result; None is zero. (For a user's op, zero is `(None,)`,
            so that a rule without a `return` is an error.)
        """
        raise NotImplementedError(f"rlx.{self.name} has no jvp")

    def vjp(
        self,
        b: Builder,
        operands: Groups,
        results: Sequence[Tensor],
        cotangents: Sequence[Tensor | None],
        *_: Any,
        **attributes: Any,
    ) -> Sequence[Any]:
        """Return the cotangents of the operands: the adjoint of the jvp, for the inner product `Re(sum(conj(a)·b))`.

        Args:
            b: The builder to emit with.
            operands: In the groups of the record. For an operand in which the op is linear, use only the shape.
            results: The results of the op, flat.
            cotangents: One for each result; None where it is zero. At least one is not zero.
            attributes: All attributes by name.

        Returns:
            A sequence of cotangents in the groups of the record: a tensor, None for zero, a `rules.Range`, or a function
            without arguments that returns one of these and is called only if the cotangent is needed.
        """
        raise NotImplementedError(f"rlx.{self.name} has no vjp")

    def pushforward(
        self, b: Builder, operands: Groups, tangents: Groups, *_: Any, regions: Sequence[Any], **attributes: Any
    ) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
        """Return results and their tangents, for an op with regions. Replaces `jvp`.

        `regions` are objects of `transforms.forward.Body`.
        """
        raise NotImplementedError(f"rlx.{self.name} has no pushforward")

    def pullback(
        self, b: Builder, operands: Groups, wanted: Groups, *_: Any, regions: Sequence[Any], **attributes: Any
    ) -> tuple[Sequence[Tensor], Callable[..., Sequence[Any]]]:
        """Return the results and a function that maps cotangents, for an op with regions. Replaces `vjp`.

        The function maps the cotangents of the results to the cotangents of the operands (flat) and of the values that
        the regions use from outside. `regions` are objects of `transforms.reverse.Body`.
        """
        raise NotImplementedError(f"rlx.{self.name} has no pullback")

    def reversible(self, b: Builder, *operands: Any, regions: Sequence[Any], **attributes: Any) -> Any:
        """Compute the same value with ops that reverse mode can differentiate, for an op with regions.

        The results are returned as by `decompose`.
        """
        return NotImplemented

    def has_derivative(self, *_: Any, **attributes: Any) -> bool:
        """Whether the op is differentiable for the given attributes. Otherwise its results are treated as constants."""
        return True

    def is_replaced(self, *_: Any, **attributes: Any) -> bool:
        """Whether, for the given attributes, reverse mode replaces the op by the result of `reversible` or uses `pullback`."""
        return True

    def vmap(
        self, b: Builder, operands: Groups, batched: Groups, *_: Any, size: Dim, **attributes: Any
    ) -> Tensor | Sequence[Tensor]:
        """Apply the op to a batch.

        Args:
            b: The builder to emit with.
            operands: In the groups of the record. A batched operand has the batch as its first axis.
            batched: In the same groups, whether each operand is batched. At least one is.
            size: The size of the batch.
            attributes: By name, as they are without a batch. An op with regions gets `regions=` as well.

        Returns:
            The result, or a tuple of results, each with the batch as its first axis. NotImplemented, returned before
            anything is emitted, means that the op does not support these operands with a batch; its decomposition is
            batched instead.
        """
        raise NotImplementedError(f"rlx.{self.name} has no vmap")

    def has(self, rule: str) -> bool:
        """Whether the op has its own rule: `card.has("vjp")`."""
        return getattr(type(self), rule) is not getattr(Card, rule)

    @property
    def has_cost(self) -> bool:
        """Whether the card defines the cost."""
        return type(self).cost is not Card.cost

    @property
    def composite(self) -> bool:
        """Whether the op has a decomposition."""
        return type(self).decompose is not Card.decompose

    @property
    def has_evaluator(self) -> bool:
        """Whether the op has its own evaluator, and not only that of its decomposition."""
        return type(self).evaluate is not Card.evaluate


def moved_bytes(operands: Shapes, results: Shapes) -> Dim:
    """Return the bytes of all operands and results, each counted once."""
    total: Dim = 0
    for shape in (*operands, *results):
        total = total + shape.size_bytes
    return total


def as_results(value: Any) -> tuple[Any, ...]:
    """Return a result, or a tuple of results, as a tuple."""
    return value if is_tuple(value) else (value,)


def wide(dtype: Any) -> np.dtype:
    """Return the accumulation dtype of a reduction: f32 for f16 and bf16, otherwise the dtype itself."""
    return dtype_of(dtype).compute.numpy
