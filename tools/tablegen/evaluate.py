"""Evaluation of the tree of a TableGen file to records.

A field's value is computed after its record is complete, because it may use other fields, which a later `let` may
change. Parameters are computed when a class is used.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlx.support.errors import ParseError
from tools.tablegen import syntax
from tools.tablegen.lexer import Place, refuse
from tools.tablegen.parser import parse
from tools.tablegen.records import Dag, Record, Records, Value


def read(root: Path, include_dirs: Sequence[Path], base: Path) -> Records:
    """Return the records of a TableGen file and of its included files.

    Args:
        root: The file.
        include_dirs: The folders to search for included files, in this order.
        base: The folder that paths in messages and records are relative to.

    Raises:
        ParseError: A file is missing or wrong, or uses unsupported syntax; the location is `file:line:column`.
    """
    evaluator = Evaluator()
    for statement in parse(root, include_dirs, base):
        evaluator.run(statement)
    return Records(evaluator.records)


@dataclass
class _Draft:
    """A record under construction: its fields as written, each with its visible names, and the fields computed so far."""

    record: Record
    fields: dict[str, tuple[syntax.Type, syntax.Value, Scope]] = field(default_factory=dict)
    computing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Scope:
    """The meaning of local names: parameters of a class and, in a body, the fields of the record."""

    parameters: dict[str, Value]
    draft: _Draft | None = None


GLOBAL = Scope({})


class Evaluator:
    """Runs statements, one after the other."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self._classes: dict[str, syntax.Class] = {}
        self._variables: dict[str, tuple[Value, Place]] = {}
        self._places: dict[str, Place] = {}
        self._anonymous_count = itertools.count()

    def run(self, statement: syntax.Statement) -> None:
        """Add a class, a record or a variable.

        Raises:
            ParseError: It is wrong; then nothing is added.
        """
        if isinstance(statement, syntax.Class):
            self._declare(statement.name, statement.place, self._classes, "class")
            for parent in statement.parents:
                self._class_at(parent.place, parent.name)
            self._classes[statement.name] = statement
        elif isinstance(statement, syntax.Defvar):
            self._declare(statement.name, statement.place, self._variables, "variable")
            self._variables[statement.name] = (self.value(statement.value, GLOBAL), statement.place)
        else:
            self._declare(statement.name, statement.place, self.records, "record")
            draft = _Draft(Record(statement.name, statement.place.path, statement.place.line))
            self._inherit(draft, statement.parents, GLOBAL)
            self._add_body(draft, statement.body, Scope({}, draft))
            self.records[statement.name] = self._finished(draft)
        self._places[statement.name] = statement.place

    def _declare(self, name: str, place: Place, names: Iterable[str], what: str) -> None:
        if name in names:
            raise refuse(place, f"the {what} '{name}' is defined already, at {self._places[name]}")

    # --- classes and records --------------------------------------------------------------------

    def _class_at(self, place: Place, name: str) -> syntax.Class:
        if name not in self._classes:
            raise _unknown(place, "class", name, self._classes)
        return self._classes[name]

    def _inherit(self, draft: _Draft, parents: Sequence[syntax.Instance], scope: Scope) -> None:
        """Add the fields of parent classes. Their arguments may use the parameters of the class that inherits."""
        for parent in parents:
            class_ = self._class_at(parent.place, parent.name)
            inner = Scope(self._bound(class_, parent, scope))
            self._inherit(draft, class_.parents, inner)
            if class_.name in draft.record.classes:
                raise refuse(parent.place, f"'{draft.record.name}' is of the class '{class_.name}' already")
            draft.record.classes.append(class_.name)
            self._add_body(draft, class_.body, Scope(inner.parameters, draft))

    def _bound(self, class_: syntax.Class, instance: syntax.Instance, scope: Scope) -> dict[str, Value]:
        """Return the values of a class's parameters."""
        given, parameters = instance.arguments, class_.parameters
        if len(given) > len(parameters):
            raise refuse(
                given[len(parameters)].place,
                f"'{class_.name}' takes {_counted(len(parameters), 'argument')}, got {len(given)}",
            )
        values: dict[str, Value] = {}
        for i, parameter in enumerate(parameters):
            if i < len(given):
                value, place = self.value(given[i], scope), given[i].place
            elif parameter.value is not None:
                value, place = self.value(parameter.value, Scope(values)), parameter.value.place
            else:
                raise refuse(instance.place, f"'{class_.name}' needs a value for its parameter '{parameter.name}'")
            self._check(value, parameter.type, place, f"parameter '{parameter.name}' of '{class_.name}'")
            values[parameter.name] = value
        return values

    def _add_body(self, draft: _Draft, body: Sequence[syntax.Field | syntax.Let], scope: Scope) -> None:
        for item in body:
            known = draft.fields.get(item.name)
            if isinstance(item, syntax.Field):
                if known is not None:
                    raise refuse(item.place, f"there is a field '{item.name}' already; 'let' changes it")
                self._check(None, item.type, item.place, "")
                draft.fields[item.name] = (item.type, item.value or syntax.Literal(item.place, None), scope)
            elif known is None:
                raise _unknown(item.place, "field", item.name, draft.fields, f" in '{draft.record.name}'")
            elif isinstance(item.value, syntax.Name) and item.value.name == item.name:
                raise refuse(item.value.place, f"the field '{item.name}' depends on itself")
            else:
                draft.fields[item.name] = (known[0], item.value, scope)

    def _finished(self, draft: _Draft) -> Record:
        for name in draft.fields:
            self._field(draft, name, draft.fields[name][1].place)
        draft.record.fields = {name: draft.record.fields[name] for name in draft.fields}
        return draft.record

    def _field(self, draft: _Draft, name: str, asked_at: Place) -> Value:
        """Return a field of a record under construction."""
        done = draft.record.fields
        if name in done:
            return done[name]
        if name in draft.computing:
            raise refuse(asked_at, f"the field '{name}' depends on itself")
        type_, expression, scope = draft.fields[name]
        draft.computing.append(name)
        value = self.value(expression, scope)
        self._check(value, type_, expression.place, f"field '{name}'")
        draft.computing.pop()
        done[name] = value
        return value

    # --- values ---------------------------------------------------------------------------------

    def value(self, expression: syntax.Value, scope: Scope) -> Value:
        """Return the value of an expression."""
        match expression:
            case syntax.Literal():
                return expression.value
            case syntax.Name():
                return self._named(expression, scope)
            case syntax.ListOf():
                return [self.value(item, scope) for item in expression.items]
            case syntax.DagOf():
                operator = self.value(expression.operator, scope)
                _expect(operator, Record, expression.operator.place, "the operator of a dag", "a record")
                return Dag(operator, tuple((self.value(value, scope), name) for value, name in expression.arguments))
            case syntax.Instance():
                return self._anonymous(expression, scope)
            case syntax.Member():
                return self._member(expression, scope)
            case syntax.Element():
                items = self.value(expression.items, scope)
                _expect(items, list, expression.place, "what has an index", "a list")
                if not 0 <= expression.index < len(items):
                    raise refuse(expression.place, f"there is no element {expression.index} of {len(items)}")
                return items[expression.index]
            case syntax.Paste():
                return self._pasted(expression, scope)
            case syntax.Bang():
                return self._operated(expression, scope)

    def _named(self, name: syntax.Name, scope: Scope) -> Value:
        """Return the value of a name. If two meanings are possible, LLVM prefers the inner one; here it is an error."""
        fields = scope.draft.fields if scope.draft else {}
        spaces = {
            "a parameter": scope.parameters,
            "a field": fields,
            "a variable": self._variables,
            "a record": self.records,
        }
        meanings = [what for what, names in spaces.items() if name.name in names]
        if len(meanings) > 1:
            raise refuse(name.place, f"'{name.name}' is {' and '.join(meanings)} here; rename one")
        if not meanings:
            if name.name in self._classes:
                raise refuse(name.place, f"'{name.name}' is a class; '{name.name}<…>' is a record of it")
            raise _unknown(name.place, "value", name.name, [known for names in spaces.values() for known in names])
        if scope.draft is not None and name.name in fields:
            return self._field(scope.draft, name.name, name.place)
        if name.name in self._variables:
            return self._variables[name.name][0]
        return spaces[meanings[0]][name.name]

    def _anonymous(self, instance: syntax.Instance, scope: Scope) -> Record:
        place = instance.place
        draft = _Draft(Record(f"anonymous_{next(self._anonymous_count)}", place.path, place.line, anonymous=True))
        self._inherit(draft, (instance,), scope)
        return self._finished(draft)

    def _member(self, member: syntax.Member, scope: Scope) -> Value:
        record = self.value(member.record, scope)
        _expect(record, Record, member.place, f"what has a field '{member.field}'", "a record")
        if member.field not in record.fields:
            raise _unknown(member.place, "field", member.field, record.fields, f" in '{record.name}'")
        return record.fields[member.field]

    def _pasted(self, paste: syntax.Paste, scope: Scope) -> Value:
        left, right = self.value(paste.left, scope), self.value(paste.right, scope)
        if isinstance(left, list) and isinstance(right, list):
            return left + right
        for value, place in ((left, paste.left.place), (right, paste.right.place)):
            if not isinstance(value, (str, int)):
                raise refuse(place, f"'#' joins two strings or two lists, got {_said(value)}")
        first = _leftmost(paste.right)
        if isinstance(first, syntax.Name) and (first.name in self._variables or first.name in self.records):
            raise refuse(first.place, f"LLVM takes '{first.name}' after '#' as text", "make it a parameter or a field")
        return f"{left}{right}"

    def _operated(self, bang: syntax.Bang, scope: Scope) -> Value:
        """Return the result of a `!operator`. More operators are added to this table when the dialect needs them."""
        arguments = [(self.value(argument, scope), argument.place) for argument in bang.arguments]
        if bang.operator != "!listconcat":
            raise refuse(
                bang.place, f"'{bang.operator}' is not read here, only '!listconcat'", "teach it to tools/tablegen"
            )
        if len(arguments) < 2:
            raise refuse(bang.place, f"'!listconcat' takes two lists or more, got {len(arguments)}")
        for value, place in arguments:
            _expect(value, list, place, "an argument of '!listconcat'", "a list")
        return [item for value, _ in arguments for item in value]

    # --- types ----------------------------------------------------------------------------------

    def _check(self, value: Value, type_: syntax.Type, place: Place, what: str) -> None:
        """Check that a value has a type, and that the type exists. A value may always be unset."""
        if type_.element is not None:
            self._check(None, type_.element, place, what)
            fits = value is None or isinstance(value, list)
            for item in value if fits and value else ():
                self._check(item, type_.element, place, f"element of {what}")
        elif type_.name in _PYTHON:
            fits = value is None or isinstance(value, _PYTHON[type_.name])
            fits = fits and (type_.name != "bit" or value in (0, 1, None))
        else:
            self._class_at(type_.place, type_.name)
            fits = value is None or (isinstance(value, Record) and value.is_a(type_.name))
        if not fits:
            raise refuse(place, f"expected a value of type '{type_}' for the {what}, got {_said(value)}")


_PYTHON = {"string": str, "code": str, "int": int, "bit": int, "dag": Dag}


def _expect(value: Value, kind: type, place: Place, what: str, expected: str) -> None:
    if not isinstance(value, kind):
        raise refuse(place, f"{what} must be {expected}, got {_said(value)}")


def _leftmost(value: syntax.Value) -> syntax.Value:
    """Return `a` of `a.b[0]`."""
    while isinstance(value, (syntax.Member, syntax.Element)):
        value = value.record if isinstance(value, syntax.Member) else value.items
    return value


def _said(value: Value) -> str:
    """Return a value as text for a message."""
    if isinstance(value, Record):
        return f"the record '{value.name}' ({', '.join(value.classes) or 'of no class'})"
    kinds = {str: "a string", int: "a number", list: "a list", Dag: "a dag", type(None): "'?'"}
    return kinds[type(value)]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _unknown(place: Place, what: str, name: str, known: Iterable[str], where: str = "") -> ParseError:
    close = difflib.get_close_matches(name, list(known), 1)
    return refuse(place, f"there is no {what} '{name}'{where}", f"did you mean '{close[0]}'?" if close else None)
