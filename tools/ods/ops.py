"""Conversion of records to ops, with checks: a mistake in a record is an error with its location."""

from __future__ import annotations

import ast
import keyword
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlx.dialect.dtypes import members
from rlx.dialect.spec import REQUIRED, Arity, AttributeKind, AttributeSpec, OpSpec, RegionSpec, TraitSpec, ValueSpec
from rlx.support.errors import ParseError
from tools.tablegen import Dag, Record, Records

KINDS: dict[str, AttributeKind] = {
    "I64Attr": "i64",
    "F64Attr": "f64",
    "BoolAttr": "bool",
    "DenseI64ArrayAttr": "i64s",
    "StrAttr": "str",
    "RLX_ShapeAttr": "dims",
    "RLX_DTypeAttr": "dtype",
    "ElementsAttr": "elements",
    "RLX_DictAttr": "dict",
}
_STAGES = ("hir", "mir", "lir")


@dataclass(frozen=True)
class DeclaredOp:
    """An op, and the descriptions of its attributes and traits from its record."""

    spec: OpSpec
    attribute_summaries: dict[str, str]
    trait_summaries: dict[str, str]


def declared_ops(records: Records) -> list[DeclaredOp]:
    """Return the ops of the dialect, in the order of their files and lines.

    Raises:
        ParseError: A record is not a valid op; the location is `file:line`.
    """
    result: list[DeclaredOp] = []
    places: dict[str, str] = {}
    for record in records.of_class("RLX_Op"):
        reader = _Reader(record)
        op = reader.op()
        if op.spec.name in places:
            raise ParseError(
                f"there is an op 'rlx.{op.spec.name}' already, at {places[op.spec.name]}", location=reader.place
            )
        places[op.spec.name] = reader.place
        result.append(op)
    return result


