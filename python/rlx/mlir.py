"""The only module that imports MLIR's Python bindings.

The default provider is the `torch-mlir` wheel, which contains the complete upstream bindings. `mlir-python-bindings`
(package `mlir`) is used if torch-mlir is absent, or if RLX_MLIR_PROVIDER names it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial, reduce
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from rlx.parts import VERIFIERS
from rlx.support.errors import Error
from rlx.support.locks import holding, is_abandoned, make_lock

_PROVIDERS = ("torch_mlir", "mlir")


def _import_provider() -> tuple[str, Any]:
    wanted = os.environ.get("RLX_MLIR_PROVIDER")
    failures = []
    for name in (wanted,) if wanted else _PROVIDERS:
        try:
            return name, importlib.import_module(f"{name}.ir")
        except ImportError as problem:
            failures.append(f"{name}: {problem}")
    raise Error(
        "no MLIR Python bindings: " + "; ".join(failures),
        hint="pip install torch-mlir, or unset RLX_MLIR_PROVIDER",
    )


provider, ir = _import_provider()
passmanager: Any = importlib.import_module(f"{provider}.passmanager")
rewrite: Any = importlib.import_module(f"{provider}.rewrite")

if TYPE_CHECKING:
    from rlx.mlir_types import (
        Attribute,
        Block,
        BlockArgument,
        FuncOp,
        InsertionPoint,
        Location,
        Module,
        Operation,
        OpResult,
        Region,
        Type,
        Value,
    )
else:
    Attribute, Type, Location = ir.Attribute, ir.Type, ir.Location
    Module, Operation, Region, Block, Value = ir.Module, ir.Operation, ir.Region, ir.Block, ir.Value
    BlockArgument, OpResult, InsertionPoint = ir.BlockArgument, ir.OpResult, ir.InsertionPoint
    FuncOp = importlib.import_module(f"{provider}.dialects.func").FuncOp

# Code that uses the context holds this lock. MLIR itself runs under the interpreter's lock, but verifiers and passes in
# Python let other threads run, and the context has one list of diagnostic handlers and one set of flags.
_lock = make_lock()
_context: Any = None
_on_context: list[Callable[[Any], None]] = []


@cache
def dialect(name: str) -> Any:
    """Return the provider's builders of an upstream dialect: `dialect("linalg").matmul(…)`."""
    return importlib.import_module(f"{provider}.dialects.{name}")


def context() -> Any:
    """Return the process-wide context, with the rlx dialect registered.

    There is a single context, so that modules, types and attributes can be mixed freely. It is single-threaded:
    verifiers in Python run under the interpreter's lock.
    """
    return _context if _context is not None else holding(_lock, _make_context)


def _make_context() -> Any:
    """Create the context. Other threads see it only when it is complete."""
    global _context
    if _context is not None:
        return _context
    importlib.import_module(VERIFIERS)  # so that the ops' verifiers are always registered
    made = ir.Context()
    # A forked process would wait for the threads, and verifiers in Python run one at a time.
    made.enable_multithreading(False)
    with made, ir.Location.unknown():
        irdl = (Path(__file__).parent / "dialect" / "rlx.irdl.mlir").read_text()
        dialect("irdl").load_dialects(ir.Module.parse(irdl))
        _read_complex_constants()
        _read_locations_as_attributes()
        if (library := _stablehlo_library()) is not None:
            library.register_dialect(made)
            for name in ("stablehlo", "chlo"):
                place = f"{provider}.dialects.{name}"
                # The dialect is already provided if context creation was interrupted, here or in the parent process.
                if place not in sys.modules and importlib.util.find_spec(place) is None:
                    provide_dialect(name, ModuleType(name))
        for callback in _on_context:
            callback(made)
    _context = made
    return made


@cache
def _stablehlo_library() -> Any:
    try:
        return importlib.import_module(f"{provider}._mlir_libs._stablehlo")
    except ImportError:
        return None


def stablehlo() -> Any:
    """Return the provider's native StableHLO module: attributes, passes, portable artifacts.

    Raises:
        Error: The bindings lack StableHLO.
    """
    library = _stablehlo_library()
    if library is None:
        raise Error(f"the MLIR bindings `{provider}` have no StableHLO", hint="pip install torch-mlir")
    return library


