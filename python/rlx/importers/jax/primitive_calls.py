"""Primitives that JAX's lowering to StableHLO does not preserve: factorisations, and functions with custom derivatives.

During the export of a function, some primitives become numbered calls of `rlx.call` (`PrimitiveCalls`). The importer replaces
each call. A factorisation becomes RLX's own op; any other primitive becomes the ops that JAX computes it with. Both are
wrapped in a `custom_fn` with JAX's derivative. This covers functions under `custom_jvp` and `custom_vjp`, and functions
that JAX computes by loops of unknown length.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from rlx import mlir
from rlx.importers.jax import factorization as factorization  # registers its rules
from rlx.importers.jax import incomplete_beta
from rlx.importers.jax.primitives import OF_COMPLEX, accepts, primitives
from rlx.importers.stablehlo.choices import is_inert
from rlx.importers.stablehlo.function import CALL, inlined
from rlx.importers.stablehlo.large import LargeConstants, of_artifact
from rlx.ir.dtype import dtype
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error, UnsupportedError
from rlx.support.packages import import_package
from rlx.support.traces import place_of

_BETA, _POLYGAMMA = "regularized_incomplete_beta", "polygamma"
# Primitives, other than factorisations, for which JAX has derivatives in closed form.
_DERIVED = (
    "custom_jvp_call",
    "igamma",
    "igammac",
    "random_gamma",
    "clamp",
    "round",
    "bitcast_convert_type",
    "custom_linear_solve",
    "lgamma",
    "cumprod",
    "cummax",
    "cummin",
    "cumlogsumexp",
    _POLYGAMMA,
    "erfc",
    "erf_inv",
    "digamma",
    "bessel_i0e",
    "bessel_i1e",
    _BETA,
)
# Functions of one float that JAX exports as CHLO ops.
_OF_CHLO = ("lgamma", "digamma", "erfc", "erf_inv", "bessel_i0e", "bessel_i1e")
_SOLVE = "custom_linear_solve"
_FACTORIZATIONS = ("cholesky", "eigh", "svd", "qr", "lu")
_BY_COTANGENTS = ("custom_vjp_call",)
# Primitives that print a value and have no results. They are dropped, because an artifact cannot print values.
_SHOWN = ("debug_print", "debug_callback")
_WITHOUT_RULE = re.compile(r"translation rule for primitive '(\w+)' not found")
_RULES = "_override_lowering_rules"  # the parameter of `jax.export` that takes lowering rules
# The first order of derivative whose calls have no JAX derivative. A derivative contains calls itself: that of igamma
# contains igamma. From order 1 on, RLX's own derivatives of factorisations are used, because they are as accurate. A
# solve needs JAX's derivatives for two more orders: JAX stops derivatives at the matrix that a solve factors. Inside
# the derivative of another function, a solve is transposed by its own rule before it is differentiated, which adds one
# order.
_ORDERS = {**dict.fromkeys(_FACTORIZATIONS, 1), _SOLVE: 3}
_MOST_ORDERS, _DEEPEST = 2, 3


def platforms() -> tuple[str, str]:
    """Return the platforms to export for, in the order of preference.

    For an unknown platform such as "rlx", JAX emits the platform-independent lowering. Primitives that have only
    platform-specific lowerings are a single op on TPUs.
    """
    return "rlx", "tpu"


@dataclass(frozen=True)
class _PrimitiveCall:
    """A primitive with its parameters, and the abstract values of its operands and results."""

    primitive: Any
    params: dict[str, Any]
    taken: Sequence[Any]
    given: Sequence[Any]


@contextlib.contextmanager
def tracing() -> Generator[None]:
    """Enter the context for tracing and exporting a function by JAX. It converts JAX's errors.

    Raises:
        UnsupportedError: The platform does not support a primitive.
        Error: JAX cannot trace or export the function.
    """
    try:
        yield
    except Exception as problem:
        kind, message = type(problem).__name__, str(problem).strip().partition("\n")[0]
        place = place_of(problem, "jax", "jaxlib", "contextlib")
        hint = None
        if primitive := _WITHOUT_RULE.search(message):
            message = f"the primitive {primitive[1]} of JAX cannot be imported"
        elif "EmitPythonCallback" in message:
            message = "what calls back into Python (pure_callback, io_callback) cannot be imported"
        elif "perturb_singular" in message:
            message = "eigenvectors of eigh_tridiagonal cannot be imported"
            hint = "eigvals_only=True, or jax.numpy.linalg.eigh of the dense matrix"
        elif not isinstance(problem, NotImplementedError):
            raise Error(f"JAX cannot trace the function: {kind}: {message}", location=place) from problem
        raise UnsupportedError(message, hint=hint, location=place) from problem


class PrimitiveCalls:
    """The calls of one export.

    Args:
        depth: The order of the derivative that this export belongs to; 0 for the function itself.
    """

    def __init__(self, depth: int = 0):
        self._depth = depth
        self._calls: list[_CallBuilder] = []

    def export(self, function: Callable[..., Any], args: Sequence[Any], platform: str) -> Any:
        """Return JAX's export of a jitted function.

        Raises:
            UnsupportedError: The platform does not support a primitive.
            Error: JAX cannot trace or export the function.
        """
        export = import_package("jax.export", "rlx.from_jax")
        if _RULES not in inspect.signature(export.export).parameters:
            raise Error(
                "this version of JAX is newer than RLX knows: jax.export.export has changed", hint="jax 0.10 is known"
            )
        with tracing():
            allowed = [export.DisabledSafetyCheck.custom_call(CALL)]
            has_complex = _has_complex(function.trace(*args).jaxpr.jaxpr)
            rules = (
                *((p, self._lowered) for p in self._primitives(has_complex)),
                *((p, _left_out) for p in _unlisted() if p.name in _SHOWN),
            )
            exporting = export.export(function, platforms=[platform], disabled_checks=allowed, **{_RULES: rules})
            exported = exporting(*args)
        if exported.ordered_effects:
            raise UnsupportedError(
                "effects in an order cannot be imported", hint="jax.debug.print without ordered=True"
            )
        return exported

    def _primitives(self, has_complex: bool) -> list[Any]:
        """Return the primitives that become calls: RLX ops and, up to the largest order, those with a derivative."""
        ops = primitives.rules.keys() - (() if has_complex else OF_COMPLEX)
        known = import_package("jax.extend.core.primitives", "rlx.from_jax")
        derived = [n for n in (*_DERIVED, *_BY_COTANGENTS) if self._depth < _ORDERS.get(n, _MOST_ORDERS)]
        found = [getattr(known, f"{name}_p", None) for name in {*ops, *derived}]
        return [p for p in found if p is not None] + [p for p in _unlisted() if p.name in (*ops, *derived)]

    def _lowered(self, context: Any, *operands: Any, **params: Any) -> Any:
        """Lower one of these primitives to a numbered call."""
        ffi = import_package("jax.ffi", "rlx.from_jax")
        call = _PrimitiveCall(context.primitive, params, context.avals_in, context.avals_out)
        self._calls.append(_CallBuilder(call, self._depth))
        return ffi.ffi_lowering(CALL)(context, *operands, number=np.int64(len(self._calls) - 1))

    def __call__(self, g: Graph, number: int, operands: Sequence[Tensor], lifted: bool) -> Sequence[Tensor]:
        """Return the results of a call."""
        return self._calls[number].emitted(g, operands, lifted)


def module_of(exported: Any) -> tuple[mlir.Module, LargeConstants]:
    """Return the module that JAX exported in this process, and its large constants.

    The module does not need another module to be read.

    Raises:
        Error: The bindings cannot read it.
    """
    artifact, constants = of_artifact(exported.mlir_module_serialized)
    with mlir.entered():
        try:
            return mlir.stablehlo().deserialize_portable_artifact(mlir.context(), artifact), constants
        except Exception as problem:
            raise Error(
                f"what JAX exports cannot be read: {problem}", hint="use jax and rlx of the same time"
            ) from problem


def _left_out(context: Any, *_: Any, **__: Any) -> Sequence[Any]:
    """Lowering of primitives that print a value: no ops are emitted, and the order of effects is kept."""
    if context.tokens_in.effects():
        context.set_tokens_out(context.tokens_in)
    return ()


@cache
def _unlisted() -> list[Any]:
    """Return primitives that `jax.extend` does not name, taken from traces that contain them."""
    jax, jnp = import_package("jax", "rlx.from_jax"), import_package("jax.numpy", "rlx.from_jax")
    lax, x = jax.lax, np.ones(1, np.float32)

    def solved(b: Any) -> Any:
        return lax.custom_linear_solve(lambda v: v, b, lambda _, v: v, symmetric=True)

    def of_all(v: Any) -> Any:
        jax.debug.print("{}", v)
        jax.debug.callback(print, v)
        packed = jax.scipy.linalg.qr_multiply(jnp.ones((1, 1)), jnp.ones((1, 1)))  # geqrf and ormqr
        return lax.clamp(v, v, v), jnp.round(v), lax.bitcast_convert_type(v, np.float32), solved(v), packed

    traced = jax.make_jaxpr(of_all)(x)
    return [eqn.primitive for eqn in _equations(traced.jaxpr)]


def _equations(jaxpr: Any) -> Generator[Any]:
    """Yield the equations of a trace and of its inner traces: jitted functions, loops and branches."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in _traces(list(eqn.params.values())):
            yield from _equations(inner)


