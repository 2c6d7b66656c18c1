"""Random numbers: a counter-based generator in integer arithmetic, and distributions that use its words.

The same seed gives the same words on every device, and the same uniform numbers to the last bit: their computation has
no rounding that a compiler may move. Normal numbers agree to a few ulp, like logarithm and sine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import FLOATS, DType, f32, f64, i32, i64, u8
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import DTypeLike, Flags, ShapeLike, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape, as_dtype
from rlx.ops.elementwise.elementwise import convert
from rlx.ops.lift import cast, tensor_like
from rlx.ops.norm import statistics_input
from rlx.ops.reduction.order import Argsort
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer

# --- the generator ----------------------------------------------------------------------------------

# Constants of Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


W = TypeVar("W")


class WordArithmetic(Protocol[W]):
    """The operations on unsigned 32-bit words that Philox needs, for any representation of the words."""

    def product(self, x: W, factor: int) -> tuple[W, W]:
        """Return the low and high word of `x·factor`."""
        ...

    def flipped(self, x: W, y: W) -> W:
        """Return the bitwise exclusive or."""
        ...

    def increased(self, x: W, step: int) -> W:
        """Return the wrapping sum."""
        ...


def philox(arithmetic: WordArithmetic[W], counter: Sequence[W], key: Sequence[W]) -> tuple[W, W, W, W]:
    """Return the four words of a block, from the four words of its counter and the two words of a key."""
    a, b, c, d = counter
    k, m = key
    for number in range(_ROUNDS):
        if number:
            k, m = arithmetic.increased(k, _KEY_STEPS[0]), arithmetic.increased(m, _KEY_STEPS[1])
        low, high = arithmetic.product(a, _MULTIPLIERS[0])
        other_low, other_high = arithmetic.product(c, _MULTIPLIERS[1])
        a = arithmetic.flipped(arithmetic.flipped(other_high, b), k)
        c = arithmetic.flipped(arithmetic.flipped(high, d), m)
        b, d = other_low, low
    return a, b, c, d


class ArrayArithmetic:
    """Words as arrays of `uint32`."""

    def product(self, x: np.ndarray, factor: int) -> tuple[np.ndarray, np.ndarray]:
        wide_product = x.astype(np.uint64) * np.uint64(factor)
        return wide_product.astype(np.uint32), (wide_product >> np.uint64(32)).astype(np.uint32)

    def flipped(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x ^ y

    def increased(self, x: np.ndarray, step: int) -> np.ndarray:
        return x + np.uint32(step)


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the low and high word of 64-bit integers."""
    wide = np.atleast_1d(x).astype(np.int64).view(np.uint64)
    return wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)


