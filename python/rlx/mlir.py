"""The only module that imports MLIR's Python bindings.

The provider is the `torch-mlir` wheel, which carries the complete upstream bindings; a real
`mlir-python-bindings` (package `mlir`) serves instead when torch-mlir is absent, or when RLX_MLIR_PROVIDER
names it.
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

# Who works with the context holds this. MLIR itself runs under the interpreter's lock, but verifiers and passes in Python
# let other threads in between, and the context has one list of handlers for diagnostics, and one set of switches.
_lock = make_lock()
_context: Any = None
_on_context: list[Callable[[Any], None]] = []


@cache
def dialect(name: str) -> Any:
    """The provider's builders of an upstream dialect: `dialect("linalg").matmul(…)`."""
    return importlib.import_module(f"{provider}.dialects.{name}")


def context() -> Any:
    """The process-wide context, with the rlx dialect registered.

    There is one, so that modules, types and attributes mix freely. Contexts are single-threaded inside:
    Python verifiers run under the interpreter's lock.
    """
    return _context if _context is not None else holding(_lock, _make_context)


def _make_context() -> Any:
    """The context, which others see when it is complete."""
    global _context
    if _context is not None:
        return _context
    importlib.import_module(VERIFIERS)  # whoever asks first: the context comes with the ops' verifiers
    made = ir.Context()
    made.enable_multithreading(
        False
    )  # a forked process would wait for the threads, and verifiers in Python run one by one
    with made, ir.Location.unknown():
        irdl = (Path(__file__).parent / "dialect" / "rlx.irdl.mlir").read_text()
        dialect("irdl").load_dialects(ir.Module.parse(irdl))
        _read_complex_constants()
        _read_locations_as_attributes()
        if (library := _stablehlo_library()) is not None:
            library.register_dialect(made)
            for name in ("stablehlo", "chlo"):
                place = f"{provider}.dialects.{name}"
                # It is provided already if a context was half made, by an interrupted call or in the parent of this process.
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
    """The provider's native StableHLO module: attributes, passes, portable artifacts.

    Raises:
        Error: The bindings have none.
    """
    library = _stablehlo_library()
    if library is None:
        raise Error(f"the MLIR bindings `{provider}` have no StableHLO", hint="pip install torch-mlir")
    return library


def _read_complex_constants() -> None:
    """The bindings raise when they meet a dense attribute of complex numbers; have them return a plain one."""

    def cast(attribute: Any) -> Any:
        for kind in (ir.DenseFPElementsAttr, ir.DenseIntElementsAttr):
            with contextlib.suppress(ValueError):
                return kind(attribute)
        return ir.DenseElementsAttr(attribute)

    native = importlib.import_module(f"{provider}._mlir_libs._mlir")
    native.register_type_caster(ir.Attribute.parse("dense<0.0> : tensor<1xf32>").typeid, replace=True)(cast)


def _read_locations_as_attributes() -> None:
    """The bindings raise when a location stands where an attribute does; have them return either as it is.

    By a function of C: the bindings also convert a location while MLIR holds the lock of its errors. Python code would let
    another thread have its turn there, which may wait for that lock, and both would wait for ever.
    """
    native = importlib.import_module(f"{provider}._mlir_libs._mlir")
    as_it_is = partial(cast(Any, reduce), None, ())  # with nothing to go over, `reduce` returns its third argument
    for kind in (ir.UnknownLoc, ir.FileLineColLoc, ir.NameLoc, ir.CallSiteLoc, ir.FusedLoc):
        native.register_type_caster(kind.static_typeid, replace=True)(as_it_is)


def on_context(callback: Callable[[Any], None]) -> None:
    """Call `callback(context)` when the context is made: how the registry attaches verifiers."""
    if _context is not None:
        raise Error("the MLIR context exists already; register ops before the first graph is built")
    _on_context.append(callback)


def walk(op: Any, visit: Callable[[Any], Any], order: Any = None) -> None:
    """Call a function for an op and every op in it, as the bindings' `walk` does: regions first unless `order` says otherwise.

    They make a `RuntimeError` of whatever the function raises, of an interrupt as well, which is still one afterwards.
    """
    try:
        op.operation.walk(visit, order or ir.WalkOrder.POST_ORDER)
    except RuntimeError as problem:
        if "KeyboardInterrupt" in str(problem):
            raise KeyboardInterrupt from None
        raise


@contextlib.contextmanager
def entered() -> Iterator[Any]:
    """The context and an unknown location, as the bindings' defaults. One thread at a time is inside."""
    with _lock, context() as entered_context, ir.Location.unknown():
        yield entered_context


@contextlib.contextmanager
def unregistered_dialects_allowed() -> Iterator[None]:
    """Ops of dialects that only a back end knows (`util`, `flow`) may be built and parsed inside, by one thread at a time."""
    with _lock:
        entered_context = context()
        before = entered_context.allow_unregistered_dialects
        entered_context.allow_unregistered_dialects = True
        try:
            yield
        finally:
            entered_context.allow_unregistered_dialects = before


def _after_fork_in_child() -> None:
    if _context is not None and is_abandoned(_lock):  # a thread of the parent may have been inside of the `with` above
        _context.allow_unregistered_dialects = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def provide_dialect(name: str, module: Any) -> None:
    """Let the bindings find a dialect's Python module.

    They look for it whenever they hand out an op that has no Python object yet, and a search that fails costs
    70 µs each time: that was most of the time of verifiers and walks.
    """
    sys.modules[f"{provider}.dialects.{name}"] = module


def op_class_register(dialect_name: str) -> Callable[[type], type]:
    """A decorator: it enters a class that has an `OPERATION_NAME` as the class of those ops. Ask once for each dialect."""
    native = importlib.import_module(f"{provider}._mlir_libs._mlir")
    members = {"DIALECT_NAMESPACE": dialect_name}
    return native.register_operation(native.register_dialect(type("_Dialect", (ir.Dialect,), members)))


def attach_pure(op_name: str) -> None:
    """Tell MLIR that an op has no side effect, so that canonicalize, cse and dce may work on it."""
    dialect("ext").Pure.attach(op_name)


def attach_terminator(op_name: str) -> None:
    """Tell MLIR that an op ends a block."""
    ir.IsTerminatorTrait.attach(op_name)


def attach_verifier(op_name: str, verify: Callable[[Any], bool]) -> None:
    """Run `verify(op)` whenever the op is verified; it emits its own diagnostics."""
    trait: Any = type("_Verified", (ir.DynamicOpTrait,), {"verify_invariants": staticmethod(verify)})
    trait.attach(op_name)


def execution_engine(module: Any) -> Any:
    """MLIR's compiler in memory for a module of the LLVM dialect: `raw_lookup` gives addresses of functions.

    Raises:
        Error: The bindings have none.
    """
    try:
        engines = importlib.import_module(f"{provider}.execution_engine")
    except ImportError as problem:
        raise Error(f"the MLIR bindings `{provider}` cannot execute", hint="pip install torch-mlir") from problem
    return engines.ExecutionEngine(module)
