"""`Card`: all information about an op that is not in its TableGen record, in one class.

A card infers result shapes, evaluates on NumPy arrays (this *is* the op's meaning), and, for a composite op, decomposes
into other ops. A method that a card does not have is derived: an op without `evaluate` is evaluated by its decomposition.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

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
    from rlx.ir.graph.builder import Builder

Inferred = Shape | tuple[Shape, ...]


@dataclass(frozen=True)
class Cost:
    """Work of one op: floating-point (or integer) operations, and bytes read and written once each."""

    flops: Dim
    bytes: Dim


@dataclass(frozen=True)
class SampleOperand:
    """One operand of a sample: its dimensions, and how values are drawn.

    Args:
        dims: Sizes; the test harness binds symbols to several sizes.
        dtype: A fixed dtype; None means the dtype of the test case, and `"part"` that of its real and imaginary parts.
        low: The least value that is drawn.
        high: The greatest value that is drawn (for integers it is excluded).
        distinct: Draw no value twice, for ops whose result is not continuous where values are equal.
        diagonal: What is added to the diagonal of the matrices of the last two axes, which makes them definite.
    """

    dims: tuple[DimLike, ...]
    dtype: object = None
    low: float = -2.0
    high: float = 2.0
    distinct: bool = False
    diagonal: float = 0.0

    def dtype_in(self, case: object) -> DType:
        """The dtype of the operand in a test case of a dtype."""
        if self.dtype == "part":
            return dtype_of(case).part
        return dtype_of(case if self.dtype is None else self.dtype)


@dataclass(frozen=True)
class OpSample:
    """One way to use an op: operands (None for an absent optional one, a list for a variadic one) and attributes.

    Args:
        operands: In the order of the record.
        attributes: By name; absent ones take their defaults.
        dtypes: Names of the dtypes to try; None tries all that the first operand takes.
        tolerance: A factor on the tolerance of the test harness, for ops that cannot be exact.
        build: For an op with regions: a function that emits it, of a builder, the operands one by one, and the attributes.
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
    """A `OpSample`; an operand may be given as a plain tuple of dimensions."""

    def operand(value: Any) -> Any:
        if value is None or isinstance(value, SampleOperand):
            return value
        if is_list(value):
            return [operand(v) for v in value]
        return SampleOperand(tuple(value))

    names = None if dtypes is None else tuple(dtypes)
    return OpSample(tuple(map(operand, operands)), attributes, names, tolerance, build)


# The methods that take an op's operands or attributes one by one.
_RULES = frozenset(
    ("infer", "requires", "evaluate", "decompose", "jvp", "vjp", "vmap", "pushforward", "pullback", "reversible")
)