def _traces(value: Any) -> Generator[Any]:
    """Yield the traces in a parameter of an equation."""
    if isinstance(value, (tuple, list)):
        for element in value:
            yield from _traces(element)
    elif hasattr(value, "eqns"):
        yield value
    elif hasattr(value, "jaxpr"):
        yield from _traces(value.jaxpr)


def _has_complex(jaxpr: Any) -> bool:
    """Return whether a trace computes complex numbers."""
    avals = (v.aval for eqn in _equations(jaxpr) for v in eqn.outvars)
    return any(_is_array(aval) and aval.dtype.kind == "c" for aval in avals)


def _is_array(aval: Any) -> bool:
    return isinstance(getattr(aval, "dtype", None), np.dtype)


class _CallBuilder:
    """The builder of one call.

    Args:
        call: The call.
        depth: The order of the derivative whose export contains the call.
    """

    def __init__(self, call: _PrimitiveCall, depth: int):
        self._call, self._depth = call, depth

    def emitted(self, g: Graph, operands: Sequence[Tensor], lifted: bool) -> Sequence[Tensor]:
        """Return the results for the operands; for each element, if the call takes scalars and they are tensors."""
        # JAX differentiates polygamma only with respect to its second argument.
        is_underived = self._call.primitive.name == _POLYGAMMA and not is_inert(operands[0].value)
        if is_underived or not self._pieces:
            return self._forward(g, operands, lifted)
        if lifted:
            operands = _expanded(g, operands, np.broadcast_shapes(*(x.shape.static for x in operands)))

        def of_same_shape(emit: Callable[..., Sequence[Tensor]], b: Any, *xs: Tensor) -> tuple[Tensor, ...]:
            """Return the emitted results. If the operands are tensors for scalars, the results get their shape."""
            results = emit(b, xs, lifted)
            return tuple(_expanded(b, results, xs[0].shape.dims) if lifted else results)

        rule = dict(self._pieces)
        if (of_cotangents := rule.get("vjp")) is not None:
            rule["vjp"] = lambda args, _, cotangents: of_same_shape(of_cotangents, args[0].builder, *args, *cotangents)
        if (of_tangents := rule.get("jvp")) is not None:
            rule["jvp"] = lambda args, tangents: of_same_shape(of_tangents, args[0].builder, *args, *tangents)
        results = g.custom_fn(lambda *xs: of_same_shape(self._forward, g, *xs), *operands, **rule)
        return [results] if isinstance(results, Tensor) else list(results)

    # --- the function -----------------------------------------------------------------------------

    def _forward(self, g: Graph, operands: Sequence[Tensor], lifted: bool) -> Sequence[Tensor]:
        name = self._call.primitive.name
        if name not in primitives.rules:
            return self._plain(g, operands, lifted)
        return primitives.build(g, name, operands, accepts(name, self._call.params))

    @cached_property
    def _plain(self) -> Callable[..., Sequence[Tensor]]:
        return _piece(self._bound, self._call.taken, _DEEPEST)

    def _bound(self, *args: Any) -> Any:
        """Apply the primitive to JAX arrays."""
        if self._call.primitive.name == "clamp":  # JAX cannot differentiate clamp with scalar bounds of an array
            args = tuple(import_package("jax.numpy", "rlx.from_jax").broadcast_arrays(*args))
        given = self._call.primitive.get_bind_params(dict(self._call.params))
        subfunctions, params = given if isinstance(given, tuple) else ((), given)
        if self._call.primitive.name in _OF_CHLO and dtype(self._call.taken[0].dtype).storage:
            # JAX has no lowering for these narrow dtypes. Widen them as XLA does.
            wide = self._call.primitive.bind(*(a.astype(np.float32) for a in args), **params)
            return [wide.astype(self._call.given[0].dtype)]
        results = self._call.primitive.bind(*subfunctions, *args, **params)
        return list(results) if self._call.primitive.multiple_results else [results]

    # --- the derivative -----------------------------------------------------------------------------

    @cached_property
    def _pieces(self) -> dict[str, Any]:
        """Emitters of JAX's derivative by `custom_fn` argument; empty if there is none or RLX's own suffices."""
        name, taken, given = self._call.primitive.name, self._call.taken, self._call.given
        if not any(map(_is_inexact, taken)) or not any(map(_is_inexact, given)):
            return {}
        if name not in (*_DERIVED, *_FACTORIZATIONS, *_BY_COTANGENTS):
            return {}
        if self._depth >= _ORDERS.get(name, _MOST_ORDERS):
            return {}
        try:
            rule: dict[str, Any] = {}
            if name in (*_BY_COTANGENTS, _SOLVE):
                rule["vjp"] = _piece(self._pulled, [*taken, *given], self._depth + 1)
            if name not in _BY_COTANGENTS:
                rule["jvp"] = _piece(self._pushed, [*taken, *taken], self._depth + 1)
            return rule
        except Error as problem:
            if self._depth or isinstance(problem, UnsupportedError) or not name.startswith("custom_") or name == _SOLVE:
                return {}  # JAX has no derivative
            decorator, message = name.removesuffix("_call"), problem.message.partition(": ")[2]
            if "PyTreeDef" in message:  # JAX's error when the rule uses a traced value of the outside
                message = "it closes over a value that is traced; pass that as an argument"
            return {
                "no_derivative": f"its rule under jax.{decorator} fails: {message}"
            }  # JAX also computes only the values in this case

    def _pushed(self, *flat: Any) -> list[Any]:
        jax, taken = import_package("jax", "rlx.from_jax"), self._call.taken
        args, moved = flat[: len(taken)], flat[len(taken) :]
        if self._call.primitive.name == _BETA:
            return [incomplete_beta.tangent(self._bound, args, moved)]
        if self._call.primitive.name == _POLYGAMMA:
            return list(jax.jvp(lambda x: self._bound(args[0], x)[0], args[1:], moved[1:])[1:])
        tangents = [_tangent(jax, a, t) for a, t in zip(taken, moved, strict=True)]
        results, out = jax.jvp(self._bound, list(args), tangents)
        return [_or_value(r, t) for r, t in zip(results, out, strict=True)]

    def _pulled(self, *flat: Any) -> list[Any]:
        jax, taken = import_package("jax", "rlx.from_jax"), self._call.taken
        args, moved = flat[: len(taken)], flat[len(taken) :]
        # The closed-over values of a function under `custom_vjp` come first. JAX does not differentiate with respect to
        # them.
        count = self._call.params.get("num_consts", 0)
        _, pull = jax.vjp(lambda *explicit: self._bound(*args[:count], *explicit), *args[count:])
        cotangents = pull([_tangent(jax, a, c) for a, c in zip(self._call.given, moved, strict=True)])
        unmoved = [jax.numpy.zeros_like(a) if _is_inexact(a) else a for a in args[:count]]
        return [*unmoved, *(_or_value(a, c) for a, c in zip(args[count:], cotangents, strict=True))]


