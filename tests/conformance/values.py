"""The values that cases run on: random values within the sample's bounds, and special values where they are meaningful."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.op.card import SampleOperand
from tests.conformance.cases import Bindings, Case

# Ops of these families are elementwise, so each special value meets each other one.
ELEMENTWISE_FAMILIES = ("elementwise", "complex")
# Ops that return or order their operands' values without arithmetic: denormals and extremes are as good as any value.
# Reductions count by their kind.
MOVING_FAMILIES = ("shape", "index", "padding")
_MOVING_OPS = ("gather_nd", "argmax", "argmin", "topk", "sort", "argsort", "cummax")
_MOVING_KINDS = ("max", "min", "set")
_SPRINKLED_SETS = 4
_MOST_SETS = 40


@dataclass(frozen=True)
class Values:
    """Arrays for the inputs of a case's graph."""

    name: str
    arrays: tuple[np.ndarray, ...]

    def by_name(self) -> dict[str, np.ndarray]:
        """Return the arrays in the form that `rlx.evaluate` takes."""
        return {f"x{i}": array for i, array in enumerate(self.arrays)}


def generator(*key: object) -> np.random.Generator:
    """Return a random generator that depends only on the key, in every process."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def random_values(case: Case, bindings: Bindings) -> Values:
    """Return values within the sample's bounds."""
    rng = generator(str(case), sorted(bindings.items()))
    shapes = [shape.static for shape in case.shapes(bindings)]
    arrays = [draw(o, d, s, rng) for o, d, s in zip(case.operands, case.dtypes, shapes, strict=False)]
    arrays += [np.zeros(shape, np.uint8) for shape in shapes[len(arrays) :]]
    return Values("random", tuple(arrays))


