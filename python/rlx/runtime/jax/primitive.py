"""The JAX primitive that computes a program of RLX, with its rules: shapes, lowering, tangents, transpose, batches."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rlx.ir.shape import Shape
from rlx.runtime.jax.programs import JaxProgram, Tangents
from rlx.runtime.jax.spreading import spread
from rlx.support.errors import Error
from rlx.support.packages import import_package

_PURPOSE = "Graph.to_jax"
# JAX disables elements of this many bytes by default. For complex numbers, the limit applies to each part.
_WIDE = 8


def apply(program: JaxProgram, arguments: Sequence[Any]) -> list[Any]:
    """Return the results of a program for JAX arrays or tracers with matching shapes and dtypes."""
    return primitive().bind(*arguments, program=program)


def check_width(what: str, shape: Shape) -> None:
    """Check that JAX supports a dtype.

    Args:
        what: The value with this shape, for the message.
        shape: Its shape, with the dtype.

    Raises:
        Error: It has 64 bits, and JAX is configured for 32.
    """
    parts = 2 if shape.dtype.numpy.kind == "c" else 1
    if shape.dtype.numpy.itemsize // parts >= _WIDE and not import_package("jax", _PURPOSE).config.jax_enable_x64:
        hint = 'jax.config.update("jax_enable_x64", True), or cast it in the graph'
        raise Error(f"{what} is {shape}, and JAX is set to have no {shape.dtype}", hint=hint)


@functools.cache
def primitive() -> Any:
    """Return the primitive `rlx_graph`; its parameter `program` is the program to compute.

    Raises:
        Error: JAX is not installed.
    """
    jax = import_package("jax", _PURPOSE)
    core, ad = import_package("jax.extend.core", _PURPOSE), import_package("jax.interpreters.ad", _PURPOSE)
    batching, mlir = (
        import_package("jax.interpreters.batching", _PURPOSE),
        import_package("jax.interpreters.mlir", _PURPOSE),
    )
    made = core.Primitive("rlx_graph")
    made.multiple_results = True
    compiled = jax.jit(lambda *arguments, program: made.bind(*arguments, program=program), static_argnames="program")
    made.def_impl(compiled)
    made.def_abstract_eval(_abstract)
    mlir.register_lowering(made, _lowered)
    ad.primitive_jvps[made] = _jvp
    ad.primitive_transposes[made] = _transpose
    batching.primitive_batchers[made] = _batch
    return made


def _abstract(*_: Any, program: JaxProgram) -> list[Any]:
    core = import_package("jax.core", _PURPOSE)
    return [core.ShapedArray(shape.static, shape.dtype.numpy) for shape in program.results]


def _lowered(context: Any, *arguments: Any, program: JaxProgram) -> Sequence[Any]:
    """Emit a call of the program's function, which is inserted into JAX's module."""
    mlir, dialects = (
        import_package("jax.interpreters.mlir", _PURPOSE),
        import_package("jax.extend.mlir.dialects.func", _PURPOSE),
    )
    stablehlo, ir = (
        import_package("jax.extend.mlir.dialects.stablehlo", _PURPOSE),
        import_package("jax.extend.mlir.ir", _PURPOSE),
    )
    into = context.module_context.module
    module = stablehlo.deserialize_portable_artifact(into.context, program.artifact)
    (function,) = module.body.operations
    spread(module, context.module_context.axis_context, into)
    types = function.type.results
    name = mlir.merge_mlir_modules(into, f"rlx_{program.name}", module)
    return dialects.CallOp(types, ir.FlatSymbolRefAttr.get(name), arguments).results


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: JaxProgram) -> tuple[list[Any], list[Any]]:
    ad = import_package("jax.interpreters.ad", _PURPOSE)
    wrt = [
        i
        for i, (tangent, shape) in enumerate(zip(tangents, program.arguments, strict=True))
        if type(tangent) is not ad.Zero and shape.dtype.is_inexact
    ]
    if not (wrt and program.float_results):
        results = apply(program, primals)
        return results, [_zero(r) for r in results]
    linearized, count = program.linearized(wrt), len(program.results)
    found = apply(linearized.forward, primals)
    results, residuals = found[:count], found[count:]
    given = [tangents[i] for i in wrt]
    by_position = dict(
        zip(program.float_results, apply(linearized.tangents, [*primals, *given, *residuals]), strict=True)
    )
    return results, [by_position[i] if i in by_position else _zero(r) for i, r in enumerate(results)]


def _zero(result: Any) -> Any:
    """Return the tangent of a result that has none."""
    jax, ad = import_package("jax", _PURPOSE), import_package("jax.interpreters.ad", _PURPOSE)
    return ad.Zero(jax.typeof(result).to_tangent_aval())


def _transpose(cotangents: Sequence[Any], *arguments: Any, program: JaxProgram) -> list[Any]:
    """Return the cotangents of the arguments in which a program is linear.

    RLX's cotangents use the inner product `Re(sum(conj(a)·b))`, JAX's use `Re(sum(a·b))`. The two agree after
    conjugation of inputs and outputs.
    """
    ad, numpy = import_package("jax.interpreters.ad", _PURPOSE), import_package("jax.numpy", _PURPOSE)
    wrt = tuple(i for i, a in enumerate(arguments) if ad.is_undefined_primal(a))
    if not set(wrt) <= set(program.linear):
        raise Error(
            f"JAX asks for the transpose of graph '{program.name}', which need not be linear",
            hint="jax.vjp and jax.linear_transpose of jax.jvp give that of its derivative",
        )
    # A dtype without zero has no cotangent to mark an unused result.
    used = [
        i
        for i, (cotangent, shape) in enumerate(zip(cotangents, program.results, strict=True))
        if type(cotangent) is not ad.Zero or shape.dtype.has_zero
    ]
    if not used:
        return [ad.Zero(a.aval) if i in wrt else None for i, a in enumerate(arguments)]
    if len(used) < len(cotangents):
        program, cotangents = program.restricted(used), [cotangents[i] for i in used]
    given = [numpy.conj(ad.instantiate_zeros(c)) for c in cotangents]
    if isinstance(program, Tangents) and wrt == program.linear:
        count = len(program.of.arguments)
        residuals = arguments[count + len(program.wrt) :]
        results = apply(program.transpose, [*arguments[:count], *given, *residuals])
    else:  # the program is linear, so the point does not matter
        point = [ad.instantiate_zeros(ad.Zero(a.aval)) if i in wrt else a for i, a in enumerate(arguments)]
        results = apply(program.cotangents(wrt), [*point, *given])
    found = dict(zip(wrt, map(numpy.conj, results), strict=True))
    return [found.get(i) for i in range(len(arguments))]


def _batch(
    arguments: Sequence[Any], axes: Sequence[int | None], *, program: JaxProgram
) -> tuple[list[Any], Sequence[int | None]]:
    (size,) = {a.shape[axis] for a, axis in zip(arguments, axes, strict=True) if axis is not None}
    results = apply(program.batched(axes, size), arguments)
    return results, [0] * len(results)
