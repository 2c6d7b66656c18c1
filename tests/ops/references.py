"""Helpers that run single ops with the evaluator, and other libraries on the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlx.ir.dtype import FLOATS as FLOATS
from rlx.ir.dtype import INTEGERS as INTEGERS
from rlx.ir.dtype import DType, dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.op.card import as_results
from rlx.ir.op.registry import card
from rlx.ir.shape import Shape
from tests.conformance.functions import decompose, evaluate_function, merged, primitives
from tests.conformance.tolerance import TOLERANCES, Comparison, flushed
from tests.conformance.values import special_values

# Allowed ulps between evaluator and library, for the errors of both, and how far noise may exceed its typical size.
_ULPS = {"f64": 4, "f32": 4, "f16": 1, "bf16": 1, "c64": 8, "c128": 8}
_ROOM = 12

ACTIVATIONS_IN_JAX: dict[str, Callable[[Any], Any]] = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_approx": lambda x: jax.nn.gelu(x, approximate=True),
    "silu": jax.nn.silu,
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "exp": jnp.exp,
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "neg": jnp.negative,
    "abs": jnp.abs,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "atan": jnp.arctan,
    "round": jnp.round,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "log2": jnp.log2,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "cbrt": jnp.cbrt,
    "erf": jax.lax.erf,
    "erfc": jax.lax.erfc,
    "asin": jnp.arcsin,
    "acos": jnp.arccos,
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "asinh": jnp.arcsinh,
    "acosh": jnp.arccosh,
    "atanh": jnp.arctanh,
}


def run(op: str, *operands: np.ndarray | None, **attributes: Any) -> Any:
    """Run an op on arrays. It returns one array, or a tuple for several results. Absent optional operands are None."""
    graph = Graph(stage=card(op).spec.stage)
    given = {f"x{i}": array for i, array in enumerate(operands) if array is not None}
    tensors = {name: graph.input(name, Shape(a.shape, dtype(a.dtype))) for name, a in given.items()}
    results = graph.emit(op, [tensors.get(f"x{i}") for i in range(len(operands))], **attributes)
    graph.set_outputs(list(as_results(results)))
    found = evaluate(graph, given)
    return found[0] if len(found) == 1 else tuple(found)


def decomposed(op: str, *operands: np.ndarray, **attributes: Any) -> np.ndarray:
    """Run the decomposition of an op on arrays."""
    graph = Graph()
    inputs = [graph.input(f"x{i}", Shape(a.shape, dtype(a.dtype))) for i, a in enumerate(operands)]
    graph.set_outputs(graph.emit(op, inputs, **attributes))
    module = merged([graph])
    decompose(module, primitives())
    function = next(iter(module.body.operations))
    with np.errstate(all="ignore"):
        return evaluate_function(function, operands, {})[0]


_LITTLE_EFFORT = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def jitted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of JAX arrays compiled as a whole with low effort: it runs only once, so compilation dominates."""
    return jax.jit(function, compiler_options=_LITTLE_EFFORT)


def in_jax(function: Callable[..., Any], *arrays: Any) -> Any:
    """Return the results of a function of JAX arrays, with 64-bit dtypes, as NumPy arrays."""
    with jax.enable_x64(True):
        results = function(*(jax.numpy.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays))
        if isinstance(results, (tuple, list)):
            return tuple(np.asarray(r) for r in results)
        return np.asarray(results)


def agree(
    got: np.ndarray,
    reference: np.ndarray,
    *,
    factor: float = 1.0,
    noise: Any = None,
    signed_zeros: bool = False,
    where: np.ndarray | None = None,
    alternative: np.ndarray | None = None,
) -> None:
    """Assert that the evaluator and a library agree within the tolerance of the dtype.

    Args:
        got: The evaluator's result.
        reference: The library's result.
        factor: A factor for the allowed ulps of the dtype, and for the noise.
        noise: Additional tolerance for each element: the typical size of the library's own rounding errors.
        signed_zeros: Whether 0 and -0 differ.
        where: The elements to compare; by default all.
        alternative: Another acceptable result.
    """
    reference = np.asarray(reference)
    if where is not None:
        assert got.shape == reference.shape and got.dtype == reference.dtype
        alternative = None if alternative is None else alternative[where]
        got, reference = got[where], reference[where]
        noise = None if noise is None else np.broadcast_to(noise, where.shape)[where]
    kind = dtype(got.dtype).name
    if kind in _ULPS:
        own = TOLERANCES[kind]
        scaled = factor * _ULPS[kind] / own.ulps
        noise = (
            None if noise is None or not scaled else np.asarray(noise) * _ROOM * factor / (scaled * own.noise_factor)
        )
        factor = scaled
    problem = Comparison(factor, False, signed_zeros).mismatch(got, reference, noise, alternative)
    assert problem is None, f"the evaluator {problem} (second: the library)"


def samples_of(kind: DType | str, count: int = 200, *, low: float = -5, high: float = 5, seed: int = 0) -> np.ndarray:
    """Return special values of a dtype, then random ones."""
    kind = dtype(kind)
    return np.concatenate([special_values(kind), random(kind, (count,), low=low, high=high, seed=seed)])


def special_array(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return special values first, so that they include bits that arithmetic would lose."""
    return np.resize(samples_of(name, 10), shape).astype(dtype(name).numpy)


def same_bits(got: np.ndarray, reference: np.ndarray) -> None:
    """Check that two arrays agree in shape, dtype and every bit."""
    assert got.shape == reference.shape and got.dtype == reference.dtype
    assert got.tobytes() == reference.tobytes()


def random(kind: DType | str, shape: Sequence[int], *, low: float = -5, high: float = 5, seed: int = 0) -> np.ndarray:
    """Return random values of a dtype."""
    kind, rng = dtype(kind), np.random.default_rng(seed)
    if kind.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if kind.is_integer:
        return rng.integers(max(int(low), int(kind.min)), int(high), shape).astype(kind.numpy)
    values = rng.uniform(low, high, shape)
    return (values + 1j * rng.uniform(low, high, shape) if kind.is_complex else values).astype(kind.numpy)


def pairs_of(kind: DType | str) -> tuple[np.ndarray, np.ndarray]:
    """Return every special value of a dtype paired with every other one, then random pairs."""
    special = special_values(dtype(kind))
    left, right = (m.ravel() for m in np.meshgrid(special, special))
    return (
        np.concatenate([left, random(kind, (100,), seed=1)]),
        np.concatenate([right, random(kind, (100,), seed=2)]),
    )


def has_denormals(*arrays: np.ndarray) -> np.ndarray:
    """Return where any array has a denormal, which other libraries treat as 0."""
    return np.logical_or.reduce([(flushed(a) != a) & (a == a) for a in arrays])


def _rounded(value: Any, to: type) -> Any:
    """Return a number of mpmath, and 0 far below the smallest number."""
    import mpmath

    return to(0) if abs(value) < mpmath.mpf(10) ** -400 else to(mpmath.nstr(value, 22))


def of_mpmath(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function to 25 digits, in the dtype of the arguments."""

    def evaluated(x: np.ndarray) -> np.ndarray:
        import mpmath

        with mpmath.workdps(25), np.errstate(all="ignore"):
            return np.array([_rounded(getattr(mpmath, name)(float(v)), x.dtype.type) for v in np.clip(x, -60, 60)])

    return evaluated
