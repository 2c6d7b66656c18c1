"""Attributes of modules and functions: stages, policies, and the names and kinds of arguments and results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlx import mlir
from rlx.ir.dims.bounds import BOUNDS, Bounds, bounds_from_text, bounds_text
from rlx.ir.interface import KINDS, Argument, Output, initial_value
from rlx.ir.location import describe
from rlx.ir.op.quantization import quantization_of
from rlx.ir.shape import shape_of_type
from rlx.ir.sharding import (
    MESH,
    SHARDING,
    Mesh,
    Sharding,
    check_sharding,
    mesh_from_text,
    sharding_from_text,
    sharding_text,
)
from rlx.support.errors import Error, ShapeError, VerificationError
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion

if TYPE_CHECKING:
    from rlx.mlir_types import AttributeDict

STAGES = ("hir", "mir", "lir")
# Module attribute up to MIR: whether `rlx-fuse` creates fused ops from primitives (`direct`) or not (`fusable`).
POLICY_ATTRIBUTE = "rlx.fusion_policy"
POLICIES = ("direct", "fusable")
# Function attribute: the name of another function. This function computes the parameters of that one when the program
# is loaded.
PREPARES = "rlx.prepares"
_OF_ARGUMENTS = ("rlx.name", "rlx.kind", "rlx.donate", "rlx.frozen", "rlx.init", SHARDING, BOUNDS)
_OF_RESULTS = ("rlx.name", "rlx.updates")


def functions(module: mlir.Module) -> list[mlir.FuncOp]:
    """The functions of a module, in order."""
    return [op for op in module.body.operations if isinstance(op, mlir.FuncOp)]


def bodies(module: mlir.Module) -> list[mlir.FuncOp]:
    """Return the functions of a module that have a body, in order; the others are only declared."""
    return [function for function in functions(module) if not function.is_external]


def prepares(function: mlir.FuncOp) -> str | None:
    """Return the name of the function whose parameters a function computes (`rlx-outline-weights`); None for all others."""
    attributes = function.attributes
    return attributes[PREPARES].value if PREPARES in attributes else None


def find_function(module: mlir.Module, name: str | None = None) -> mlir.FuncOp:
    """Return a function by name; without a name, the first public one.

    Raises:
        Error: There is no matching function.
    """
    candidates = functions(module)
    for function in candidates:
        if function.name.value == name or (name is None and is_public(function)):
            return function
    names = ", ".join(f.name.value for f in candidates)
    description = f"function '{name}'" if name else "public function"
    place = describe(module.operation.location)
    raise Error(f"the module has no {description}; it has {names or 'no functions'}", location=place)


def is_public(function: mlir.FuncOp) -> bool:
    """Whether other modules may call a function."""
    attributes = function.attributes
    return "sym_visibility" not in attributes or str(attributes["sym_visibility"]) == '"public"'


def stage_of(op: mlir.Operation) -> str | None:
    """Return the stage that an op declares; None if it declares none.

    Raises:
        ShapeError: The stage is unknown.
    """
    return _declared(op, "rlx.stage", STAGES)


def policy_of(op: mlir.Operation) -> str | None:
    """Return the fusion policy that a module declares; None if it declares none.

    Raises:
        ShapeError: The policy is unknown.
    """
    return _declared(op, POLICY_ATTRIBUTE, POLICIES)


def mesh_of(op: mlir.Operation) -> Mesh | None:
    """Return the mesh that a module declares; None if it declares none.

    Raises:
        ShapeError: The attribute is not a mesh.
    """
    if MESH not in op.attributes:
        return None
    stored = _stored(op.attributes, MESH)
    if not isinstance(stored, mlir.ir.StringAttr):
        raise ShapeError(f"'{MESH}' is a string such as \"data=4, model=2\"; it is {stored}")
    return mesh_from_text(stored.value)


def set_mesh(op: mlir.Operation, mesh: Any, arguments: Iterable[Argument] = ()) -> None:
    """Set or remove the mesh of a module.

    Raises:
        Error: It is not a mesh, or the sharding of an argument does not fit it.
    """
    if mesh is not None and not isinstance(mesh, Mesh):
        raise Error(f"mesh must be a rlx.Mesh, got {short_repr(mesh)}", hint='rlx.Mesh({"data": 4, "model": 2})')
    for a in arguments:
        if a.sharding is not None:
            check_sharding(a.sharding, a.shape, mesh)
    if mesh is not None:
        op.attributes[MESH] = mlir.ir.StringAttr.get(str(mesh), context=mlir.context())
    elif MESH in op.attributes:
        del op.attributes[MESH]


def _declared(op: mlir.Operation, name: str, known: Iterable[str]) -> str | None:
    attributes = op.attributes
    if name not in attributes:
        return None
    stored = _stored(attributes, name)
    if not isinstance(stored, mlir.ir.StringAttr) or stored.value not in known:
        raise ShapeError(f"'{name}' is one of {', '.join(known)}, not {stored}")
    return stored.value


def _stored(entry: AttributeDict, name: str) -> mlir.Attribute:
    """Return an attribute that is present.

    Raises:
        ShapeError: The bindings have no class for it, as for array<f16: 1.0>.
    """
    try:
        return entry[name]
    except TypeError:
        raise ShapeError(f"'{name}' is of a kind that nothing is stored in") from None


# --- reading --------------------------------------------------------------------------------------


def read_arguments(function: mlir.FuncOp) -> list[Argument]:
    """Return the arguments of a function from its attributes. Unnamed ones are inputs `arg0`, `arg1`, ….

    Raises:
        VerificationError: An attribute is not valid, or an argument is not a tensor.
    """
    places = _argument_places(function)
    result: list[Argument] = []
    quantized = quantization_of(function)
    for i, (type_, entry) in enumerate(_entries(function, "arg_attrs")):
        with _context(places[i], f"argument {i} of '{function.name.value}'"):
            declared, shape = _argument(i, entry), shape_of_type(type_)
            if declared.kind == "state":
                initial_value(declared.init, shape.dtype)
            sharding = _sharding(entry, shape.rank)
        of_all = declared.name, declared.kind, shape, declared.donate, declared.init
        scale = quantized.get(declared.name)
        result.append(Argument(*of_all, sharding, declared.trainable, declared.bounds, scale))
    return result


def read_outputs(function: mlir.FuncOp) -> list[Output]:
    """Return the results of a function from its attributes. Unnamed ones are `output0`, `output1`, ….

    Raises:
        VerificationError: An attribute is not valid, or a result is not a tensor.
    """
    result: list[Output] = []
    for i, (type_, entry) in enumerate(_entries(function, "res_attrs")):
        with _context(function.location, f"result {i} of '{function.name.value}'"):
            name, updates = _result(i, entry)
            result.append(Output(name, shape_of_type(type_), updates))
    return result


@dataclass(frozen=True)
class Declared:
    """An argument of any type, as declared by its attributes: see `Argument`."""

    name: str
    kind: str
    donate: bool
    init: float
    trainable: bool
    bounds: Bounds


def declared_arguments(function: mlir.FuncOp) -> list[Declared]:
    """Return the arguments of a function from its attributes. They may have any type, for example after lowering."""
    return [_argument(i, entry) for i, (_, entry) in enumerate(_entries(function, "arg_attrs"))]


def declared_updates(function: mlir.FuncOp) -> list[str | None]:
    """Return the states that a function's results update; None for other results. Results may have any type."""
    return [_result(i, entry)[1] for i, (_, entry) in enumerate(_entries(function, "res_attrs"))]


