"""Shared code of all importers: the table of rules, the list of unsupported ops, limits, and constants as weights."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, TypeVar, cast

import numpy as np

from rlx import mlir
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.location import location_at
from rlx.ir.op.argument_groups import groups_of
from rlx.support.caller import caller_place
from rlx.support.errors import Error, UnsupportedError
from rlx.support.guards import is_iterable
from rlx.support.traces import defined_at
from rlx.weights.weight import Weight

# The largest number of ops in a model. A function counts once per call, because a text of a kilobyte can expand to any
# number.
MOST_OPS = 100_000
# The number of elements of the largest literal. A larger constant becomes a parameter, which compilers can pack and
# share.
LARGEST_LITERAL = 1024
_LISTED = 50
_FIRST = 64  # the number of elements that are compared first, before all elements are compared

Function = TypeVar("Function", bound=Callable[..., Any])


def importer(function: Function) -> Function:
    """Decorate a public import function: its errors name the caller's line besides the location in the model."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Error as problem:
            raise problem.called_at(caller_place()) from problem.__cause__

    return cast("Function", call)


@dataclass(frozen=True)
class Group:
    """A parameter of a rule whose annotation is an `ArgumentGroup`: it takes several operands, or several attributes.

    Attributes:
        name: The name of the parameter.
        kind: The dataclass.
        parameters: The parameter of each field, by the name of the field: an attribute of the same name, or an operand.
        is_optional: Whether the parameter has a default, which it keeps where no field is given.
    """

    name: str
    kind: type
    parameters: Mapping[str, inspect.Parameter]
    is_optional: bool

    @classmethod
    def of(cls, parameter: inspect.Parameter, kind: type[Any]) -> Group:
        """Return the group for a parameter that is annotated with a dataclass."""
        is_optional, parameters = parameter.default is not parameter.empty, {}
        for field in fields(kind):
            is_required = field.default is MISSING and field.default_factory is MISSING and not is_optional
            is_attribute = parameter.kind is parameter.KEYWORD_ONLY
            name = field.name if is_attribute else f"{parameter.name}_{field.name}"
            default = parameter.empty if is_required else None
            parameters[field.name] = inspect.Parameter(name, parameter.kind, default=default)
        return cls(parameter.name, kind, parameters, is_optional)

    def collect(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The argument for the parameter, by its name; empty where the parameter keeps its default.

        Args:
            arguments: The arguments of the op, by the names of the parameters of the fields.

        Raises:
            UnsupportedError: Some fields of an optional group are given, but not all that have no default.
        """
        given = {f: arguments[p.name] for f, p in self.parameters.items() if p.name in arguments}
        if not self.is_optional:
            return {self.name: self.kind(**given)}
        if all(value is None for value in given.values()):
            return {}
        for field in fields(self.kind):
            if field.default is MISSING and field.default_factory is MISSING and given.get(field.name) is None:
                raise UnsupportedError(f"without '{self.parameters[field.name].name}' cannot be imported")
        return {self.name: self.kind(**given)}


@dataclass(frozen=True)
class Rule:
    """The rule that builds one kind of op.

    Attributes:
        build: Takes the graph, the op's operands, and by keyword the attributes that its signature names.
        own: Its signature.
        groups: Its parameters that group several operands or attributes, by their names.
        signature: The signature with the fields of the groups as parameters.
        attributes: The names of the attributes.
        required: The names of those without a default.
    """

    build: Callable[..., Any]
    own: inspect.Signature
    groups: Mapping[str, Group]
    signature: inspect.Signature
    attributes: frozenset[str]
    required: frozenset[str]

    @classmethod
    def of(cls, build: Callable[..., Any]) -> Rule:
        """Return the rule for a function, derived from its signature."""
        own = inspect.signature(build)
        groups = {name: Group.of(own.parameters[name], kind) for name, kind in groups_of(build).items()}
        flat: list[inspect.Parameter] = []
        for name, parameter in own.parameters.items():
            flat += groups[name].parameters.values() if name in groups else [parameter]
        # A field with a default may come before an operand without one: it then has to be given as well.
        operands = [i for i, p in enumerate(flat) if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
        last = max(operands, default=0)
        flat[:last] = [p.replace(default=p.empty) for p in flat[:last]]
        keywords = [p for p in flat if p.kind is p.KEYWORD_ONLY]
        required = frozenset(p.name for p in keywords if p.default is p.empty)
        return cls(build, own, groups, inspect.Signature(flat), frozenset(p.name for p in keywords), required)

    def bind(self, g: Graph, operands: Sequence[Tensor], attributes: Mapping[str, Any]) -> inspect.BoundArguments:
        """The arguments of `build` for an op.

        Raises:
            UnsupportedError: The rule takes another number of operands.
        """
        try:
            bound = self.signature.bind(g, *operands, **attributes)
        except TypeError as problem:
            raise UnsupportedError(f"with {len(operands)} operands cannot be imported: {problem}") from None
        arguments: dict[str, Any] = {}
        for name in self.own.parameters:
            if name in self.groups:
                arguments |= self.groups[name].collect(bound.arguments)
            elif name in bound.arguments:
                arguments[name] = bound.arguments[name]
        return inspect.BoundArguments(self.own, OrderedDict(arguments))


class ImportTable:
    """The rules of a format. An instance is the decorator that registers them: `@imports("add", "sub")`.

    A rule is `rule(g, *operands, **attributes)`. It emits rlx ops into the graph `g` and returns a tensor, or a
    sequence of tensors for an op with several results. An attribute of the op that the rule does not name is an error,
    so that no attribute is ignored by mistake. The importer lists the attributes that do not change the numbers.

    A parameter of a rule may be an `ArgumentGroup`. By keyword its fields are attributes of the op, those with
    defaults optional; by position its fields are operands that follow one another, such as a tensor, its scale and its zero
    point. A positional one with a default keeps it where none of its operands are given.

    Args:
        what: The name of the format, for messages.
    """

    def __init__(self, what: str):
        self.what = what
        self.rules: dict[str, Rule] = {}

    def __call__(self, *ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(build: Callable[..., Any]) -> Callable[..., Any]:
            for op in ops:
                if op in self.rules:
                    raise Error(f"{self.what} has two rules for {op}", hint=defined_at(build))
                self.rules[op] = Rule.of(build)
            return build

        return register

    def check(self, nodes: Iterable[tuple[str, str | None]], reasons: Mapping[str, str] | None = None) -> None:
        """Check that every op has a rule.

        Args:
            nodes: The name and the source location of each op.
            reasons: Why ops have no rule, by name.

        Raises:
            UnsupportedError: Some ops have no rule. The message lists each kind, its count and its first location.
        """
        counts: Counter[str] = Counter()
        first: dict[str, str] = {}
        for name, place in nodes:
            if name not in self.rules:
                counts[name] += 1
                first.setdefault(name, place or "<unknown>")
        if not counts:
            return
        lines = [
            f"  {first[name]}: {name}, {count} in all" + (f": {reasons[name]}" if reasons and name in reasons else "")
            for name, count in counts.most_common(_LISTED)
        ]
        if len(counts) > _LISTED:
            lines.append(f"  and {len(counts) - _LISTED} more kinds")
        kinds = f"{counts.total()} of {len(counts)} kinds" if len(counts) > 1 else f"{counts.total()} of one kind"
        raise UnsupportedError(f"ops that cannot be imported from {self.what}, {kinds}:\n" + "\n".join(lines))

    def build(
        self,
        g: Graph,
        op: str,
        operands: Sequence[Tensor],
        attributes: Mapping[str, Any],
        irrelevant: Collection[str] = (),
        place: str | None = None,
        location: mlir.Location | None = None,
    ) -> list[Tensor]:
        """Build an op and return the tensors for its results.

        Args:
            g: The graph.
            op: The name of the op, which has a rule.
            operands: Tensors of the graph.
            attributes: The op's attributes by name, as Python values.
            irrelevant: Attributes that a rule does not have to name.
            place: The source location of the op for messages, usually `file:line`.
            location: The MLIR location of the ops that are built. If it is omitted, they get `place`.

        Raises:
            Error: The rule does not accept the op in this form. The message names the op and its location.
        """
        rule = self.rules[op]
        try:
            unknown = [name for name in attributes if name not in rule.attributes and name not in irrelevant]
            missing = rule.required - attributes.keys()
            if unknown or missing:
                obstacle = f"with '{unknown[0]}'" if unknown else f"without '{min(missing)}'"
                raise UnsupportedError(f"{obstacle} cannot be imported")
            taken = {n: v for n, v in attributes.items() if n in rule.attributes}
            with _located(g, location, place):
                bound = rule.bind(g, operands, taken)
                built = rule.build(*bound.args, **bound.kwargs)
            return _tensors(rule, built)
        except Error as problem:
            message = f"{op}{': ' if problem.message.startswith('rlx.') else ' '}{problem.message}"
            raise problem.moved(message, location=place or problem.location) from None
        except Exception as problem:
            problem.add_note(f"raised by the rule of {self.what} for {op}, at {place or 'an unknown place'}")
            raise


def _located(g: Graph, location: mlir.Location | None, place: str | None) -> contextlib.AbstractContextManager[None]:
    """Return a context in which new ops get a location. If none is known, they get the location of the caller."""
    if location is None and place is not None:
        location = location_at(place)
    return contextlib.nullcontext() if location is None else g.located(location)


def _tensors(rule: Rule, built: Any) -> list[Tensor]:
    """Return the result of a rule as a list.

    Raises:
        Error: The result is neither a tensor nor a sequence of tensors.
    """
    tensors: list[Any] = [built] if isinstance(built, Tensor) else list(built) if is_iterable(built) else [built]
    if wrong := [type(tensor).__name__ for tensor in tensors if not isinstance(tensor, Tensor)]:
        message = f"has a rule that returns {wrong[0]}; expected a tensor, or a sequence of tensors"
        raise Error(message, hint=defined_at(rule.build))
    return tensors


def constant(
    g: Graph, elements: np.ndarray | Weight, largest_literal: float = LARGEST_LITERAL, trainable: bool = True
) -> Tensor:
    """Return a constant of a model: a literal if it is small or uniform, else a parameter `constant0`, ….

    Args:
        g: The graph, which gets the parameter.
        elements: The elements.
        largest_literal: The largest number of elements of a literal.
        trainable: Whether the parameter is trained by default.
    """
    if isinstance(elements, Weight):
        if math.prod(elements.shape) <= largest_literal:
            return g.constant(elements.numpy())
        stored = elements.stored()
        if is_one_number(stored, elements.dtype.itemsize):
            single = stored[: elements.dtype.itemsize].copy().view(elements.dtype)
            return g.constant(np.broadcast_to(single[0], elements.shape))
        value: Any = replace(elements, name=g.new_name("constant"))
        return g.param(value.name, value.shape, value.dtype, value=value, trainable=trainable)
    if elements.size <= largest_literal or not any(elements.strides):
        return g.constant(elements)
    flat = np.ascontiguousarray(elements.reshape(-1))
    if is_one_number(flat.view(np.uint8), elements.itemsize):
        return g.constant(np.broadcast_to(flat[0], elements.shape))
    value = elements.view()
    value.flags.writeable = False
    return g.param(g.new_name("constant"), value.shape, value.dtype, value=value, trainable=trainable)


def is_one_number(stored: np.ndarray, width: int) -> bool:
    """Return whether all elements have the same bits.

    Args:
        stored: The bytes of one or more elements.
        width: The number of bytes per element.
    """
    few = stored[: _FIRST * width].reshape(-1, width)
    return bool((few == few[0]).all()) and bool((stored.reshape(-1, width) == few[0]).all())
