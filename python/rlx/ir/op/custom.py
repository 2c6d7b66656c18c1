"""Ops that a user registers at run time: `class Swish(rlx.CustomOp, name="example.swish")`.

The class is the card. The signature of its method `infer` replaces the record: positional parameters are operands
(optional with the default None, variadic as `*xs`), keyword-only parameters are attributes. In the IR, the op is an
`rlx.custom`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from rlx import mlir
from rlx.dialect.dtypes import dtype_families
from rlx.dialect.spec import REQUIRED, AttributeKind, AttributeSpec, OpSpec, TraitSpec, ValueSpec
from rlx.ir.dtype import DType
from rlx.ir.op import opview, registry
from rlx.ir.op.card import Card, OpSample
from rlx.ir.op.dependencies import values_from_outside
from rlx.support.errors import Error
from rlx.support.guards import is_sequence

_KINDS: dict[str, AttributeKind] = {
    "int": "i64",
    "float": "f64",
    "bool": "bool",
    "str": "str",
    "DType": "dtype",
    "tuple[int, ...]": "i64s",
    "list[int]": "i64s",
    "Sequence[int]": "i64s",
}
_OF_DEFAULT: dict[type, AttributeKind] = {
    bool: "bool",
    int: "i64",
    float: "f64",
    str: "str",
    tuple: "i64s",
    list: "i64s",
    DType: "dtype",
}
# Arguments of `g.custom`, of `Builder.emit` and of rules, which attributes would clash with.
_RESERVED = ("op", "shape", "regions", "b")
_ANY = registry.SPECS["custom"].operands[0].dtypes


class CustomOp(Card):
    """Base of the cards of a user's ops. A subclass registers itself under `name`, which must contain a dot.

    Like every card, it has `infer`, and `evaluate` or `decompose`. An op without `decompose` runs on the back ends with
    a registered lowering (`rlx.targets.linalg.lowers(name)`, `rlx.targets.stablehlo.lowers(name)`). It is differentiated
    and batched by its rules `linear`, `elementwise`, `jvp`, `vjp` and `vmap` (see `rlx.ir.op.card.Card`).

    Attributes:
        dtypes: Names of the dtypes that its operands may have.
        elementwise: Whether each element of the result is a function of one element of each operand, broadcast as in
            NumPy.
        num_results: The number of results.

    A class is not called: `g.custom(Swish, x, beta=1.0)` emits its op.

    Raises:
        Error: The name has no dot or is taken, the signature of `infer` cannot be converted to a record, or `linear`
            names something that is not an operand.
    """

    dtypes: ClassVar[tuple[str, ...]] = _ANY
    elementwise: ClassVar[bool] = False
    num_results: ClassVar[int] = 1

    def __init__(self, *args: object, **kwargs: object):
        if args or kwargs:
            raise self._misuse()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise self._misuse()

    def _misuse(self) -> Error:
        shown = call_of(self.spec, type(self).__name__) if "spec" in vars(type(self)) else "g.custom(…)"
        return Error(f"the class {type(self).__qualname__} is no function of tensors", hint=shown)

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if name is None:
            return
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name):
            raise Error(f"{cls.__qualname__}: the name of a custom op is like 'library.op', not {name!r}")
        if cls.infer is Card.infer:
            raise Error(f"{cls.__qualname__}: a custom op needs 'infer'")
        if cls.evaluate is Card.evaluate and cls.decompose is Card.decompose:
            raise Error(f"{cls.__qualname__}: a custom op needs 'evaluate' or 'decompose'")
        cls.spec = _spec(cls, name)
        _check_linear(cls)
        registry.register_custom(cls(), name)

    def samples(self) -> Iterable[OpSample]:
        return ()


def call_of(spec: OpSpec, op: str) -> str:
    """Return the call that emits a custom op, for hints: `g.custom(Swish, x, beta=1.0)`.

    Args:
        spec: The record.
        op: The class or the quoted name.
    """
    stars = {"variadic": "*", "single": "", "optional": ""}
    operands = [f"{stars[o.arity]}{o.name}{'=None' if o.arity == 'optional' else ''}" for o in spec.operands]
    attributes = [f"{a.name}={'…' if a.required else repr(a.default)}" for a in spec.attributes]
    return f"g.custom({', '.join([op, *operands, *attributes])})"


def calls_named(name: str) -> list[str]:
    """Return the calls of registered custom ops whose name, or a part of it, is `name`."""
    specs = [card.spec for card in registry.load().values() if card.spec.custom]
    return [call_of(spec, repr(spec.name)) for spec in specs if name in (spec.name, *spec.name.split("."))]


def _spec(cls: type[CustomOp], name: str) -> OpSpec:
    summary, _, description = (inspect.getdoc(cls) or name).partition("\n")
    operands: list[ValueSpec] = []
    attributes: list[AttributeSpec] = []
    for parameter in list(inspect.signature(cls.infer).parameters.values())[1:]:
        if parameter.name in _RESERVED:
            raise Error(f"{cls.__qualname__}.infer: '{parameter.name}' is an argument of g.custom", hint="rename it")
        if parameter.kind is parameter.KEYWORD_ONLY:
            attributes.append(_attribute(cls, parameter))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            operands.append(ValueSpec(parameter.name, cls.dtypes, "variadic"))
        elif parameter.kind is parameter.VAR_KEYWORD:
            raise Error(f"{cls.__qualname__}.infer: name the attributes instead of taking **{parameter.name}")
        else:
            optional = parameter.default is None
            operands.append(ValueSpec(parameter.name, cls.dtypes, "optional" if optional else "single"))
    if sum(o.arity != "single" for o in operands) > 1:
        raise Error(f"{cls.__qualname__}.infer: a custom op may have one optional or variadic operand")
    if isinstance(cls.dtypes, str) or not set(cls.dtypes) <= set(_ANY):
        raise Error(f"{cls.__qualname__}: dtypes must be a tuple of {dtype_families(_ANY)}; got {cls.dtypes!r}")
    results = tuple(ValueSpec(f"result{i}", _ANY) for i in range(cls.num_results))
    defined_at = f"{cls.__module__}.{cls.__qualname__}"
    return OpSpec(
        name, "custom", "mir", summary.rstrip("."), description.strip(), tuple(operands), tuple(attributes), results,
        traits=(TraitSpec("elementwise"),) if cls.elementwise else (), defined_at=defined_at, custom=True,
    )  # fmt: skip


def _check_linear(cls: type[CustomOp]) -> None:
    names = [operand.name for operand in cls.spec.operands]
    groups: Any = cls.linear
    if not is_sequence(groups) or not all(isinstance(group, str) for group in groups):
        raise Error(f"{cls.__qualname__}: linear must be a tuple of names of operands, got {groups!r}")
    for name in (name for group in groups for name in group.split()):
        if name not in names:
            raise Error(f"{cls.__qualname__}: linear names '{name}', which is no operand; they are {', '.join(names)}")
    if groups and cls.num_results != 1:
        raise Error(f"{cls.__qualname__}: linear is for ops with one result", hint="write a jvp")


def _attribute(cls: type[CustomOp], parameter: inspect.Parameter) -> AttributeSpec:
    annotation = parameter.annotation if isinstance(parameter.annotation, str) else ""
    if inspect.isclass(parameter.annotation) and parameter.annotation is not parameter.empty:
        annotation = parameter.annotation.__name__
    kind = _KINDS.get(annotation.removesuffix(" | None").rpartition("rlx.")[2]) or _OF_DEFAULT.get(
        parameter.default.__class__
    )
    if kind is None:
        known = ", ".join(_KINDS)
        raise Error(f"{cls.__qualname__}.infer: attribute '{parameter.name}' needs one of the annotations {known}")
    required = parameter.default is parameter.empty
    return AttributeSpec(parameter.name, kind, REQUIRED if required else parameter.default)


def sources(module: mlir.Module, rules: Mapping[str, Any]) -> list[str] | None:
    """Return the source code of every custom op in a module and of its lowering, on which a compiled program depends.

    Args:
        module: A module of rlx ops.
        rules: Lowering rules by op name.

    Returns:
        The texts, and the values that the code reads from outside. None if some source code is not available (an op defined
        at a prompt), or if changes of a value cannot be seen. Then nothing may be cached.
    """
    names: set[str] = set()
    for operation in opview.operations(module.body):
        if operation.name == opview.CUSTOM:
            names.add(opview.name_of(operation))
    texts: list[str] = []
    values: list[str | None] = []
    try:
        for name in sorted(names):
            defined = [type(registry.card(name)), *([rules[name]] if name in rules else [])]
            texts += map(inspect.getsource, defined)
            values += map(values_from_outside, defined)
    except (OSError, TypeError):
        return None
    return None if None in values else [*texts, *filter(None, values)]
