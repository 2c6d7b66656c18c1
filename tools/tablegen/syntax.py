"""The tree of a TableGen file: values, statements, and the types of fields and parameters."""

from __future__ import annotations

from dataclasses import dataclass

from tools.tablegen.lexer import Place


@dataclass(frozen=True, slots=True)
class Type:
    """`string`, `code`, `int`, `bit`, `dag`, `list<element>`, or the name of a class."""

    place: Place
    name: str
    element: Type | None = None

    def __str__(self) -> str:
        return f"list<{self.element}>" if self.element else self.name


# --- values -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """A string, a code block, a number, `true`, `false`; None is `?`, an unset value."""

    place: Place
    value: str | int | None


@dataclass(frozen=True, slots=True)
class Name:
    """A parameter, a field, a `defvar` or a record."""

    place: Place
    name: str


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[item, …]`."""

    place: Place
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class DagOf:
    """`(operator value:$name, …)`; a name may be empty."""

    place: Place
    operator: Value
    arguments: tuple[tuple[Value, str], ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """`Class<argument, …>`: a record without a name, or a parent."""

    place: Place
    name: str
    arguments: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """`record.field`."""

    place: Place
    record: Value
    field: str


@dataclass(frozen=True, slots=True)
class Element:
    """`list[index]`."""

    place: Place
    items: Value
    index: int


@dataclass(frozen=True, slots=True)
class Paste:
    """`left # right`."""

    place: Place
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Bang:
    """`!operator(argument, …)`."""

    place: Place
    operator: str
    arguments: tuple[Value, ...]


Value = Literal | Name | ListOf | DagOf | Instance | Member | Element | Paste | Bang


# --- statements -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """`type name = value;` in a body, or a parameter of a class with its default. None means that it has no default."""

    place: Place
    type: Type
    name: str
    value: Value | None


@dataclass(frozen=True, slots=True)
class Let:
    """`let name = value;` in a body."""

    place: Place
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Class:
    """`class name<parameter, …> : parent, … { body }`."""

    place: Place
    name: str
    parameters: tuple[Field, ...]
    parents: tuple[Instance, ...]
    body: tuple[Field | Let, ...]


@dataclass(frozen=True, slots=True)
class Def:
    """`def name : parent, … { body }`."""

    place: Place
    name: str
    parents: tuple[Instance, ...]
    body: tuple[Field | Let, ...]


@dataclass(frozen=True, slots=True)
class Defvar:
    """`defvar name = value;`."""

    place: Place
    name: str
    value: Value


Statement = Class | Def | Defvar
