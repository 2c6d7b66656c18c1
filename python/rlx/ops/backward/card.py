"""The base card of gradient ops, derived from the forward card. The list of all gradients is in `backward`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NoReturn

from rlx.dialect.spec import REQUIRED, OpSpec, ValueSpec
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType, f32
from rlx.ir.graph.binding import bind_arguments
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op import registry
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, as_results, moved_bytes
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.backward.samples import samples_of
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error, ShapeError

# Computes the shape of an operand of the forward op from the shapes of the gradient's operands and its attributes.
ShapeOf = Callable[[Mapping[str, Shape], Mapping[str, Any]], Shape]


@dataclass(frozen=True)
class SizesAttribute:
    """An attribute with sizes of a forward operand that the gradient op does not take.

    Attributes:
        canonical: Returns the attribute in canonical form, from a user's value.
        of: Returns the attribute, from the shapes of the forward operands and the forward attributes.
    """

    canonical: Callable[[Any], Any]
    of: Callable[[Mapping[str, Shape], Mapping[str, Any]], Any]


class Backward(Card):
    """The card of a gradient op.

    Operands and attributes are matched by name: an operand or attribute with a name from the forward record has the
    same meaning. The one operand whose name is not in the forward record is the cotangent of the first forward result.

    Attributes:
        forward: The card of the forward op.
        wrt: The operand of the forward op to differentiate with respect to, or one operand for each value of the
            attribute `wrt`.
        rank: The rank that all operands must have, where the forward op also accepts others.
        fixed: Attributes of the forward op that have a fixed value.
        unless: Values of forward attributes for which the formula of the gradient is shorter than this op.
        absent: Operands of the forward op that the gradient does not take, because only their shapes matter.
        sizes: Attributes that the forward op does not have.
    """

    forward: ClassVar[Card]
    wrt: ClassVar[str | Mapping[str, str]]
    rank: ClassVar[int | None]
    fixed: ClassVar[Mapping[str, Any]]
    unless: ClassVar[Mapping[str, Sequence[Any]]]
    absent: ClassVar[Mapping[str, ShapeOf]]
    sizes: ClassVar[Mapping[str, SizesAttribute]]

    # --- the forward op ---------------------------------------------------------------------------

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(o.name for o in self.spec.operands)

    @cached_property
    def forward_names(self) -> tuple[str, ...]:
        """The names of the forward op's operands."""
        return tuple(o.name for o in self.forward.spec.operands)

    @cached_property
    def cotangent(self) -> str:
        """The name of the operand that is a cotangent."""
        return next(name for name in self.names if name not in self.forward_names)

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        """The values of the forward attributes that are not attributes of the gradient."""
        return {a.name: a.default for a in self.forward.spec.attributes if not a.required} | dict(self.fixed)

    @cached_property
    def _shared(self) -> tuple[str, ...]:
        """The names of the attributes that both ops have."""
        forward_attributes = {a.name for a in self.forward.spec.attributes}
        return tuple(a.name for a in self.spec.attributes if a.name in forward_attributes)

    def wrt_of(self, attributes: Mapping[str, Any]) -> str:
        """Return the operand of the forward op that this gradient is taken with respect to."""
        return self.wrt if isinstance(self.wrt, str) else self.wrt[attributes["wrt"]]

    def _by_name(self, operands: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, operands, strict=True))

    def shared(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return all attributes of the forward op."""
        return {**self._defaults, **{name: attributes[name] for name in self._shared if name in attributes}}

    def _shapes(self, known_shapes: Mapping[str, Shape], attributes: Mapping[str, Any]) -> list[Any]:
        """Return the shapes of the forward operands; None for an optional operand that the gradient does not have."""
        for name, shape in known_shapes.items() if self.rank is not None else ():
            if shape.rank != self.rank:
                raise ShapeError(f"'{name}' must have rank {self.rank}, got {shape}")
        return [
            known_shapes[n]
            if n in known_shapes
            else self.absent[n](known_shapes, attributes)
            if n in self.absent
            else None
            for n in self.forward_names
        ]

    def refusal(self, wrt: str, attributes: Mapping[str, Any]) -> str | None:
        """Return the reason why the forward op has no gradient with respect to an operand; None if it has one."""
        return None

    def infer(self, *operands: Any, **attributes: Any) -> Shape:
        by_name = self._by_name(operands)
        shapes, shared = self._shapes(by_name, attributes), self.shared(attributes)
        result = as_results(self.forward.infer(*shapes, **shared))[0]
        dy = by_name[self.cotangent]
        if dy.dims != result.dims or dy.dtype is not result.dtype:
            raise ShapeError(f"'{self.cotangent}' must be {result}, as the result of the forward op, got {dy}")
        wrt = self.wrt_of(attributes)
        refusal = self.refusal(wrt, shared)
        if refusal is not None:
            raise ShapeError(refusal)
        return shapes[self.forward_names.index(wrt)]

    def requires(self, *operands: Any, **attributes: Any) -> Iterable[tuple[Dim, str]]:
        shapes = self._shapes(self._by_name(operands), attributes)
        return self.forward.requires(*shapes, **self.shared(attributes))

    def decompose(self, b: Builder, *operands: Any, **attributes: Any) -> Tensor:
        by_name, shared, wrt = self._by_name(operands), self.shared(attributes), self.wrt_of(attributes)
        shapes = self._shapes({n: t.shape for n, t in by_name.items() if t is not None}, attributes)
        entries = [
            by_name[o.name] if o.name in by_name else None if shape is None else _ShapeOnly(b, o.name, shape)
            for o, shape in zip(self.forward.spec.operands, shapes, strict=True)
        ]
        results = _Results(lambda: as_results(b.emit(self.forward.name, entries, **shared)))
        dy = [by_name[self.cotangent], *[None] * (len(self.forward.spec.results) - 1)]
        index = self.forward_names.index(wrt)
        cotangent = rules.resolved(b, self.forward.vjp(b, entries, results, dy, **shared)[index])
        return rules.or_zeros(b, cotangent, shapes[index])

    def label(self, attributes: Mapping[str, Any]) -> str:
        return f"{attributes['kind']}_backward" if "kind" in attributes else self.name

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        """Return the cost of the forward op if it is linear, else twice that cost, because the forward op is computed again."""
        is_whole = len(operands) == len(self.spec.operands)  # otherwise the optional operands are missing
        names = [o.name for o in self.spec.operands if is_whole or o.arity == "single"]
        shapes, shared = self._shapes(dict(zip(names, operands, strict=True)), attributes), self.shared(attributes)
        forward_results = as_results(self.forward.infer(*shapes, **shared))
        forward = self.forward.cost([s for s in shapes if s is not None], forward_results, shared)
        linear = self.wrt_of(attributes) in self.forward.linear
        return Cost(forward.flops if linear else 2 * forward.flops, moved_bytes(operands, results))

    # --- user calls ---------------------------------------------------------------------------------

    def canonical(self, b: Builder, args: Sequence[Any], kwargs: dict[str, Any], defaults: dict[str, Any]) -> Tensor:
        """Emit the op from a user's arguments. `build` of the forward card makes them canonical."""
        operands, attributes = bind_arguments(b, self, args, kwargs)
        attributes = {**defaults, **attributes}
        for entry in self.spec.attributes:
            if entry.required and entry.name not in attributes:
                raise ShapeError(f"attribute '{entry.name}' is missing")
        for name, sizes in self.sizes.items():
            attributes[name] = sizes.canonical(attributes[name])
        by_name, recorder = self._by_name(operands), _Recorder(b, self.forward.name)
        known_shapes = {
            n: t.shape if isinstance(t, Tensor) else Shape((), f32) for n, t in by_name.items() if t is not None
        }
        call: dict[str, Any] = {}
        for entry, shape in zip(self.forward.spec.operands, self._shapes(known_shapes, attributes), strict=True):
            if entry.name in by_name:
                call[entry.name] = recorder.adopted(by_name[entry.name])
            elif shape is not None:
                call[entry.name] = _ShapeOnly(recorder, entry.name, shape)
        call |= {**self.fixed, **{name: value for name, value in attributes.items() if name in self._shared}}
        self.forward.build(recorder, **call)
        if recorder.made is not None:
            built_operands, built_attributes = recorder.made
            by_name |= {name: t for name, t in zip(self.forward_names, built_operands, strict=True) if name in by_name}
            attributes |= {name: value for name, value in built_attributes.items() if name in self._shared}
        return b.emit(self.name, [recorder.returned(t) for t in by_name.values()], **attributes)

    # --- in reverse mode ------------------------------------------------------------------------------

    def stands_for(self, wrt: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> bool:
        """Return whether this op is the gradient with respect to `wrt` of a forward op with these operands and attributes."""
        by_name = {name: t for name, t in zip(self.forward_names, operands, strict=True) if t is not None}
        for entry in self.spec.operands:
            if entry.name in by_name and by_name[entry.name].dtype.name not in entry.dtypes:
                return False
        return (
            (self.rank is None or by_name[wrt].rank == self.rank)
            and all(attributes[name] == value for name, value in self.fixed.items())
            and not any(attributes[name] in values for name, values in self.unless.items())
            and self.refusal(wrt, attributes) is None
        )

    def emitted(
        self, b: Builder, wrt: str, operands: Sequence[Any], dy: Tensor, attributes: Mapping[str, Any]
    ) -> Tensor:
        """Emit the gradient of a forward op with these operands and attributes, with respect to `wrt`."""
        by_name = dict(zip(self.forward_names, operands, strict=True)) | {self.cotangent: dy}
        shapes = {n: t.shape for n, t in by_name.items() if t is not None}
        extra: dict[str, Any] = {name: sizes.of(shapes, attributes) for name, sizes in self.sizes.items()}
        if not isinstance(self.wrt, str):
            extra["wrt"] = next(case for case, name in self.wrt.items() if name == wrt)
        shared = {a.name: attributes[a.name] for a in self.spec.attributes if a.name not in extra}
        return b.emit(self.name, [by_name[name] for name in self.names], **extra, **shared)

    def samples(self) -> Iterator[OpSample]:
        """Return the samples of the forward op, each with a cotangent."""
        return samples_of(self)


class _ShapeOnly(Tensor):
    """An operand of the forward op that the gradient does not take, because only its shape matters."""

    __slots__ = ("_name", "_shape")

    def __init__(self, builder: Builder, name: str, shape: Shape):
        self.beside = None
        self.builder, self._name, self._shape = builder, name, shape

    @property
    def value(self) -> NoReturn:
        """The value of the tensor, which does not exist.

        Raises:
            Error: Always.
        """
        raise Error(f"the vjp of the forward op reads '{self._name}', which the gradient does not take")

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def dtype(self) -> DType:
        return self._shape.dtype

    @property
    def rank(self) -> int:
        return self._shape.rank


class _Results(Sequence[Tensor]):
    """The results of the forward op, which is emitted when a result is first read."""

    def __init__(self, emit: Callable[[], tuple[Tensor, ...]]):
        self._emit: Callable[[], Any] = cache(emit)

    def __getitem__(self, index: Any) -> Any:
        return self._emit()[index]

    def __len__(self) -> int:
        return len(self._emit())


class _Recorder(Builder):
    """A builder at the insertion point of another.

    It records the operands and attributes of one op instead of emitting it, and emits all other ops.
    """

    def __init__(self, b: Builder, op: str):
        super().__init__(b.insertion_point, b._location)
        self._scopes = b._scopes
        self._b, self._op = b, op
        self.made: tuple[Sequence[Any], dict[str, Any]] | None = None

    def emit(self, name: str, operands: Sequence[Any], /, **attributes: Any) -> Any:
        if name != self._op:
            return super().emit(name, operands, **attributes)
        self.made = operands, attributes
        count = len(registry.SPECS[name].results)
        return None if count == 1 else (None,) * count

    def adopted(self, value: object) -> object:
        """Return a tensor of the other builder as a tensor of this builder."""
        return Tensor(self, value.value) if isinstance(value, Tensor) and value.builder is self._b else value

    def returned(self, value: object) -> object:
        """Return a tensor of this builder as a tensor of the other builder."""
        return Tensor(self._b, value.value) if isinstance(value, Tensor) and value.builder is self else value


def build_like(forward: type[Card], spec: OpSpec) -> Callable[..., Tensor]:
    """Return `build` of a gradient op: arguments in the order of its record, with the defaults of the forward op."""
    forward_parameters = inspect.signature(forward.build).parameters
    defaults = {
        a.name: forward_parameters[a.name].default
        for a in spec.attributes
        if a.name in forward_parameters and forward_parameters[a.name].default is not inspect.Parameter.empty
    }

    def build(self: Backward, b: Builder, *args: Any, **kwargs: Any) -> Tensor:
        return self.canonical(b, args, kwargs, defaults)

    empty, by_name = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    parameters = list(inspect.signature(build).parameters.values())[:2]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for i, entry in enumerate((*spec.operands, *spec.attributes)):
        is_last = all(o.arity != "single" for o in spec.operands[i:])
        default = defaults.get(entry.name, getattr(entry, "default", REQUIRED))
        if i < len(spec.operands):
            default = None if is_last else REQUIRED
        if default is REQUIRED and parameters[-1].default is not empty:
            kind = by_name
        annotation = forward_parameters[entry.name].annotation if entry.name in forward_parameters else "Any"
        if isinstance(entry, ValueSpec) and entry.arity == "single":  # where the forward op may do without it
            annotation = annotation.removesuffix(" | None")
        parameters.append(
            inspect.Parameter(
                entry.name, kind, default=empty if default is REQUIRED else default, annotation=annotation
            )
        )
    build.__signature__ = inspect.Signature(parameters, return_annotation="Tensor")  # type: ignore[attr-defined]
    return build
