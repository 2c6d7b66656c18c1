"""Views of ops for patterns: `views.Transpose(op)` has `x`, `perm` and `result`, the names in the op's record.

There is a class for each op of the dialect, generated from its record on first use. The generated `views.pyi` declares
them for editors and type checkers.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rlx import mlir
from rlx.dialect.spec import AttributeSpec, OpSpec, TraitName
from rlx.ir.op import attributes, opview, registry


class View:
    """An rlx op with its operands, results and attributes by name.

    An operand is an MLIR value, None for an absent optional operand, or a list for a variadic one. An attribute is a
    Python value, as passed to cards. Each is read once, so a view is valid only while its op does not change.
    """

    spec: ClassVar[OpSpec]
    op_name: ClassVar[str] = ""  # the name in MLIR; empty for `View`

    def __init__(self, operation: mlir.Operation):
        self.operation = operation

    @property
    def operands(self) -> list[mlir.Value]:
        """All operands, flat."""
        return list(self.operation.operands)

    @property
    def attributes(self) -> dict[str, Any]:
        """All attributes by name."""
        return opview.attributes_of(self.operation)

    def has_trait(self, name: TraitName) -> bool:
        """Whether the op has a trait, given its attributes."""
        trait = self.spec.trait(name)
        return trait is not None and (not trait.attribute or getattr(self, trait.attribute) in trait.cases)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.operation}>"


def class_name(op: str) -> str:
    """Return the name of an op's class: `FusedSwiglu` for `fused_swiglu`."""
    return "".join(part[:1].upper() + part[1:] for part in op.split("_"))


def member_names(spec: OpSpec) -> dict[str, str]:
    """Return the member name for each name in the record. Names that `View` already uses get an underscore."""
    names = [entry.name for entry in (*spec.operands, *spec.attributes, *spec.results)]
    return {name: f"{name}_" if hasattr(View, name) else name for name in names}


class _Member:
    """A member that is computed on first access and then stored in the object."""

    name: str

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


class _OperandMember(_Member):
    def __init__(self, spec: OpSpec, index: int):
        self.index = index
        self.is_grouped = any(operand.arity != "single" for operand in spec.operands)

    def __get__(self, view: View, owner: type) -> Any:
        op = view.operation
        groups = opview.operands_of(op, list(op.operands)) if self.is_grouped else op.operands
        value = view.__dict__[self.name] = groups[self.index]
        return value


class _Result(_Member):
    def __init__(self, index: int):
        self.index = index

    def __get__(self, view: View, owner: type) -> Any:
        value = view.__dict__[self.name] = view.operation.results[self.index]
        return value


class _Attribute(_Member):
    def __init__(self, attribute: AttributeSpec):
        self.attribute = attribute

    def __get__(self, view: View, owner: type) -> Any:
        value = view.__dict__[self.name] = attributes.read_one(self.attribute, view.operation.attributes)
        return value


def _make_class(name: str, spec: OpSpec) -> type[View]:
    members: dict[str, Any] = {"spec": spec, "op_name": f"rlx.{spec.name}", "__doc__": spec.summary}
    names = member_names(spec)
    members |= {names[a.name]: _Attribute(a) for a in spec.attributes}
    members |= {names[o.name]: _OperandMember(spec, i) for i, o in enumerate(spec.operands)}
    if all(r.arity == "single" for r in spec.results):
        members |= {names[r.name]: _Result(i) for i, r in enumerate(spec.results)}
    return type(name, (View,), members)


_SPECS = {class_name(name): spec for name, spec in registry.SPECS.items()}


def __getattr__(name: str) -> Any:
    if name not in _SPECS:
        raise AttributeError(f"the dialect has no op for '{name}'")
    view_class = globals()[name] = _make_class(name, _SPECS[name])
    return view_class