def declared_result_names(function: mlir.FuncOp) -> list[str]:
    """Return the names of a function's results, which may have any type."""
    return [_result(i, entry)[0] for i, (_, entry) in enumerate(_entries(function, "res_attrs"))]


def _entries(function: mlir.FuncOp, name: str) -> list[tuple[mlir.Type, AttributeDict]]:
    """Return the type and the attributes of each argument or each result."""
    type_ = function.type
    types = list(type_.inputs if name == "arg_attrs" else type_.results)
    attributes = function.attributes
    stored = list(attributes[name]) if name in attributes else [dict[str, Any]()] * len(types)
    return list(zip(types, stored, strict=True))


def _argument_places(function: mlir.FuncOp) -> list[mlir.Location]:
    if function.is_external:
        return [function.location] * len(function.type.inputs)
    return [argument.location for argument in function.entry_block.arguments]


def _argument(i: int, entry: AttributeDict) -> Declared:
    _check_names(entry, _OF_ARGUMENTS)
    name = _text(entry, "rlx.name", f"arg{i}")
    kind = _text(entry, "rlx.kind", "input")
    if kind not in KINDS:
        raise ShapeError(f"'rlx.kind' is one of {', '.join(KINDS)}, not '{kind}'{suggestion(kind, KINDS)}")
    for flag, at in (("rlx.donate", "input"), ("rlx.frozen", "param")):
        if flag in entry and (not isinstance(_stored(entry, flag), mlir.ir.UnitAttr) or kind != at):
            raise ShapeError(f"'{flag}' is written without a value, at {_a(at)}")
    init = 0.0
    if "rlx.init" in entry:
        stored = _stored(entry, "rlx.init")
        if kind != "state" or not isinstance(stored, mlir.ir.FloatAttr) or str(stored.type) != "f64":
            raise ShapeError(f"'rlx.init' is a number such as 1.0 : f64, at a state; it is {stored} at {_a(kind)}")
        init = stored.value
    bounds = bounds_from_text(_text(entry, BOUNDS, "")) if BOUNDS in entry else ()
    return Declared(name, kind, "rlx.donate" in entry, init, "rlx.frozen" not in entry, bounds)