def words(seed: np.ndarray, count: int) -> np.ndarray:
    """Return the first words of a seed's stream, as `uint32`."""
    low, high = _halves(np.arange(-(-count // 4)))
    zero = np.zeros_like(low)
    return np.stack(philox(ArrayArithmetic(), (low, high, zero, zero), _halves(seed)), 1).reshape(-1)[:count]


# --- user calls -------------------------------------------------------------------------------------


def seed_tensor(b: Builder, seed: TensorLike | None) -> Tensor:
    """Return a seed as a scalar tensor.

    A signed or unsigned 64-bit Python integer becomes a constant. None is the next number of the graph: 0, 1, ….

    Raises:
        ShapeError: The seed is not an integer, or needs more bits.
    """
    if seed is None:
        seed = b.new_seed()
    if isinstance(seed, (Tensor, np.ndarray)):
        return tensor_like(b, seed, i64)
    if not is_integer(seed):
        raise ShapeError(f"the seed must be an integer or a scalar integer tensor, got {seed!r}")
    if not -(2**63) <= seed < 2**64:
        raise ShapeError(f"the seed must have 64 bits, got {seed}")
    return b.emit("constant", (), value=np.asarray(int(seed) % 2**64, np.uint64).astype(np.int64))


def dims_of(shape: ShapeLike) -> tuple[Dim, ...]:
    """Return the shape of random numbers from a user's value.

    It must be a tuple, because a single number could be a seed.

    Raises:
        ShapeError: It is a single number, or not a shape.
    """
    if isinstance(shape, (int, np.integer)):
        raise ShapeError(f"shape is a tuple of sizes, got {shape}", hint=f"({shape},) is one axis; the seed is seed=")
    sizes: Any = shape
    return Shape(sizes).dims


def check_seed(seed: Shape) -> None:
    """Check that a seed is a scalar.

    Raises:
        ShapeError: It is not a scalar.
    """
    if seed.rank:
        raise ShapeError(f"the seed must be a scalar, got {seed}")


class RandomBits(Card, op="random_bits"):
    def infer(self, seed: Shape, *, shape: tuple[Dim, ...]) -> Shape:
        check_seed(seed)
        return Shape(shape, "u32")

    def evaluate(self, seed: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
        return words(seed, math.prod(shape)).reshape(shape)

    def build(self, b: Builder, seed: TensorLike, shape: ShapeLike) -> Tensor:
        return b.emit("random_bits", (seed_tensor(b, seed),), shape=dims_of(shape))

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, shape: tuple[Dim, ...]) -> Tensor:
        def step(_: None, seed: Tensor) -> tuple[None, Tensor]:
            return None, b.random_bits(seed, shape)

        return b.scan(step, None, operands[0])[1]

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        # For four words, every round has two products of two words each, four exclusive ors and two sums.
        return Cost(_ROUNDS * 10 // 4 * results[0].num_elements, moved_bytes((), results))

    def samples(self) -> Iterable[OpSample]:
        any_seed: Attributes = {"low": -9e18, "high": 9e18}
        yield sample(SampleOperand((), **any_seed), shape=(3, 5))
        yield sample(SampleOperand((), **any_seed), shape=(), dtypes=("i64",))
        yield sample(SampleOperand((), **any_seed), shape=(8,), dtypes=("i64",))
        yield sample(SampleOperand((), **any_seed), shape=(2, 0), dtypes=("i64",))
        yield sample(SampleOperand((), **any_seed), shape=("n", 3), dtypes=("i64",))


class _Numbers(Card):
    """Floats of a distribution with two parameters, which are attributes."""

    def _infer(self, seed: Shape, shape: tuple[Dim, ...], dtype: DType, **parameters: float) -> Shape:
        check_seed(seed)
        if not dtype.is_float:
            raise ShapeError(f"dtype must be a float dtype, got {dtype.name}")
        kind = _computed_in(dtype)
        for name, value in parameters.items():
            with np.errstate(over="ignore"):
                if not np.isfinite(kind.numpy.type(value)):
                    raise ShapeError(f"{name} must be finite in {kind.name}, got {value}")
        return Shape(shape, dtype)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(90 * results[0].num_elements, moved_bytes((), results))


def _computed_in(dtype: DType) -> DType:
    return f64 if dtype is f64 else f32


class RngUniform(_Numbers, op="rng_uniform"):
    def infer(self, seed: Shape, *, shape: tuple[Dim, ...], low: float, high: float, dtype: DType) -> Shape:
        # Rounding of the upper half may exceed the limits.
        return self._infer(seed, shape, dtype, low=low, high=high, **{"high - low": (high - low) * (1 + 2.0**-12)})

    def decompose(
        self, b: Builder, seed: Tensor, *, shape: tuple[Dim, ...], low: float, high: float, dtype: DType
    ) -> Tensor:
        kind = _computed_in(dtype)
        if kind is f64:
            first, second = _two_words(b, seed, shape)
            below = cast(b, cast(b, cast(b, second, f64) * 2.0**-11, second.dtype), f64)  # its upper 21 bits
            unit = cast(b, first, f64) * 2.0**-32 + below * 2.0**-53
        else:
            unit = _upper_bits(b, b.random_bits(seed, shape)) * 2.0**-32
        return cast(b, _spread(b, unit, kind.numpy.type(low), kind.numpy.type(high - low)), dtype)

    def build(
        self,
        b: Builder,
        shape: ShapeLike,
        seed: TensorLike | None = None,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DTypeLike = f32,
    ) -> Tensor:
        attributes: Attributes = {"shape": dims_of(shape), "low": low, "high": high, "dtype": as_dtype(dtype)}
        return b.emit("rng_uniform", (seed_tensor(b, seed),), **attributes)

    def samples(self) -> Iterable[OpSample]:
        any_seed: Attributes = {"low": -9e18, "high": 9e18}
        yield sample(SampleOperand((), **any_seed), shape=(3, 5), dtype=f32)
        for name in ("f16", "bf16", "f64"):
            yield sample(SampleOperand((), **any_seed), shape=(3, 5), dtype=name, dtypes=("i64",))
        yield sample((), shape=(2, 7), low=-1.3, high=2.9, dtype=f32, dtypes=("i32",))
        yield sample((), shape=("n", 3), low=-1.3, high=2.9, dtype=f64, dtypes=("u32",))


def _two_words(b: Builder, seed: Tensor, shape: Sequence[Dim]) -> list[Tensor]:
    """Return two words for each element: the first and the second half of a stream."""
    bits = b.random_bits(seed, (2, *shape))
    return [b.reshape(b.narrow(bits, 0, i, 1), shape) for i in range(2)]


def _upper_bits(b: Builder, bits: Tensor) -> Tensor:
    """Return words without their lower 8 bits as f32, which represents the other bits exactly."""
    return cast(b, bits - cast(b, cast(b, bits, u8), bits.dtype), f32)


def _spread(b: Builder, unit: Tensor, low: Any, scale: Any) -> Tensor:
    """Return `low + scale·unit`, with the same bits whether or not a compiler fuses multiplications and additions.

    A fused multiply-add does not round the product. Here products are exact anyway: factors are split into halves, and
    the products of halves are exact.
    """
    if low == 0:
        return unit * float(scale)
    if abs(math.frexp(scale)[0]) in (0.0, 0.5):  # a power of two
        return unit * float(scale) + float(low)
    digits = np.finfo(scale.dtype).nmant + 1
    half = digits // 2
    fraction, exponent = math.frexp(scale)
    coarse_scale = math.ldexp(round(math.ldexp(fraction, half)), exponent - half)
    fine_scale = float(scale) - coarse_scale  # signed, and therefore one digit shorter than the remainder
    upper = 2.0 ** (digits - half)
    coarse = cast(b, cast(b, unit * upper, i32), unit.dtype) * (1 / upper)
    fine = unit - coarse
    products = fine * fine_scale + coarse * fine_scale + fine * coarse_scale + coarse * coarse_scale
    return products + float(low)


class RngNormal(_Numbers, op="rng_normal"):
    def infer(self, seed: Shape, *, shape: tuple[Dim, ...], mean: float, std: float, dtype: DType) -> Shape:
        return self._infer(seed, shape, dtype, mean=mean, std=std)

    def evaluate(
        self, seed: np.ndarray, *, shape: tuple[int, ...], mean: float, std: float, dtype: DType
    ) -> np.ndarray:
        first, second = words(seed, 2 * math.prod(shape)).reshape(2, *shape)
        if dtype is not f64:
            first, second = first.astype(np.float32), second - second % 256
        radius = np.sqrt(-2 * np.log(np.maximum(first.astype(np.float64), 0.5) * 2.0**-32))
        quarter = 0.25 - np.minimum(second * 2.0**-32, 1 - second * 2.0**-32)
        return convert(np.asarray(mean + std * radius * np.sin(2 * np.pi * quarter)), dtype)

    def decompose(
        self, b: Builder, seed: Tensor, *, shape: tuple[Dim, ...], mean: float, std: float, dtype: DType
    ) -> Tensor:
        first, second = _two_words(b, seed, shape)
        kind = _computed_in(dtype)
        # 0 has no logarithm, so half a step is used instead.
        radius = b.sqrt(b.log(b.maximum(cast(b, first, kind), 0.5) * 2.0**-32) * -2.0)
        turn = (cast(b, second, f64) if kind is f64 else _upper_bits(b, second)) * 2.0**-32
        # cos(2π·turn) as a sine: near its zeros, the distance to them is exact.
        sine = b.sin((0.25 - b.minimum(turn, 1.0 - turn)) * (2 * math.pi))
        return cast(b, radius * sine * std + mean, dtype)

    def build(
        self,
        b: Builder,
        shape: ShapeLike,
        seed: TensorLike | None = None,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DTypeLike = f32,
    ) -> Tensor:
        attributes: Attributes = {"shape": dims_of(shape), "mean": mean, "std": std, "dtype": as_dtype(dtype)}
        return b.emit("rng_normal", (seed_tensor(b, seed),), **attributes)

    def samples(self) -> Iterable[OpSample]:
        any_seed: Attributes = {"low": -9e18, "high": 9e18}
        yield sample(SampleOperand((), **any_seed), shape=(3, 5), dtype=f32)
        for name in ("f16", "bf16", "f64"):
            yield sample(SampleOperand((), **any_seed), shape=(3, 5), dtype=name, dtypes=("i64",))
        yield sample((), shape=(2, 7), mean=-1.5, std=0.25, dtype=f32, dtypes=("i32",))
        yield sample((), shape=("n", 3), dtype=f32, dtypes=("u8",))
        yield sample((), shape=(0,), dtype=f32, dtypes=("i32",))


# --- sampling ---------------------------------------------------------------------------------------

_LEAST_TEMPERATURE = 2.0**-126  # the smallest normal f32; compiled programs flush smaller values to 0


class Sample(Card, op="sample"):
    """Sampling of class ids. Two devices may return different ids for the same seed.

    The id depends on comparisons of f32 sums (f64 for f64 logits), which devices add in different orders, and on
    exponentials with errors of a few ulp. Ids differ where `u·total` is within that rounding error, about 1e-7 of the
    total, of a cumulative probability, or where `top_p·total` is that close to one that decides the kept classes. The
    chance is about 1e-7 for each class that is more likely than that: once in 200 000 draws from 50 classes, once in a
    thousand from 32 000. Ties of logits do not matter: their order is exact.
    """

    def infer(self, logits: Shape, seed: Shape, *, temperature: float, top_k: int, top_p: float) -> Shape:
        check_seed(seed)
        if not logits.rank:
            raise ShapeError("logits must be […, V], got a scalar")
        count = logits.dims[-1]
        if count == 0:
            raise ShapeError(f"the last axis of {logits} is empty: there are no classes")
        if 0 < temperature < _LEAST_TEMPERATURE:
            raise ShapeError(f"temperature must be 0 or a normal f32, got {temperature}")
        if type(count) is int and top_k > count:
            raise ShapeError(f"top_k = {top_k} does not fit {count} classes", hint="0 takes all classes")
        return Shape(logits.dims[:-1], "i32")

    def requires(self, logits: Shape, seed: Shape, *, top_k: int, **_: object) -> list[tuple[Dim, str]]:
        least = max(top_k, 1)
        return [(logits.dims[-1] - least, f"{logits.dims[-1]} classes are less than {least}")]

    def evaluate(
        self, logits: np.ndarray, seed: np.ndarray, *, temperature: float, top_k: int, top_p: float
    ) -> np.ndarray:
        wide, count = logits.astype(np.float64), logits.shape[-1]
        order = Argsort().evaluate(logits, axis=logits.ndim - 1, descending=True)
        largest = order[..., 0]
        if temperature == 0:
            return largest
        if not (top_k or top_p < 1):
            order = np.broadcast_to(np.arange(count, dtype=np.int32), logits.shape)
        order = order[..., : top_k or count]
        weights = np.exp((wide - wide.max(-1, keepdims=True)) / temperature)
        weights = np.take_along_axis(weights, order, -1)
        if top_p < 1:
            reached = np.cumsum(weights, -1) - weights >= top_p * weights.sum(-1, keepdims=True)
            weights = np.where(reached & (np.arange(int(order.shape[-1])) > 0), 0, weights)
        sums = np.cumsum(weights, -1)
        unit = (words(seed, largest.size) >> np.uint32(8)).reshape(largest.shape) * 2.0**-24
        exceeds = (sums > unit[..., None] * sums[..., -1:]) & (weights > 0)
        position_drawn = np.take_along_axis(order, np.argmax(exceeds, -1, keepdims=True), -1)[..., 0]
        return np.where(np.isnan(sums[..., -1]), largest, position_drawn)

    def decompose(
        self, b: Builder, logits: Tensor, seed: Tensor, *, temperature: float, top_k: int, top_p: float
    ) -> Tensor:
        wide, batch = statistics_input(b, logits), logits.shape.dims[:-1]
        largest = b.argmax(wide, -1)
        if temperature == 0:
            return largest
        order = None
        if top_k:
            order = b.topk(wide, top_k)[1]
        elif top_p < 1:
            order = b.argsort(wide, -1, descending=True)
        weights = b.exp((wide - b.max(wide, -1, keep_dims=True)) / temperature)
        if order is not None:
            weights = b.gather_batched(weights, order, axis=-1)
        before = b.cumsum(weights, -1, exclusive=True)
        reached = before + weights
        total = b.max(reached, -1, keep_dims=True)
        if top_p < 1:
            is_first = b.iota((weights.shape.dims[-1],)) == 0
            kept = (before < total * top_p) + is_first
            weights = b.where(kept, weights, 0.0)
            total = b.max(b.where(kept, reached, 0.0), -1, keep_dims=True)
        unit = cast(b, b.reshape(b.rng_uniform(batch, seed), (*batch, 1)), wide.dtype)
        position_drawn = b.argmax((reached > unit * total) * (weights > 0.0), -1, keep_dims=True)
        if order is not None:
            position_drawn = b.gather_batched(order, position_drawn, axis=-1)
        # If the sums cannot be compared (NaN, or infinity minus infinity), the largest logit is taken.
        return b.where(b.reshape(total == total, batch), b.reshape(position_drawn, batch), largest)

    def build(
        self,
        b: Builder,
        logits: Tensor,
        seed: TensorLike | None = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> Tensor:
        attributes: Attributes = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        return b.emit("sample", (logits, seed_tensor(b, seed)), **attributes)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(20 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        seed = SampleOperand((), "i64", low=-9e18, high=9e18)
        yield sample(SampleOperand((5, 7), low=-4, high=4), seed, dtypes=FLOATS)
        yield sample(SampleOperand((5, 7), low=0, high=3), seed, temperature=0.0, dtypes=("f32",))
        yield sample(SampleOperand((8, 9), low=-4, high=4), seed, top_k=3, temperature=0.7, dtypes=("f32", "f16"))
        yield sample(SampleOperand((8, 9), low=-4, high=4), seed, top_p=0.8, dtypes=("f32",))
        yield sample(SampleOperand((6,), low=-4, high=4), SampleOperand((), "u8"), top_k=4, top_p=0.6, dtypes=("f32",))
        yield sample(SampleOperand((0, 4)), seed, dtypes=("f32",))
        yield sample(SampleOperand(("batch", 2, "classes"), low=-4, high=4), seed, temperature=1.5, dtypes=("f32",))
        yield sample(SampleOperand(("batch", "classes+3"), low=-4, high=4), seed, top_k=2, top_p=0.9, dtypes=("f32",))