class Card:
    """Base of all op cards. Subclass it with the op's name: `class Softmax(Card, op="softmax")`.

    `infer` is required, and one of `evaluate` and `decompose`. Operands arrive in the order of the record, an absent
    optional one as None and a variadic one as a list; attributes by name, all of them. A rule may take some of them as one
    object: see `rlx.ir.op.argument_groups`.
    """

    spec: ClassVar[OpSpec]
    # The named tuple of the results, for an op whose results other libraries give by name.
    named: ClassVar[type[Any] | None] = None
    # Whether the attributes that are dimensions may be negative: positions or offsets, and not sizes.
    signed_sizes: ClassVar[bool] = False

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
        """Result shapes from operand shapes.

        Raises:
            ShapeError: The operands or attributes do not fit together; the message says what was expected.
        """
        raise NotImplementedError(f"rlx.{self.name} has no inference")

    def check_regions(self, op: mlir.Operation) -> None:
        """Check the ops inside of the regions of an MLIR op; the shapes that regions take and yield are checked by `infer`.

        Raises:
            ShapeError: An op is not allowed there.
        """

    def requires(self, *operands: Any, **attributes: Any) -> Iterable[tuple[Dim, str]]:
        """Expressions in symbols that must not be negative, each with a message for the case that it is.

        `infer` has refused what is wrong for all sizes. The sizes of results need not be listed.
        """
        return ()

    def evaluate(self, *operands: Any, **attributes: Any) -> Any:
        """The op on NumPy arrays: one array, or a tuple for several results."""
        return importlib.import_module(EVALUATOR).evaluate_decomposition(self, operands, attributes)

    def decompose(self, b: Builder, *operands: Any, **attributes: Any) -> Any:
        """The same value computed by other ops: a tensor, or a tuple for several results."""
        raise NotImplementedError(f"rlx.{self.name} is a primitive: it has no decomposition")

    def build(self, b: Builder, *args: Any, **kwargs: Any) -> Any:
        """Emit the op for a call `Graph.<op>(…)`: turn the arguments of the user into operands and canonical attributes.

        The default takes operands by position (or name) and attributes by keyword.
        """
        return b.emit_bound(self, args, kwargs)

    def cost(self, operands: Sequence[Shape], results: Sequence[Shape], attributes: dict[str, Any]) -> Cost:
        """Work of the op; by default one operation for each element of the results, and for a composite op that of its
        decomposition (`opview.cost_of`).
        """
        flops: Dim = 0
        for result in results:
            flops = flops + result.num_elements
        return Cost(flops, moved_bytes(operands, results))

    def label(self, attributes: Mapping[str, Any]) -> str:
        """The name of the op in listings: its own, or that of its kind, `add` for a `binary` of kind `add`."""
        return str(attributes.get("kind", self.name))

    def runs(self, attributes: dict[str, Any]) -> Dim:
        """How often the op runs each of its regions; 1 if that is not known."""
        return 1

    # --- where bytes are: for plans of memory ---------------------------------------------------------

    def aliases(
        self, operands: Sequence[Shape], results: Sequence[Shape], attributes: dict[str, Any]
    ) -> Sequence[tuple[int, int] | None]:
        """For each result the operand in which its elements lie side by side, in order, and the first of these; None where
        they do not, whatever its operands. All shapes are static.
        """
        return [(0, 0) if self.spec.has_trait("view", attributes) else None] * len(results)

    def parts(self, operands: Sequence[Shape], attributes: dict[str, Any]) -> Sequence[int | None]:
        """For each operand the element of the result from which on all its elements lie there side by side, None where they
        do not: operands that may be computed in the place of the result. All shapes are static.
        """
        return [None] * len(operands)

    def flows(self, operands: int, results: int, attributes: dict[str, Any]) -> tuple[RegionFlow | None, ...]:
        """For an op with regions: how values go into each and out of it; None for a region that does not run.

        Args:
            operands: Their number.
            results: Their number.
            attributes: By name, all of them.
        """
        body = RegionFlow(wholes(operands), wholes(results), repeats=False)
        return (body, *[None] * (len(self.spec.regions) - 1))

    def samples(self) -> Iterable[OpSample]:
        """Typical and extreme uses, from which the conformance harness makes its cases."""
        raise NotImplementedError(f"rlx.{self.name} has no samples")

    # --- rules of the transforms: what is missing is derived -----------------------------------------

    # The operands in which the op is linear while the others are constant. Several names in one string, "on_true on_false",
    # mean that it is linear in these operands together. The tangent of the result is then the op applied to tangents.
    linear: ClassVar[tuple[str, ...]] = ()

    def jvp(self, b: Builder, operands: Any, tangents: Any, results: Sequence[Any], **attributes: Any) -> Any:
        """Tangents of the results.

        Args:
            b: The builder to emit with.
            operands: In the groups of the record.
            tangents: The same groups; None where a tangent is zero or there is none (integers).
            results: The results of the op, flat.
            attributes: By name, all of them.

        Returns:
            A tangent, or a tuple with one for each result; None is zero. (For an op of a user, zero is `(None,)`, so that a
            rule without a `return` is an error.)
        """
        raise NotImplementedError(f"rlx.{self.name} has no jvp")

    def vjp(
        self, b: Builder, operands: Any, results: Sequence[Any], cotangents: Sequence[Any], **attributes: Any
    ) -> Any:
        """Cotangents of the operands: the adjoint of the jvp, for the inner product `Re(sum(conj(a)·b))`.

        Args:
            b: The builder to emit with.
            operands: In the groups of the record. Of an operand in which the op is linear, use only the shape.
            results: The results of the op, flat.
            cotangents: One for each result; None where it is zero. At least one is not zero.
            attributes: By name, all of them.

        Returns:
            A sequence of cotangents in the groups of the record: a tensor, None for zero, a `rules.Range`, or a function
            without arguments that returns one of these and is called only if that cotangent is needed.
        """
        raise NotImplementedError(f"rlx.{self.name} has no vjp")

    def pushforward(self, b: Builder, operands: Any, tangents: Any, *, regions: Any, **attributes: Any) -> Any:
        """For an op with regions, instead of `jvp`: results and their tangents. `regions` are `transforms.forward.Body`s."""
        raise NotImplementedError(f"rlx.{self.name} has no pushforward")

    def pullback(self, b: Builder, operands: Any, wanted: Any, *, regions: Any, **attributes: Any) -> Any:
        """For an op with regions, instead of `vjp`: the results, and a function from their cotangents to the cotangents of the
        operands (flat) and of the values that the regions use from outside. `regions` are `transforms.reverse.Body`s.
        """
        raise NotImplementedError(f"rlx.{self.name} has no pullback")

    def reversible(self, b: Builder, *operands: Any, regions: Any, **attributes: Any) -> Any:
        """For an op with regions: the same value computed by ops that reverse mode can differentiate, returned as by
        `decompose`.
        """
        return NotImplemented

    def has_derivative(self, **attributes: Any) -> bool:
        """Whether, with some attributes, a derivative goes through the op; else what it gives counts as a constant."""
        return True

    def is_replaced(self, **attributes: Any) -> bool:
        """Whether, with some attributes, reverse mode replaces the op by what `reversible` gives, or uses `pullback`."""
        return True

    def vmap(self, b: Builder, operands: Any, batched: Any, *, size: Dim, **attributes: Any) -> Any:
        """The op on a batch.

        Args:
            b: The builder to emit with.
            operands: In the groups of the record. A batched operand has the batch as its first axis.
            batched: In the same groups, whether each operand is batched. At least one is.
            size: The size of the batch.
            attributes: By name, as they are without a batch. An op with regions gets `regions=` as well.

        Returns:
            The result, or a tuple of results, each with the batch as its first axis. Or NotImplemented, before anything is
            emitted, where the op cannot take these operands with a batch: then its decomposition is batched instead.
        """
        raise NotImplementedError(f"rlx.{self.name} has no vmap")

    def has(self, rule: str) -> bool:
        """Whether the op has a rule of its own: `card.has("vjp")`."""
        return getattr(type(self), rule) is not getattr(Card, rule)

    @property
    def has_cost(self) -> bool:
        """Whether the op says its work itself."""
        return type(self).cost is not Card.cost

    @property
    def composite(self) -> bool:
        """Whether the op has a decomposition."""
        return type(self).decompose is not Card.decompose

    @property
    def has_evaluator(self) -> bool:
        """Whether the op has an evaluator of its own, and not only that of its decomposition."""
        return type(self).evaluate is not Card.evaluate


def moved_bytes(operands: Sequence[Shape], results: Sequence[Shape]) -> Dim:
    """Bytes of all operands and results, each once."""
    total: Dim = 0
    for shape in (*operands, *results):
        total = total + shape.size_bytes
    return total


def as_results(value: Any) -> tuple[Any, ...]:
    """A result or a tuple of results, as a tuple."""
    return value if is_tuple(value) else (value,)


def wide(dtype: Any) -> np.dtype:
    """The dtype in which a reduction accumulates: f32 for f16 and bf16, itself otherwise."""
    return dtype_of(dtype).compute.numpy