def _read_complex_constants() -> None:
    """Make the bindings return a generic attribute for dense complex constants, for which they raise an exception."""

    def cast(attribute: Any) -> Any:
        for kind in (ir.DenseFPElementsAttr, ir.DenseIntElementsAttr):
            with contextlib.suppress(ValueError):
                return kind(attribute)
        return ir.DenseElementsAttr(attribute)

    native = importlib.import_module(f"{provider}._mlir_libs._mlir")
    native.register_type_caster(ir.Attribute.parse("dense<0.0> : tensor<1xf32>").typeid, replace=True)(cast)


def _read_locations_as_attributes() -> None:
    """Make the bindings return a location where an attribute is a location. By default they raise an exception.

    The caster must be a C function. The bindings also convert a location while MLIR holds the lock of its diagnostics;
    Python code would let another thread run there, which may wait for that lock, and both would deadlock.
    """
    native = importlib.import_module(f"{provider}._mlir_libs._mlir")
    as_it_is = partial(cast(Any, reduce), None, ())  # on an empty sequence, `reduce` returns its third argument
    for kind in (ir.UnknownLoc, ir.FileLineColLoc, ir.NameLoc, ir.CallSiteLoc, ir.FusedLoc):
        native.register_type_caster(kind.static_typeid, replace=True)(as_it_is)


def on_context(callback: Callable[[Any], None]) -> None:
    """Call `callback(context)` when the context is created. The op registry attaches verifiers this way."""
    if _context is not None:
        raise Error("the MLIR context exists already; register ops before the first graph is built")
    _on_context.append(callback)


def walk(op: Any, visit: Callable[[Any], Any], order: Any = None) -> None:
    """Call a function for an op and every op nested in it; regions come first unless `order` is given.

    The bindings turn any exception of the function into a `RuntimeError`; a `KeyboardInterrupt` is restored here.
    """
    try:
        op.operation.walk(visit, order or ir.WalkOrder.POST_ORDER)
    except RuntimeError as problem:
        if "KeyboardInterrupt" in str(problem):
            raise KeyboardInterrupt from None
        raise


@contextlib.contextmanager
def entered() -> Iterator[Any]:
    """Enter the context and an unknown location as the bindings' defaults. One thread at a time is inside."""
    with _lock, context() as entered_context, ir.Location.unknown():
        yield entered_context


@contextlib.contextmanager
def unregistered_dialects_allowed() -> Iterator[None]:
    """Allow ops of unregistered dialects (`util`, `flow`), which only a back end knows. One thread at a time is inside."""
    with _lock:
        entered_context = context()
        before = entered_context.allow_unregistered_dialects
        entered_context.allow_unregistered_dialects = True
        try:
            yield
        finally:
            entered_context.allow_unregistered_dialects = before


def _after_fork_in_child() -> None:
    if _context is not None and is_abandoned(_lock):  # a thread of the parent may have been inside `with`
        _context.allow_unregistered_dialects = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def provide_dialect(name: str, module: Any) -> None:
    """Register a dialect's Python module with the bindings.

    The bindings look for it whenever they return an op that has no Python object yet. A search that fails costs 70 µs
    each time, which was most of the time of verifiers and walks.
    """
    sys.modules[f"{provider}.dialects.{name}"] = module


def op_class_register(dialect_name: str) -> Callable[[type], type]:
    """Return a decorator that registers a class with `OPERATION_NAME` as an op class. Call it once per dialect."""
    native = importlib.import_module(f"{provider}._mlir_libs._mlir")
    members = {"DIALECT_NAMESPACE": dialect_name}
    return native.register_operation(native.register_dialect(type("_Dialect", (ir.Dialect,), members)))


def attach_pure(op_name: str) -> None:
    """Mark an op as free of side effects, so that canonicalize, cse and dce apply to it."""
    dialect("ext").Pure.attach(op_name)


def attach_terminator(op_name: str) -> None:
    """Mark an op as a terminator of a block."""
    ir.IsTerminatorTrait.attach(op_name)


def attach_verifier(op_name: str, verify: Callable[[Any], bool]) -> None:
    """Run `verify(op)` whenever the op is verified. The function emits its own diagnostics."""
    trait: Any = type("_Verified", (ir.DynamicOpTrait,), {"verify_invariants": staticmethod(verify)})
    trait.attach(op_name)


def execution_engine(module: Any) -> Any:
    """Return MLIR's JIT for a module of the LLVM dialect; `raw_lookup` gives addresses of functions.

    Raises:
        Error: The bindings lack the execution engine.
    """
    try:
        engines = importlib.import_module(f"{provider}.execution_engine")
    except ImportError as problem:
        raise Error(f"the MLIR bindings `{provider}` cannot execute", hint="pip install torch-mlir") from problem
    return engines.ExecutionEngine(module)