class _Reader:
    """Reads one record."""

    def __init__(self, record: Record):
        self._record = record
        # A record's path depends on how it was read; all ops are in one folder.
        self.place = f"dialect/{Path(record.path).name}:{record.line}"

    def _refused(self, message: str, hint: str | None = None) -> ParseError:
        return ParseError(f"{self._record.name}: {message}", location=self.place, hint=hint)

    def op(self) -> DeclaredOp:
        record = self._record
        traits = [trait for trait in record["traits"] if trait.is_a("RLX_Trait")]
        operands, attributes, summaries = [], [], {}
        for argument, name in self._entries("arguments"):
            if argument.is_a("Attr"):
                attributes.append(self._attribute(argument, name))
                summaries[name] = _base(argument)["summary"]
            else:
                operands.append(self._value(argument, name))
        spec = OpSpec(
            self._word("opName"),
            self._word("family"),
            self._word("stage"),
            _text(record["summary"]),
            _text(record["description"]),
            tuple(operands),
            tuple(attributes),
            tuple(self._value(result, name) for result, name in self._entries("results")),
            tuple(self._region(region, name) for region, name in self._entries("regions")),
            tuple(TraitSpec(t["traitName"], t["attribute"], tuple(t["cases"])) for t in traits),
            self.place.partition(":")[0],  # a line number would change with every record that is added before it
            any(trait.name == "Terminator" for trait in record["traits"]),
        )
        if spec.stage not in _STAGES:
            raise self._refused(f"expected 'stage' to be one of {', '.join(_STAGES)}, got '{spec.stage}'")
        values = (*spec.operands, *spec.attributes, *spec.regions)
        self._check_names([v.name for v in values], "arguments and regions")
        self._check_names([v.name for v in spec.results], "results")
        return DeclaredOp(spec, summaries, {trait["traitName"]: trait["says"] for trait in traits})

    def _word(self, field: str) -> str:
        value = self._record[field]
        if not isinstance(value, str) or not value.isidentifier() or not value.isascii():
            raise self._refused(f"expected '{field}' to be letters, digits and '_', got {value!r}")
        return value

    def _entries(self, field: str) -> Iterable[tuple[Record, str]]:
        dag = self._record[field]
        markers = {"arguments": "ins", "results": "outs", "regions": "region"}
        if not isinstance(dag, Dag) or dag.operator.name != markers[field]:
            raise self._refused(f"expected '{field}' to be ({markers[field]} …)")
        for entry, name in dag.arguments:
            if not isinstance(entry, Record):
                raise self._refused(f"expected a type or an attribute for '${name}' in '{field}', got {entry!r}")
            yield entry, name

    def _check_names(self, names: list[str], what: str) -> None:
        for i, name in enumerate(names):
            if not name.isidentifier() or keyword.iskeyword(name):
                raise self._refused(f"of the {what}, each needs a name that Python takes, got '${name}'")
            if name in names[:i]:
                raise self._refused(f"two of the {what} are called '${name}'")

    def _value(self, type_: Record, name: str) -> ValueSpec:
        arity: Arity = "single"
        if type_.is_a("Optional") or type_.is_a("Variadic"):
            arity = "optional" if type_.is_a("Optional") else "variadic"
            type_ = type_["baseType"]
        if not type_.is_a("RLX_TensorOf"):
            raise self._refused(
                f"'${name}' is a {type_.name}, which is neither a tensor nor an attribute",
                "take a tensor type of dialect/RlxBase.td, or Optional<…> or Variadic<…> of one",
            )
        accepts = tuple(type_["dtypes"])
        try:
            members(accepts)
        except KeyError as unknown:
            raise self._refused(
                f"'${name}' accepts {unknown}, which is neither a dtype nor a group of dtypes"
            ) from None
        return ValueSpec(name, accepts, arity)

    def _attribute(self, record: Record, name: str) -> AttributeSpec:
        default: Any = REQUIRED
        if record.is_a("DefaultValuedAttr"):
            default = self._default(record["defaultValue"], name)
        elif record.is_a("OptionalAttr"):
            default = None
        record, interval = _base(record), ""
        if record.is_a("ConfinedAttr"):
            constraint = record["attrConstraints"][0]
            if len(record["attrConstraints"]) != 1 or not constraint.is_a("RLX_In"):
                raise self._refused(f"'${name}' may have one constraint, an RLX_In<…>")
            interval, record = constraint["interval"], record["baseAttr"]
        if record.is_a("RLX_Enum"):
            cases = tuple(record["cases"])
            if default not in (REQUIRED, None, *cases):
                raise self._refused(f"the default of '${name}' is {default!r}, which is none of {', '.join(cases)}")
            return AttributeSpec(name, "enum", default, record["className"], cases)
        if record.name not in KINDS:
            raise self._refused(
                f"'${name}' is a {record.name}, of which the verifier knows nothing",
                f"attributes are {', '.join(KINDS)}, an RLX_Enum, or made of these by RLX_In",
            )
        spec = AttributeSpec(name, KINDS[record.name], default, interval=interval)
        try:
            admitted = default in (REQUIRED, None) or isinstance(default, tuple) or spec.admits(default)
        except (TypeError, ValueError):
            raise self._refused(f"'${name}': expected an interval such as \"[0, 1)\" and a number in it") from None
        if not admitted:
            raise self._refused(f"the default of '${name}' is {default}, which is not in {interval}")
        return spec

    def _default(self, text: str, name: str) -> Any:
        """Return a default. It is written as C++ text, restricted to syntax that Python can read too."""
        try:
            return ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
        except (ValueError, SyntaxError):
            raise self._refused(
                f"the default of '${name}' is {text!r}", "a number, true, false, or a string with quotes in it"
            ) from None

    def _region(self, region: Record, name: str) -> RegionSpec:
        if not region.is_a("Region"):
            raise self._refused(f"'${name}' is a {region.name}, not a region")
        return RegionSpec(name, "single" if region.is_a("SizedRegion") else "optional")


def _base(attribute: Record) -> Record:
    """Return an attribute without its default."""
    wrapped = attribute.is_a("DefaultValuedAttr") or attribute.is_a("OptionalAttr")
    return attribute["baseAttr"] if wrapped else attribute


def _text(value: str | None) -> str:
    return textwrap.dedent((value or "").strip("\n")).strip()