def draw(operand: SampleOperand, kind: DType, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return an array of one dtype within an operand's bounds."""
    if kind.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if kind.is_complex:
        parts = [rng.uniform(operand.low, operand.high, shape) for _ in range(2)]
        return np.asarray(parts[0] + 1j * parts[1], kind.numpy)
    if kind.is_integer:
        least = int(max(operand.low, kind.min))
        most = max(int(min(operand.high, kind.max)), least + 1)
        count = int(np.prod(shape))
        if operand.distinct and most - least >= count:
            return (least + rng.permutation(most - least)[:count]).reshape(shape).astype(kind.numpy)
        drawn = rng.integers(least, most, shape).astype(kind.numpy)
        return np.sort(drawn) if operand.ascending else drawn
    if operand.distinct:
        count = int(np.prod(shape))
        return rng.permutation(np.linspace(operand.low, operand.high, count)).reshape(shape).astype(kind.numpy)
    drawn = rng.uniform(operand.low, operand.high, shape)
    return (drawn + operand.diagonal * np.eye(shape[-2], shape[-1]) if operand.diagonal else drawn).astype(kind.numpy)


def value_sets(case: Case, bindings: Bindings) -> Iterator[Values]:
    """Yield random values, then special ones."""
    base = random_values(case, bindings)
    yield base
    if not any(array.size for array in base.arrays):
        return
    rng = generator("special", str(case), sorted(bindings.items()))
    sets = _combinations(case, base, rng) if is_elementwise(case) else _sprinkled(case, base, rng)
    for number, arrays in enumerate(sets):
        yield Values(f"special {number}", tuple(arrays))


def is_elementwise(case: Case) -> bool:
    """Return whether every element of the result depends on one element of each operand."""
    return case.card.spec.family in ELEMENTWISE_FAMILIES


def moves_values(case: Case) -> bool:
    """Return whether the op returns or orders values without arithmetic."""
    kinds = [case.sample.attributes.get(name) for name in ("kind", "reduction")]
    return case.op in _MOVING_OPS or any(k in _MOVING_KINDS for k in kinds) or case.card.spec.family in MOVING_FAMILIES


def _combinations(case: Case, base: Values, rng: np.random.Generator) -> Iterator[list[np.ndarray]]:
    """Yield every special value with every other one, in shuffled order, as many at a time as the operands have elements."""
    pools = [special_values(d) for d in case.dtypes]
    total = min(int(np.prod([len(p) for p in pools])), 4096)
    order = rng.permutation(total)
    size = max(array.size for array in base.arrays)
    for start in range(0, min(total, size * _MOST_SETS), size):
        chosen = np.resize(order[start : start + size], size)
        arrays = []
        for pool, array in zip(pools, base.arrays, strict=False):
            positions, chosen_next = chosen % len(pool), chosen // len(pool)
            arrays.append(pool[positions][: array.size].reshape(array.shape))
            chosen = chosen_next
        yield arrays + list(base.arrays[len(arrays) :])


def _sprinkled(case: Case, base: Values, rng: np.random.Generator) -> Iterator[list[np.ndarray]]:
    """Yield random values with a few special ones among them.

    Overflow, underflow and cancellation depend on the order and width of the arithmetic, so ops with arithmetic get
    only NaN and infinities, not extremes. An infinity times a complex number is a matter of convention.
    """
    pools = [special_values(d) if moves_values(case) or d.is_integer else _non_finite(d) for d in case.dtypes]
    if not any(len(pool) for pool in pools):
        return
    for _ in range(_SPRINKLED_SETS):
        arrays = [array.copy() for array in base.arrays]
        for pool, array in zip(pools, arrays, strict=False):
            if len(pool):
                mask = rng.random(array.shape) < 0.08
                array[mask] = rng.choice(pool, int(mask.sum()))
        for operand, array in zip(case.operands, arrays, strict=False):
            if operand.ascending:
                array.sort()
        yield arrays


@cache
def special_values(kind: DType) -> np.ndarray:
    """Return values of a dtype at which functions and conversions have special cases."""
    if kind.is_bool:
        return np.array([False, True])
    if kind.is_integer:
        near = [
            kind.min,
            kind.min + 1,
            kind.max,
            kind.max - 1,
            kind.max // 2,
            0,
            1,
            2,
            3,
            7,
            8,
            31,
            32,
            63,
            64,
            127,
        ]
        near += [-1, -2, -3, -31, -128] if kind.is_signed else [128, 255, 200]
        fitting = [v for v in dict.fromkeys(near) if kind.min <= v <= kind.max]
        return np.array(fitting, kind.numpy)
    if kind.is_complex:
        parts = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-3, 300.0], kind.part.numpy)
        return (parts[:, None] + 1j * parts[None, :]).astype(kind.numpy).ravel()
    if kind.bits <= 8:
        return np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy)
    return _special_floats(kind)


def _special_floats(kind: DType) -> np.ndarray:
    limits = _finfo(kind)
    tiny, least = float(limits.smallest_normal), float(limits.smallest_subnormal)
    positive = [
        0.0,
        least,
        tiny / 2,
        tiny,
        limits.eps,
        0.5,
        1.0,
        1.5,
        2.5,
        3.0,
        0.499999,
        np.pi / 2,
        np.pi,
        4.0,
        20.0,
        88.0,
        90.0,
        708.5,
    ]
    positive += [127.4, 127.6, 128.5, 255.4, 255.6, 32767.5, 65504.0]
    positive += [float(2**k) for k in (7, 8, 15, 16, 31, 32, 63)] + [2.0**31 - 128, 2.0**63 - 2.0**39]
    positive += [float(limits.max) / 2, float(limits.max), np.inf]
    signed = np.array([s * v for v in positive for s in (1.0, -1.0)] + [np.nan])
    with np.errstate(over="ignore"):
        cast = signed.astype(kind.numpy)
    _, first = np.unique(cast.view(f"u{kind.itemsize}"), return_index=True)
    return cast[np.sort(first)]


def _non_finite(kind: DType) -> np.ndarray:
    return np.array([np.nan, np.inf, -np.inf, 0.0, -0.0]).astype(kind.numpy) if kind.is_float else np.array([])


def _finfo(kind: DType) -> np.finfo:
    if not kind.is_numpys_own:
        import ml_dtypes

        return ml_dtypes.finfo(kind.numpy)  # type: ignore[return-value]
    return np.finfo(kind.numpy)
