"""Elementary functions of f32, RLX on IREE against JAX: each in a process on the same core, one thread, alternating."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlx.targets.iree.memory import empty_aligned
from tools.bench_common import Figure, calls_for, cpu_seconds, median_ms, median_ratio, worker

PEERS = ("rlx", "jax")
SIZES = (1 << 14, 1 << 20)  # 64 KiB, which fits in the cache, and 4 MiB
LIMIT = 1.5
_SECONDS_PER_TURN = 0.02
_TOLERANCE = 2e-5

_EVERY, _POSITIVE, _UNIT, _FROM_ONE = (-8.0, 8.0), (0.01, 50.0), (-0.999, 0.999), (1.001, 50.0)

# kind -> JAX's function, as a path from `jax`, and the interval of its operands
UNARY: dict[str, tuple[str, tuple[float, float]]] = {
    "gelu": ("nn.gelu", _EVERY),
    "gelu_approx": ("nn.gelu", _EVERY),
    "silu": ("nn.silu", _EVERY),
    "sigmoid": ("nn.sigmoid", _EVERY),
    "tanh": ("numpy.tanh", _EVERY),
    "exp": ("numpy.exp", _EVERY),
    "log": ("numpy.log", _POSITIVE),
    "sqrt": ("numpy.sqrt", _POSITIVE),
    "rsqrt": ("lax.rsqrt", _POSITIVE),
    "sin": ("numpy.sin", _EVERY),
    "cos": ("numpy.cos", _EVERY),
    "tan": ("numpy.tan", _UNIT),
    "atan": ("numpy.arctan", _EVERY),
    "exp2": ("numpy.exp2", _EVERY),
    "expm1": ("numpy.expm1", _EVERY),
    "log2": ("numpy.log2", _POSITIVE),
    "log10": ("numpy.log10", _POSITIVE),
    "log1p": ("numpy.log1p", _POSITIVE),
    "cbrt": ("numpy.cbrt", _EVERY),
    "erf": ("lax.erf", _EVERY),
    "erfc": ("lax.erfc", _EVERY),
    "asin": ("numpy.arcsin", _UNIT),
    "acos": ("numpy.arccos", _UNIT),
    "sinh": ("numpy.sinh", _EVERY),
    "cosh": ("numpy.cosh", _EVERY),
    "asinh": ("numpy.arcsinh", _EVERY),
    "acosh": ("numpy.arccosh", _FROM_ONE),
    "atanh": ("numpy.arctanh", _UNIT),
    "erfinv": ("scipy.special.erfinv", _UNIT),
    "lgamma": ("scipy.special.gammaln", _POSITIVE),
    "digamma": ("scipy.special.digamma", _POSITIVE),
}
BINARY: dict[str, tuple[str, tuple[float, float]]] = {
    "atan2": ("numpy.arctan2", _EVERY),
    "pow": ("numpy.power", (0.1, 4.0)),
    "fmod": ("numpy.fmod", _EVERY),
}


def measure(rounds: int) -> Iterator[Figure]:
    """Yield milliseconds of each function and size for both, from NumPy array to NumPy array, and the ratio to JAX's.

    Raises:
        ArithmeticError: The results differ.
    """
    with worker() as rlx, worker() as jax:
        for kind in (*UNARY, *BINARY):
            for size in SIZES:
                yield from _measure({"rlx": rlx, "jax": jax}, kind, size, rounds)


def _measure(workers: dict[str, Any], kind: str, size: int, rounds: int) -> Iterator[Figure]:
    seconds: dict[str, list[float]] = {peer: [] for peer in PEERS}
    results = {peer: w.submit(_open, peer, kind, size).result() for peer, w in workers.items()}
    error = np.max(np.abs(results["rlx"] - results["jax"]) / np.maximum(np.abs(results["jax"]), 1))
    if not error < _TOLERANCE:
        raise ArithmeticError(f"{kind}: rlx and jax differ by {error:.2g}")
    calls = {peer: w.submit(_calls).result() for peer, w in workers.items()}
    for number in range(rounds):
        for peer in PEERS if number % 2 else reversed(PEERS):
            seconds[peer].append(workers[peer].submit(_turn, calls[peer]).result())
    for peer in PEERS:
        yield Figure(f"{kind}, {size} elements: {peer}", median_ms(seconds[peer]), "ms")
    yield Figure(f"{kind}, {size} elements: to jax's", median_ratio(seconds["rlx"], seconds["jax"]), "x", LIMIT)


# --- in the peer's process --------------------------------------------------------------------------

_prepared: dict[str, Callable[[], Any]] = {}


def _open(peer: str, kind: str, size: int) -> np.ndarray:
    """Prepare a function and return its first results."""
    name, (low, high) = (UNARY | BINARY)[kind]
    random = np.random.default_rng(1)
    operands = [_aligned(random.uniform(low, high, size)) for _ in range(2 if kind in BINARY else 1)]
    _prepared["call"] = (_rlx if peer == "rlx" else _jax)(kind, name, operands)
    return np.array(_prepared["call"]()[:4096])


def _aligned(values: np.ndarray) -> np.ndarray:
    """Return the values as f32, aligned so that both libraries use them without a copy.

    NumPy's own arrays have this alignment by chance in one case of four.
    """
    array = empty_aligned(values.shape, np.float32)
    array[...] = values
    return array


def _rlx(kind: str, _: str, operands: list[np.ndarray]) -> Callable[[], np.ndarray]:
    import rlx

    g = rlx.Graph(kind)
    inputs = {f"x{i}": array for i, array in enumerate(operands)}
    tensors = [g.input(name, array.shape) for name, array in inputs.items()]
    g.set_outputs([getattr(g, kind)(*tensors)])
    program = rlx.Session("cpu", threads=1).compile(g)
    return lambda: program.run(inputs)[0]


def _jax(kind: str, name: str, operands: list[np.ndarray]) -> Callable[[], np.ndarray]:
    import jax

    function: Any = jax
    for part in name.split("."):
        function = getattr(function, part)
    options = {"approximate": kind == "gelu_approx"} if name == "nn.gelu" else {}
    compiled = jax.jit(functools.partial(function, **options))
    return lambda: np.asarray(compiled(*operands))


def _calls() -> int:
    return calls_for(_prepared["call"], _SECONDS_PER_TURN)


def _turn(calls: int) -> float:
    _prepared["call"]()
    return cpu_seconds(_prepared["call"], calls)