def _expanded(g: Graph, tensors: Sequence[Tensor], dims: Any) -> list[Tensor]:
    return [g.expand(x, dims) for x in tensors]


def _is_inexact(aval: Any) -> bool:
    jax = import_package("jax", "rlx.from_jax")
    return bool(jax.dtypes.issubdtype(aval.dtype, np.inexact))


def _tangent(jax: ModuleType, aval: Any, given: Any) -> Any:
    """Return a tangent or cotangent in the form that JAX accepts. For integers this is a `float0` array."""
    return given if _is_inexact(aval) else np.zeros(aval.shape, jax.dtypes.float0)


def _or_value(value: Any, tangent: Any) -> Any:
    """Return a tangent or cotangent. Integers and keys have none; for these, return a value of the same shape."""
    return tangent if _is_inexact(value) else value


def _piece(function: Callable[..., Any], avals: Sequence[Any], depth: int) -> Callable[..., Sequence[Tensor]]:
    """Export a JAX function by itself, and return a function that emits it.

    The returned function takes the graph, the operands, and whether they are tensors for scalars (`lifted`).

    Raises:
        Error: JAX cannot trace or export it.
    """
    jax = import_package("jax", "rlx.from_jax")
    kinds = [_key_kind(jax, a) for a in avals]

    def of_data(*given: Any) -> list[Any]:
        args = [x if k is None else jax.random.wrap_key_data(x, impl=k) for x, k in zip(given, kinds, strict=True)]
        return [jax.random.key_data(r) if _key_kind(jax, r) else r for r in function(*args)]

    def of_aval(aval: Any, kind: str | None) -> Any:
        size = () if kind is None else jax.random.key_data(jax.random.key(0, impl=kind)).shape
        return jax.ShapeDtypeStruct((*aval.shape, *size), aval.dtype if kind is None else np.uint32)

    kept = PrimitiveCalls(depth)
    args = [of_aval(a, k) for a, k in zip(avals, kinds, strict=True)]
    module, constants = module_of(kept.export(jax.jit(of_data, keep_unused=True), args, platforms()[0]))

    def emit(g: Graph, operands: Sequence[Tensor], lifted: bool = False) -> list[Tensor]:
        return inlined(module, g, operands, largest_literal=math.inf, kept=kept, lifted=lifted, constants=constants)

    return emit


def _key_kind(jax: ModuleType, aval: Any) -> str | None:
    """Return the name of the generator of a typed key; None for any other value."""
    if not jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return None
    kinds = ("threefry2x32", "rbg", "unsafe_rbg")
    return next((k for k in kinds if jax.random.key(0, impl=k).dtype == aval.dtype), None)
