"""Cases of the ops that have kernels: the samples of their cards, and sizes around those of vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from rlx.ir.op import opview
from rlx.ir.op.card import OpSample, SampleOperand, sample
from rlx.kernels.registry import load
from rlx.passes.rewrite import collect
from rlx.passes.runner import clone_module, run_on_module
from tests.conformance.cases import Case, cases
from tests.kernels.loop_samples import scans, whiles
from tests.kernels.packed_samples import cached_attentions, packed_rows, products, rotations

# Columns: fewer than a vector, one, several steps of an unrolled loop, and one more or less.
COLUMNS = (1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 131, 300)
_FLOATS = ("f32",)
_REAL = ("f32", "f64")
_PRODUCTS = ("f32", "bf16")
_COMPLEX = ("c64",)
_FOUR_BYTES = ("f32", "i32", "u32")


def _rows(*more: str, **attributes: Any) -> Iterator[OpSample]:
    """Samples with rows of each length; more operands have the shape of a row."""
    for columns in COLUMNS:
        yield sample((2, columns), *[(columns,)] * len(more), dtypes=_FLOATS, axis=1, **attributes)
    yield sample((3, 2, "n"), *[("n",)] * len(more), dtypes=_FLOATS, axis=2, **attributes)
    yield sample((1200, 16), *[(16,)] * len(more), dtypes=_FLOATS, axis=1, **attributes)
    yield sample(("n", 0), *[(0,)] * len(more), dtypes=_FLOATS, axis=1, **attributes)


def _residual_rows() -> Iterator[OpSample]:
    for columns in COLUMNS:
        yield sample((3, columns), (3, columns), (columns,), (columns,), (columns,), dtypes=_FLOATS)
    yield sample(("n", 40), ("n", 40), None, (40,), (40,), dtypes=_FLOATS)


def _reductions() -> Iterator[OpSample]:
    for kind in ("sum", "mean", "prod", "max", "min"):
        dtypes = ("f32", "f64") if kind == "mean" else ("f32", "f64", "i8", "i32", "u16")
        for columns in (1, 7, 33, 100):
            yield sample((5, columns), dtypes=dtypes, kind=kind, axes=(1,))
            yield sample((19, columns), dtypes=dtypes, kind=kind, axes=(0,))
        yield sample((2, "m", "n"), dtypes=dtypes, kind=kind, axes=(1,), keep_dims=True)
        yield sample(("m", 3, "n"), dtypes=dtypes, kind=kind, axes=(1, 2))
    yield sample((3, 9000), dtypes=_FLOATS, kind="sum", axes=(1,))
    yield sample((5000, 1030), dtypes=_FLOATS, kind="mean", axes=(0,))


def _scans(**attributes: Any) -> Iterator[OpSample]:
    dtypes = ("f32", "f64", "i32", "u64")
    for columns in COLUMNS:
        yield sample((2, columns), dtypes=dtypes, axis=1, **attributes)
    yield sample((3, "m", "n"), dtypes=dtypes, axis=1, **attributes)
    yield sample(("m", "n"), dtypes=dtypes, axis=1, **attributes)
    yield sample((4, 1030), dtypes=_FLOATS, axis=0, **attributes)
    yield sample(("n", 0), dtypes=_FLOATS, axis=1, **attributes)


def _products(kind: str) -> Iterator[OpSample]:
    """Fewer and more rows and columns than a tile, and more terms than a block of scratch memory holds."""
    for rows, inner, columns in (
        (1, 3, 5),
        (4, 7, 12),
        (9, 16, 24),
        (8, 5, 48),
        (5, 3, 49),
        (13, 2100, 7),
        ("n", 6, 31),
    ):
        x, w, row, result = (rows, inner), (inner, columns), (columns,), (rows, columns)
        # A sum of thousands of terms in order has the errors of as many roundings.
        tolerance = 1.0 if inner < 1000 else 40.0
        if kind == "matmul":
            yield sample(x, w, dtypes=_PRODUCTS, tolerance=tolerance)
            yield sample(x, (inner, 1), dtypes=_PRODUCTS, tolerance=tolerance)
            yield sample((2, 2, inner), (inner, 500 + columns), dtypes=_PRODUCTS, tolerance=tolerance)
        elif kind == "act":
            for activation in (None, "gelu", "gelu_approx", "silu", "relu", "sigmoid", "tanh"):
                yield sample(x, w, row, dtypes=_PRODUCTS, tolerance=tolerance, activation=activation)
        else:
            yield sample(x, w, result, None, dtypes=_PRODUCTS, tolerance=tolerance)
            yield sample(x, w, result, row, dtypes=_PRODUCTS, tolerance=tolerance)


def _transposed_products() -> Iterator[OpSample]:
    """Few rows and many, and rows of the matrix that fill no vector, several, and more than a block."""
    for rows, inner, columns in (
        (1, 3, 5),
        (1, 64, 130),
        (2, 33, 9),
        (3, 100, 6),
        (8, 17, 7),
        (9, 16, 49),
        ("n", 300, 31),
    ):
        for dtype in ("f32", "f16", "bf16"):
            yield sample((rows, inner), SampleOperand((columns, inner), dtype), dtypes=_FLOATS, tolerance=10.0)
    yield sample((2, 3, 20), (50, 20), dtypes=_FLOATS)
    yield sample((9,), SampleOperand((50, 9), "bf16"), dtypes=_FLOATS)
    yield sample(("m", "n", 8), (12, 8), dtypes=_FLOATS)
    yield sample((1, 2100), SampleOperand((11, 2100), "bf16"), dtypes=_FLOATS, tolerance=40.0)


def _attentions() -> Iterator[OpSample]:
    """Fewer and more queries than a block, more keys than are scored at once, widths that fill no vector, fewer key heads."""
    for kind in ("none", "causal", "sliding_window", "custom", "bias"):
        window = 5 if kind == "sliding_window" else None
        for queries, keys, width, value_width in ((1, 1, 4, 4), (30, 70, 16, 20), (49, 33, 20, 8)):
            mask = {"custom": SampleOperand((2, keys), "bool"), "bias": SampleOperand((2, 1, 1, keys))}.get(kind)
            shapes = (2, 4, queries, width), (2, 2, keys, width), (2, 2, keys, value_width)
            yield sample(*shapes, mask, num_heads=4, head_dim=width, mask_kind=kind, window=window, dtypes=_FLOATS)
    open_sizes = ("batch", "seq", 16)
    yield sample(*[open_sizes] * 3, None, num_heads=2, head_dim=8, dtypes=_FLOATS)
    yield sample(*[(1, 1, 65, 256)] * 3, None, num_heads=1, head_dim=256, dtypes=_FLOATS)  # the widest


def _sorts() -> Iterator[OpSample]:
    """Rows that are sorted by ranks and by digits, with items between passes in scratch memory and elsewhere."""
    for descending in (False, True):
        for columns in (1, 3, 8, 17, 63):
            yield sample((2, columns), dtypes=_FLOATS, axis=1, descending=descending)
        for columns in (33, 300):
            yield sample(
                SampleOperand((2, columns), low=-20, high=20), dtypes=("i32", "u32"), axis=1, descending=descending
            )
        yield sample((3, "m", "n"), dtypes=_FOUR_BYTES, axis=2, descending=descending)
        yield sample(("m", "50*n"), dtypes=_FLOATS, axis=1, descending=descending)
    # The longest rows sorted by ranks, or in scratch memory, and longer ones.
    for columns in (64, 65, 128, 129, 256, 257, 4097):
        yield sample((2, columns), dtypes=_FLOATS, axis=1)
    yield sample((70000,), dtypes=_FLOATS, axis=0)
    yield sample((0, 20), dtypes=_FLOATS, axis=1)


def _elementary() -> Iterator[OpSample]:
    """Small numbers, and numbers that need the long way of reduction."""
    for kind in ("sin", "cos", "atan"):
        for columns in COLUMNS:
            yield sample((2, columns), dtypes=_FLOATS, kind=kind)
        for limit in (100.0, 3e4, 1e30):
            yield sample(SampleOperand((300,), low=-limit, high=limit), dtypes=_FLOATS, kind=kind)
        yield sample(("n", 100), dtypes=_FLOATS, kind=kind)
        yield sample((), dtypes=_FLOATS, kind=kind)


def _extremes() -> Iterator[OpSample]:
    """Rows with ties, of lengths around those of vectors."""
    for columns in COLUMNS:
        ties = SampleOperand((3, columns), low=0, high=4)
        yield sample(ties, dtypes=("f32", "i32"), axis=1)
        yield sample((2, 2, columns), dtypes=_FLOATS, axis=2, keep_dims=True)
    for columns in (255, 256, 257, 512, 700):  # around blocks
        yield sample((5, columns), dtypes=("f32", "i32"), axis=1)
        yield sample(SampleOperand((5, columns), low=0, high=3), dtypes=("f32", "i32"), axis=1)
    yield sample(("m", "n"), dtypes=("f32", "i32"), axis=1)
    yield sample(("m", "300*n"), dtypes=("f32", "i32"), axis=1)


def _selections() -> Iterator[OpSample]:
    """The greatest elements: one, all, and heaps of different shapes."""
    for columns in (1, 3, 8, 17, 65, 131):
        for count in dict.fromkeys((1, min(2, columns), columns // 2 or 1, columns)):
            yield sample((2, columns), dtypes=_FLOATS, k=count)
    for count in (1, 5, 50):
        yield sample(SampleOperand((2, 1000), low=0, high=9), dtypes=_FOUR_BYTES, k=count)
        yield sample(("m", 70), dtypes=_FLOATS, k=count)
    yield sample((2, "n"), dtypes=_FLOATS, k=1)
    yield sample((2, "50*n"), dtypes=_FLOATS, k=40)
    yield sample((0, 20), dtypes=_FLOATS, k=3)


def _lookups(kind: str) -> Iterator[OpSample]:
    """Rows around the size of a vector, of several axes, with indices outside of the table."""
    several = (*_FOUR_BYTES, "f64", "i8", "bool")
    wide: dict[str, Any] = {"low": -3, "high": 9}
    for columns in (1, 7, 8, 33):
        for index in ("i32", "u8", "i64"):
            places = SampleOperand((4, 2), index, low=0 if index == "u8" else -3, high=9)
            if kind == "gather":
                yield sample((5, columns), places, axis=0, dtypes=several)
                yield sample((3, 5, 2, columns), places, axis=1, dtypes=_FLOATS)
            elif kind == "embedding":
                yield sample((5, columns), places, dtypes=_FLOATS)
            else:
                yield sample((4, 2, columns), places, size=(5,), dtypes=_FOUR_BYTES)
    places = SampleOperand(("m",), "i32", **wide)
    if kind == "gather":
        yield sample(("k", "n", "j"), places, axis=1, dtypes=_FLOATS)
    elif kind == "embedding":
        yield sample(("n", "j"), places, dtypes=_FLOATS)
    else:
        yield sample(("m", "j"), places, size=("n",), dtypes=_FLOATS)
        yield sample((3, 700), SampleOperand((3,), "i32", **wide), size=(4,), dtypes=_FLOATS)


def _sparse_rows(op: str) -> Iterator[OpSample]:
    """Rows of vectors of several lengths; offsets and columns outside of the matrix; rows of one known length."""
    for inner in ((), (1,), (7,), (8,), (33,), (2, 9)):
        for index in ("i32", "i64"):
            columns = SampleOperand((23,), index, low=-2, high=8)
            offsets = SampleOperand((7,), index, low=-3, high=27, ascending=True)
            x, y = (6, *inner), (5, *inner)
            if op == "csr_matmul":
                yield sample((23,), columns, offsets, y, dtypes=_REAL)
            elif op == "csr_matmul_transposed":
                yield sample((23,), columns, offsets, x, columns=(5,), dtypes=_REAL)
            else:
                yield sample(columns, offsets, x, y, dtypes=_REAL)
    columns, offsets = SampleOperand(("z",), "i32", low=-1, high=6), SampleOperand((4,), "i32", high=5, ascending=True)
    if op == "csr_matmul":
        yield sample(("z",), columns, offsets, ("n", "k"), dtypes=_REAL)
    elif op == "csr_matmul_transposed":
        yield sample(("z",), columns, offsets, (3, "k"), columns=("n",), dtypes=_REAL)
    else:
        yield sample(columns, offsets, (3, "k"), ("n", "k"), dtypes=_REAL)


def _updates() -> Iterator[OpSample]:
    """Rows that are replaced or added to, several times too, at one index or at tuples of indices."""
    wide: dict[str, Any] = {"low": -2, "high": 6}
    for reduction in ("set", "add"):
        for columns in (1, 7, 8, 33):
            pairs, single = SampleOperand((4, 2), "i32", **wide), SampleOperand((6, 1), "i64", **wide)
            yield sample((5, 3, columns), pairs, (4, columns), reduction=reduction, dtypes=_FOUR_BYTES)
            yield sample((5, columns), single, (6, columns), reduction=reduction, dtypes=("f32", "i8"))
        places = SampleOperand(("m", 1), "i32", **wide)
        yield sample(("n", "j"), places, ("m", "j"), reduction=reduction, dtypes=_FLOATS)
        yield sample((4, 700), SampleOperand((3, 1), "i32", **wide), (3, 700), reduction=reduction, dtypes=_FLOATS)


def _convolutions(**attributes: Any) -> Iterator[OpSample]:
    """Windows with and without padding, stride and dilation, around vectors; and channels around those computed at once."""
    fused = "activation" in attributes

    def of(x: tuple[Any, ...], w: tuple[int, ...], *window: Any, groups: int = 1, tolerance: float = 1.0) -> OpSample:
        (stride, padding, dilation), axes = window, len(w) - 2
        shapes = (x, w, (w[0],)) if fused else (x, w)
        pads = padding if isinstance(padding, tuple) else (padding,) * (2 * axes)
        geometry: Any = {"stride": (stride,) * axes, "padding": pads, "dilation": (dilation,) * axes}
        return sample(*shapes, **geometry, groups=groups, **attributes, dtypes=_FLOATS, tolerance=tolerance)

    for columns in (1, 7, 8, 15, 17, 33):
        for stride in (1, 2):
            yield of((1, 2, 5, columns), (5, 2, 3, 3), stride, 1, 1)
            yield of((1, 3, 9, columns), (3, 1, 3, 3), stride, 1, 1, groups=3)
            yield of(("n", 2, 3, columns), (3, 2, 1, 1), stride, 0, 1)
        yield of((2, 2, columns + 6), (4, 2, 3), 1, 0, 3)
    for rows in (1, 4, 5, 7):  # rows that are computed at once
        yield of(("n", 2, rows, 9), (4, 1, 3, 3), 1, 1, 1, groups=2)
    yield of((1, 2, 23, 40), (3, 2, 5, 5), 3, 4, 2)
    yield of((1, 2, 23, 40), (4, 1, 5, 5), 3, 4, 2, groups=2)
    yield of((2, 4, 6, 9), (6, 2, 3, 3), 2, 1, 1, groups=2)
    yield of((1, 1, 3, 3), (2, 1, 3, 3), 1, 5, 1)  # windows of padding alone
    yield of((0, 2, 5, 8), (3, 2, 3, 3), 1, 1, 1)
    for before_and_after in ((0, 1, 0, 2), (0, 0, 0, 1), (2, 0, 1, 3)):
        for stride, taps in ((1, 1), (1, 3), (2, 3)):
            yield of((1, 3, 6, 12), (5, 3, taps, taps), stride, before_and_after, 1)
        yield of((1, 4, 6, 12), (4, 1, 3, 3), 1, before_and_after, 1, groups=4)
    yield of((2, 19, 12, 9), (70, 19, 1, 1), 1, 0, 1)  # rows that are joined
    yield of((1, 3, 28, 28), (6, 3, 1, 1), 1, 0, 1)
    yield of((0, 2, 5, 8), (2, 1, 3, 3), 1, 1, 1, groups=2)
    # More channels than a workgroup has, or than scratch memory holds; several workgroups of rows; long rows.
    yield of((1, 3, 4, 5), (67, 3, 3, 3), 1, 1, 1)
    yield of((1, 300, 9, 9), (3, 300, 3, 3), 1, 1, 1, tolerance=40.0)
    # Of tens of thousands of sums, some have the errors of several roundings.
    yield of((1, 2, 60, 61), (9, 2, 3, 3), 1, 1, 1, tolerance=4.0)
    yield of((1, 2, 130, 131), (2, 1, 3, 3), 2, 1, 1, groups=2)
    yield of((1, 1, 3, 1300), (8, 1, 3, 3), 1, 1, 1)


def _fused_convolutions() -> Iterator[OpSample]:
    yield from _convolutions(activation="relu")
    for activation in (None, "gelu", "silu", "sigmoid", "tanh"):
        geometry: Any = {"stride": (1, 2), "padding": (1, 0, 2, 1), "dilation": (1, 1), "activation": activation}
        yield sample((2, 3, 4, 20), (4, 3, 2, 3), (4,), **geometry, dtypes=_FLOATS)
        yield sample((2, 4, 4, 20), (4, 1, 2, 3), (4,), **geometry, groups=4, dtypes=_FLOATS)


def _pools() -> Iterator[OpSample]:
    """Windows that overlap, and that have gaps between them, around vectors; padding, and several workgroups of rows."""
    yield sample((1, 2, 131, 130), kind="max", kernel=(2, 2), stride=(1, 1), padding=(1, 0, 0, 0), dtypes=_FLOATS)
    for kind in ("max", "mean", "sum"):
        for columns in (1, 5, 8, 15, 17, 33):
            for size, stride, padding in ((3, 2, 1), (2, 2, 0), (3, 1, 1), (2, 3, 1)):
                window: Any = {"kernel": (size,) * 2, "stride": (stride,) * 2, "padding": (padding,) * 4}
                yield sample((2, 2, 6, columns + 2), kind=kind, **window, dtypes=_FLOATS)
        for rows in (2, 3, 5, 7):  # rows that are computed at once
            yield sample(
                ("n", 2, rows, 9), kind=kind, kernel=(2, 3), stride=(1, 2), padding=(0, 1, 1, 1), dtypes=_FLOATS
            )
        yield sample((1, 2, 3, 130), kind=kind, kernel=(3, 7), stride=(1, 4), padding=(1, 1, 3, 3), dtypes=_FLOATS)
        yield sample((2, 3, 70), kind=kind, kernel=(3,), stride=(2,), padding=(2, 2), dtypes=_FLOATS)
        yield sample((1, 1, 3, 4), kind=kind, kernel=(2, 2), stride=(1, 1), padding=(4,) * 4, dtypes=_FLOATS)


def _transforms() -> Iterator[OpSample]:
    """Matrices whose rows are one vector or several, with butterflies of all sizes; columns around the size of a vector."""
    for n in (1, 2, 8, 16, 20, 32, 63, 64, 100, 256, 336, 1000):
        yield sample((3, n), dtypes=_COMPLEX, axis=1)
    for n in (64, 80, 2304, 10000):  # the last two have blocks of several vectors
        yield sample((2, n), dtypes=_COMPLEX, axis=1, inverse=True)
        yield sample((n,), dtypes=_COMPLEX, axis=0, norm="ortho")
    yield sample((2, "n", 48), dtypes=_COMPLEX, axis=2, norm="forward")
    yield sample((300, 32), dtypes=_COMPLEX, axis=1)  # several workgroups
    yield sample((0, 64), dtypes=_COMPLEX, axis=1)
    for n, columns in ((1, 4), (2, 5), (15, 8), (16, 9), (21, 17), (30, 33)):
        yield sample((n, columns), dtypes=_COMPLEX, axis=0)
        yield sample(("n", n, 2, columns), dtypes=_COMPLEX, axis=1, inverse=True, norm="ortho")
    yield sample((4, 300, 24), dtypes=_COMPLEX, axis=1)


def _real_transforms(is_inverse: bool) -> Iterator[OpSample]:
    """Rows of an even number of elements. The middle one is in a vector or after the last one."""

    def of(rows: tuple[Any, ...], n: int, **attributes: Any) -> OpSample:
        if is_inverse:
            return sample((*rows, n // 2 + 1), dtypes=_COMPLEX, axis=len(rows), length=(n,), **attributes)
        return sample((*rows, n), dtypes=_FLOATS, axis=len(rows), **attributes)

    for n in (2, 16, 32, 40, 64, 96, 128, 200, 512, 2000):
        yield of((3,), n)
    for n in (128, 144, 4608):
        yield of((), n, norm="ortho")
        yield of((2, "n"), n, norm="forward")
    yield of((300,), 64)
    yield of((0,), 64)


def _regions() -> Iterator[OpSample]:
    """Regions whose tensors vary along different axes, with several results, and of more elements than a workgroup's."""

    def normed(b: Any, x: Any, scale: Any, shift: Any) -> Any:
        return b.elementwise_region(lambda x, s, t: b.relu(x * s + t), x, scale, shift)

    def gated(b: Any, x: Any, y: Any) -> Any:
        return b.elementwise_region(
            lambda x, y: (
                b.where(x > y, x * b.sigmoid(y), 0.5),
                b.maximum(b.exp(x), y) / 3.0,
                b.clamp(-x, -0.5, 2.0),
            ),
            x,
            y,
        )

    for x, channels in (
        ((2, 3, 5, 7), (3, 1, 1)),
        ((1, 40, 3, 31), (40, 1, 1)),
        ((3, 9000), (9000,)),
        ((20000, 1), (1,)),
        ((4, 1, 9), (4, 1, 1)),
        ((1, 1), (1,)),
        ((3, 0), (1,)),
        ((6, 2, 33), (2, 1)),
        *(((2, columns), (columns,)) for columns in COLUMNS),
    ):
        yield sample([x, channels, channels], build=normed, dtypes=_FLOATS)
    for x, y in (((17,), (17,)), ((5, 8), ()), ((2, 3, 4, 5, 6), (3, 1, 5, 1)), ((130, 130), (130, 1)), ((), ())):
        yield sample([x, y], build=gated, dtypes=_FLOATS)


