"""Cases of products with packed weights and of attention to a cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlx.ir.op.card import OpSample, SampleOperand, sample
from rlx.kernels.library.packed_formats import FORMATS
from rlx.schemes import find_scheme

# The bytes of other values than random ones make scales of MXFP4 that are subnormal, or elements that are infinite. Kernels
# do not compute what evaluators do with these: test_packed.py tests MXFP4 with other scales.
SCHEMES = tuple(name for name in FORMATS if name != "mxfp4")
# Of the formats by fields, each way to read integers, scales and zero-points, with each size of blocks.
LAYOUTS = (
    *("int4_block32", "int4_block64_asym", "int4_block128_bf16", "int8_block64", "int8_block128_asym_f32"),
    *("affine2_block64", "affine3_block128", "affine4_block64_bf16", "affine5_block32", "affine6_block64_f32"),
    *("affine4_block128", "affine8_block32"),
)
FLOATS = ("fp8_e4m3_block32", "fp8_e4m3_block128", "fp8_e5m2_block64")
_ROWS_AND_BLOCKS = ((1, 1, 1), (3, 2, 130), (8, 9, 5), (9, 1, 53), (17, 3, 96), ("n", 2, 31))


def products() -> Iterator[OpSample]:
    """Few rows and many, columns around those of a panel, and rows of one block and of several."""
    for scheme in SCHEMES:
        for rows, blocks, columns in _ROWS_AND_BLOCKS:
            for activations in ("i8", "f32") if rows in (1, 9) else ("i8",):
                yield _product(rows, columns, scheme, blocks, activations)
    for scheme in LAYOUTS:
        yield _product(2, 19, scheme, 5, "i8")
        yield _product(11, 40, scheme, 6, "i8")
        yield _product(3, 19, scheme, 2, "f32")
    for scheme in FLOATS:
        yield _product(2, 19, scheme, 3, "f32")
        yield _product(11, 40, scheme, 5, "i8")
    # More terms than a panel has, with a rest; more rows than are rounded at a time.
    yield _product(130, 33, "q8_0", 21, "i8")
    yield _product(12, 20, "q3_k", 3, "i8")
    yield _product(5, 20, "q4_k", 2, "i16")
    yield _product(11, 20, "q8_0", 20, "i16")
    yield _product("n", "m", "q8_0", 2, "i8")


def _product(rows: int | str, columns: int | str, scheme: str, blocks: int, activations: str) -> OpSample:
    packing = find_scheme(scheme)
    # Without the top bits, so that the scales are finite.
    w = SampleOperand((columns, blocks * packing.nbytes), "u8", low=0, high=64)
    attributes: dict[str, Any] = {"scheme": scheme, "activations": activations}
    return sample((rows, blocks * packing.block), w, dtypes=("f32",), **attributes)


def cached_attentions() -> Iterator[OpSample]:
    """One query and several, caches of f32 and f16, with keys around the number that is computed at a time."""
    for queries, keys, heads, kv_heads, lanes in (
        *((queries, keys, 2, 1, 16) for queries in (1, 2) for keys in (1, 9, 17, 70)),
        (1, 70, 4, 2, 16),
        (1, 200, 8, 1, 32),
        (1, 64, 3, 3, 48),
        (3, 20, 4, 2, 16),
        (40, 150, 2, 1, 24),
        ("s", "t", 2, 2, 16),
    ):
        for kind, window in (("f16", None), ("f32", 5)):
            last = keys if isinstance(keys, int) else 8
            batch = 1 if heads == 2 else 2
            yield sample(
                (batch, queries, heads * lanes),
                SampleOperand((batch, keys, kv_heads * lanes), kind),
                SampleOperand((batch, keys, kv_heads * lanes), kind),
                SampleOperand((batch,), "i32", low=-1, high=last),
                None,
                num_heads=heads,
                head_dim=lanes,
                window=window,
                dtypes=("f32",),
            )
    yield sample(
        (1, 1, 64),
        (1, 90, 32),
        (1, 90, 32),
        SampleOperand((1,), "i32", low=0, high=90),
        None,
        num_heads=4,
        head_dim=16,
        softcap=2.0,
        score_scale=0.4,
        dtypes=("f32",),
    )
    yield from _paged_attentions()
    yield from _packed_attentions()


def _paged_attentions() -> Iterator[OpSample]:
    """Pages in any order, some of them used several times, and numbers of pages that do not exist."""
    for batch, queries, count, length, table, window, kv_heads in (
        (1, 1, 2, 64, 2, None, 1),
        (2, 1, 2, 64, 3, 70, 1),
        (2, 3, 2, 64, 2, 5, 1),
        (1, 2, 2, 64, 3, None, 1),
        (1, 1, 3, 64, 2, None, 2),
        (3, 1, 4, 64, 3, 70, 2),
        (2, 1, 2, 128, 2, 5, 2),
        (2, 3, 4, 64, 3, None, 2),
        (1, 70, 3, 128, 2, 90, 2),
        (2, "s", 3, 64, "n", None, 2),
    ):
        last = length * (table if isinstance(table, int) else 2) + 5
        yield sample(
            (batch, queries, 32 * kv_heads),
            SampleOperand((count, length, 16 * kv_heads), "f16"),
            SampleOperand((count, length, 16 * kv_heads), "f16"),
            SampleOperand((batch,), "i32", low=-1, high=last),
            SampleOperand((batch, table), "i32", low=-1, high=count + 1),
            num_heads=2 * kv_heads,
            head_dim=16,
            window=window,
            dtypes=("f32",),
        )


def _packed_attentions() -> Iterator[OpSample]:
    """Caches of packed blocks: heads of one block and of several, values of another width, windows, and pages."""
    for batch, queries, length, table, heads, kv_heads, lanes, value_lanes, window in (
        (1, 1, 9, None, 2, 1, 32, 32, None),
        (2, 1, 70, None, 3, 1, 32, 64, 5),
        (1, 1, 70, None, 4, 2, 96, 32, None),
        (1, 2, 17, None, 2, 2, 64, 32, None),
        (2, 5, 70, None, 2, 1, 32, 64, 9),
        (1, 40, 66, None, 2, 1, 32, 32, None),
        (1, "s", "t", None, 2, 2, 32, 32, None),
        (2, 1, 64, 2, 4, 2, 32, 32, None),
        (1, 1, 64, 3, 2, 1, 64, 32, 70),
        (2, 3, 64, 2, 4, 2, 32, 32, 5),
        (2, "s", 64, "n", 2, 1, 64, 64, None),
    ):
        pool = batch if table is None else 3
        last = 8 if isinstance(length, str) else length * (table if isinstance(table, int) else 1) + 5
        yield sample(
            (batch, queries, heads * lanes),
            # Without the top bits, so that the scales are finite.
            SampleOperand((pool, length, kv_heads * lanes // 32 * 34), "u8", low=0, high=64),
            SampleOperand((pool, length, kv_heads * value_lanes // 32 * 34), "u8", low=0, high=64),
            SampleOperand((batch,), "i32", low=-1, high=last),
            None if table is None else SampleOperand((batch, table), "i32", low=-1, high=4),
            num_heads=heads,
            head_dim=lanes,
            window=window,
            softcap=2.0 if batch == queries == 1 and table is None else None,
            score_scale=0.02,
            scheme="q8_0",
            dtypes=("f32",),
        )


def packed_rows() -> Iterator[OpSample]:
    """One block, and more than a workgroup has; rows of several axes, and of an unknown number."""
    for dims in ((32,), (3, 64), (2, 3, 96), (70, 32), ("n", 32), (2, "n", 64)):
        yield sample(dims, scheme="q8_0", dtypes=("f32",))


def rotations() -> Iterator[OpSample]:
    """Both styles, one head and several, lanes that are not rotated, and tables for each text."""
    for style in ("neox", "gptj"):
        for batch, length, heads, head_dim, n_rot in (
            (1, 1, 2, 32, 32),
            (2, 3, 1, 64, 32),
            (1, "s", 3, 64, 64),
            ("b", 2, 2, 96, 64),
        ):
            for dims in ((length, n_rot // 2), (batch, length, n_rot // 2)):
                tables = SampleOperand(dims, low=-1.0, high=1.0), SampleOperand(dims, low=-1.0, high=1.0)
                sizes: dict[str, Any] = {"head_dim": head_dim, "n_rot": n_rot, "style": style}
                yield sample((batch, length, heads * head_dim), *tables, **sizes, dtypes=("f32",))