def _result(i: int, entry: AttributeDict) -> tuple[str, str | None]:
    """Return the name of a result, and the state that it updates."""
    _check_names(entry, _OF_RESULTS)
    return _text(entry, "rlx.name", f"output{i}"), _text(entry, "rlx.updates", "") or None


def _sharding(entry: AttributeDict, rank: int) -> Sharding | None:
    """Return the sharding that an argument declares."""
    if SHARDING not in entry:
        return None
    stored = _stored(entry, SHARDING)
    if not isinstance(stored, mlir.ir.StringAttr):
        raise ShapeError(f"'{SHARDING}' is a string such as \"data, _\"; it is {stored}")
    return sharding_from_text(stored.value, rank)


def _text(entry: AttributeDict, name: str, default: str) -> str:
    if name not in entry:
        return default
    stored = _stored(entry, name)
    if not isinstance(stored, mlir.ir.StringAttr) or not stored.value or "\0" in stored.value:
        raise ShapeError(f"'{name}' is a string that is not empty and has no NUL; it is {stored}")
    return stored.value


def _check_names(entry: AttributeDict, known: Iterable[str]) -> None:
    for named in entry:
        name = getattr(named, "name", named)
        if name.startswith("rlx.") and name not in known:
            raise ShapeError(f"unknown attribute '{name}'{suggestion(name, known)}")


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "input" else f"a {kind}"


class _context:
    """A context that adds a location and a subject to the errors raised in it."""

    def __init__(self, location: mlir.Location, subject: str):
        self.location, self.subject = location, subject

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, problem: object, trace: object) -> None:
        if isinstance(problem, Error):
            place = problem.location or describe(self.location)
            raise VerificationError(f"{self.subject}: {problem.message}", location=place, hint=problem.hint) from None


# --- checking -------------------------------------------------------------------------------------


def check(module: mlir.Module) -> None:
    """Check the `rlx.` attributes of a module and of its functions.

    Raises:
        VerificationError: An attribute is of the wrong type or not valid, or two arguments have the same name.
    """
    with _context(module.operation.location, "the module"):
        stage_of(module.operation)
        policy_of(module.operation)
        mesh = mesh_of(module.operation)
    for function in functions(module):
        _check_function(function, mesh)
        if mesh is not None:
            _check_shards(function, mesh)