_MORE: dict[str, Callable[[], Iterator[OpSample]]] = {
    "elementwise_region": _regions,
    "softmax": _rows,
    "layer_norm": lambda: _rows("scale", "bias"),
    "rms_norm": lambda: _rows("scale", "bias"),
    "fused_residual_layer_norm": _residual_rows,
    "fused_residual_rms_norm": _residual_rows,
    "reduce": _reductions,
    "cumsum": lambda: (s for exclusive in (False, True) for s in _scans(exclusive=exclusive)),
    "cumprod": lambda: (s for exclusive in (False, True) for s in _scans(exclusive=exclusive)),
    "cummax": _scans,
    "matmul": lambda: _products("matmul"),
    "fused_matmul_bias_act": lambda: _products("act"),
    "fused_matmul_residual": lambda: _products("residual"),
    "attention": _attentions,
    "cached_attention": cached_attentions,
    "dequant_matmul": products,
    "matmul_transposed": _transposed_products,
    "quantize_packed": packed_rows,
    "rope": rotations,
    "conv": _convolutions,
    "fused_conv_bias_act": _fused_convolutions,
    "pool": _pools,
    "sort": _sorts,
    "argsort": _sorts,
    "topk": _selections,
    "activation": _elementary,
    "argmax": _extremes,
    "argmin": _extremes,
    "gather": lambda: _lookups("gather"),
    "embedding": lambda: _lookups("embedding"),
    "scatter_add": lambda: _lookups("scatter_add"),
    "scatter_nd": _updates,
    **{op: partial(_sparse_rows, op) for op in ("csr_matmul", "csr_matmul_transposed", "csr_sampled_matmul")},
    "scan": scans,
    "while": whiles,
    "fft": _transforms,
    "rfft": lambda: _real_transforms(is_inverse=False),
    "irfft": lambda: _real_transforms(is_inverse=True),
}


def ops() -> list[str]:
    """Return the names of the ops with kernels of the library. Other tests declare kernels of ops of their own."""
    return sorted({kernel.op for kernel in load().values() if kernel.is_of_library})


@cache
def kernel_cases(op: str) -> tuple[Case, ...]:
    """Return the cases of an op that a kernel takes."""
    assert op in _MORE, f"add sizes around those of vectors for {op} to tests/kernels/samples.py"
    start = len(list(cases(op)))
    more = [Case(op, start + i, s, name) for i, s in enumerate(_MORE[op]()) for name in s.dtypes or ()]
    return tuple(case for case in (*cases(op), *more) if _is_taken(case))


def _is_taken(case: Case) -> bool:
    module = clone_module(case.graph().module)
    run_on_module(module, "rlx-iree-kernels{cpu=x86-64-v3 choice=all}")
    return any(opview.kernel_of(op) is not None for op in collect(module, {case.op}))