def _check_shards(function: mlir.FuncOp, mesh: Mesh) -> None:
    """Check the shardings of ops against the mesh of their module."""
    found: list[mlir.Operation] = []

    def visit(op: mlir.Operation) -> Any:
        if op.operation.name.startswith("rlx.") and "sharding" in op.operation.attributes:
            found.append(op.operation)
        return mlir.ir.WalkResult.ADVANCE

    mlir.walk(function.operation, visit)
    for op in found:
        with _context(op.location, op.name):
            shape = shape_of_type(op.results[0].type)
            check_sharding(sharding_from_text(op.attributes["sharding"].value, shape.rank), shape, mesh)


def _check_function(function: mlir.FuncOp, mesh: Mesh | None) -> None:
    """Check one function. Its arguments may have any type, for example after lowering."""
    name = function.name.value
    with _context(function.location, "a function"):
        if not name:
            raise ShapeError("has an empty name")  # MLIR prints such a function, but cannot parse it
        if "\0" in name:
            raise ShapeError(f"has the name {short_repr(name)}, and names have no NUL")
        _text(function.attributes, PREPARES, "")
    states: dict[str, mlir.Type] = {}
    positions: dict[str, int] = {}
    places = _argument_places(function)
    for i, (type_, entry) in enumerate(_entries(function, "arg_attrs")):
        with _context(places[i], f"argument {i} of '{name}'"):
            declared = _argument(i, entry)
            argument = declared.name
            if argument in positions:
                raise ShapeError(f"is called '{argument}', as argument {positions[argument]} is")
            positions[argument] = i
            if SHARDING in entry:
                shape = shape_of_type(type_)
                check_sharding(_sharding(entry, shape.rank) or (), shape, mesh)
            if declared.kind == "state":
                states[argument] = type_
                initial_value(declared.init, shape_of_type(type_).dtype)
    outputs: dict[str, int] = {}
    updated: dict[str, int] = {}
    for i, (type_, entry) in enumerate(_entries(function, "res_attrs")):
        with _context(function.location, f"result {i} of '{name}'"):
            output, updates = _result(i, entry)
            names, key = (outputs, output) if updates is None else (updated, updates)
            if key in names:
                raise ShapeError(f"{'is called' if updates is None else 'updates'} '{key}', as result {names[key]}")
            names[key] = i
            if updates is not None and states.get(updates) != type_:
                known = ", ".join(f"'{n}': {t}" for n, t in states.items())
                raise ShapeError(f"updates '{updates}' with {type_}; the states are {known or 'none'}")


# --- writing --------------------------------------------------------------------------------------


def sign_function(function: mlir.FuncOp, arguments: Iterable[Argument], outputs: Iterable[Output]) -> None:
    """Write names, kinds and types of arguments and results into a function's attributes."""
    ir = mlir.ir
    with mlir.entered():
        block = function.entry_block
        inputs = [argument.type for argument in block.arguments]
        operations = block.operations
        results = [value.type for value in operations[len(operations) - 1].operands]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
        declare(function, arguments, outputs)


def declare(function: mlir.FuncOp, arguments: Iterable[Argument], outputs: Iterable[Output]) -> None:
    """Write names and kinds of arguments and results into a function's attributes. Their types may differ."""
    ir = mlir.ir

    def text(value: str) -> mlir.Attribute:
        return ir.StringAttr.get(value)

    argument_attributes: list[mlir.Attribute] = []
    for a in arguments:
        entry = {"rlx.kind": text(a.kind), "rlx.name": text(a.name)}
        if a.donate:
            entry["rlx.donate"] = ir.UnitAttr.get()
        if not a.trainable:
            entry["rlx.frozen"] = ir.UnitAttr.get()
        if repr(a.init) != "0.0":  # -0.0 is not the default
            entry["rlx.init"] = ir.FloatAttr.get(ir.F64Type.get(), a.init)
        if a.sharding is not None:
            entry[SHARDING] = text(sharding_text(a.sharding))
        if a.bounds:
            entry[BOUNDS] = text(bounds_text(a.bounds))
        argument_attributes.append(ir.DictAttr.get(entry))
    result_attributes = [
        ir.DictAttr.get({"rlx.name": text(o.name)} | ({} if o.updates is None else {"rlx.updates": text(o.updates)}))
        for o in outputs
    ]
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(argument_attributes)
    function.attributes["res_attrs"] = ir.ArrayAttr.get(result_attributes)
