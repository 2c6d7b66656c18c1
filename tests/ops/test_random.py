"""Random numbers: Philox's published vectors, exact arithmetic on its words, and the statistics of the distributions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import special

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ops.random import ArrayArithmetic, philox
from rlx.support.errors import ShapeError
from tests.conformance import compiled, compiled_xla
from tests.ops.references import FLOATS, INTEGERS, agree, run

MASK = 0xFFFFFFFF
# From the test vectors of Random123: counter, key, and the block.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def _numbers(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def _block(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Compute ten rounds on Python integers, from the paper's figure: the left word of each pair is multiplied."""
    (left0, right0, left1, right1), (key0, key1) = counter, key
    for _ in range(10):
        product0, product1 = left0 * 0xD2511F53, left1 * 0xCD9E8D57
        left0, right0 = (product1 >> 32) ^ right0 ^ key0, product1 & MASK
        left1, right1 = (product0 >> 32) ^ right1 ^ key1, product0 & MASK
        key0, key1 = (key0 + 0x9E3779B9) & MASK, (key1 + 0xBB67AE85) & MASK
    return [left0, right0, left1, right1]


def _stream(seed: int, count: int) -> list[int]:
    key = [seed & MASK, seed >> 32 & MASK]
    blocks = [_block([number & MASK, number >> 32, 0, 0], key) for number in range(-(-count // 4))]
    return [word for block in blocks for word in block][:count]


def _drawn(name: str, shape: tuple[int, ...], seed: Any = 0, **attributes: Any) -> np.ndarray:
    graph = rlx.Graph()
    graph.set_outputs(getattr(graph, name)(shape, seed, **attributes))
    return evaluate(graph, {})[0]


def _bits(seed: Any, shape: tuple[int, ...]) -> np.ndarray:
    graph = rlx.Graph()
    graph.set_outputs(graph.random_bits(seed, shape))
    return evaluate(graph, {})[0]


# --- words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counter", "key", "block"), KNOWN)
def test_known_answers(counter: str, key: str, block: str) -> None:
    words = [[np.array([n], np.uint32) for n in _numbers(text)] for text in (counter, key)]
    assert [int(word[0]) for word in philox(ArrayArithmetic(), *words)] == _numbers(block)
    assert _block(_numbers(counter), _numbers(key)) == _numbers(block)


def test_the_first_block_of_seed_zero_is_the_known_one() -> None:
    assert _bits(0, (4,)).tolist() == _numbers(KNOWN[0][2])


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**63 - 1, -(2**63), 0x299F31D0A4093822])
def test_words_are_numbered_blocks_under_the_seed(seed: int) -> None:
    assert _bits(seed, (3, 7)).ravel().tolist() == _stream(seed % 2**64, 21)


@pytest.mark.parametrize("name", INTEGERS)
def test_seeds_of_every_dtype_are_extended_with_their_sign(name: str) -> None:
    kind = dtype(name)
    for seed in {int(kind.min), -1 if kind.is_signed else 200, 7, int(kind.max)}:
        got = run("random_bits", np.asarray(seed, kind.numpy), shape=(5,))
        assert got.tolist() == _stream(seed % 2**64, 5)


def test_a_seed_is_64_bits_however_it_is_written() -> None:
    assert np.array_equal(_bits(2**64 - 1, (6,)), _bits(-1, (6,)))
    assert np.array_equal(_bits(np.uint64(2**63), (6,)), _bits(-(2**63), (6,)))
    assert np.array_equal(_bits(np.asarray(5, np.int32), (6,)), _bits(5, (6,)))


def test_the_stream_does_not_depend_on_the_shape() -> None:
    whole = _bits(3, (60,))
    assert np.array_equal(_bits(3, (3, 4, 5)).ravel(), whole)
    assert np.array_equal(_bits(3, (7,)), whole[:7])
    assert _bits(3, ()) == whole[0]
    assert _bits(3, (2, 0)).shape == (2, 0)


@pytest.mark.parametrize("seed", [True, 1.0, 2**64, -(2**63) - 1, np.zeros(2, np.int32), np.float32(1), "0"])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(ShapeError):
        _bits(seed, (3,))


@pytest.mark.parametrize("seed", [0, 1, 2, 2**40])
def test_words_are_equidistributed(seed: int) -> None:
    from scipy import stats

    words = _bits(seed, (1 << 16,))
    for shift in (0, 8, 16, 24):
        counts = np.bincount(words >> np.uint32(shift) & np.uint32(255), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
    set_bits = (words[:, None] >> np.arange(32, dtype=np.uint32) & 1).sum(0)
    assert np.abs(set_bits / len(words) - 0.5).max() < 5 * 0.5 / np.sqrt(len(words))
    assert len(np.unique(words)) > len(words) * (1 - 1e-4)


def test_streams_of_neighbouring_seeds_and_places_are_independent() -> None:
    streams = np.stack([_bits(seed, (1 << 14,)) for seed in range(8)]) / 2.0**32
    seeds = np.asarray(np.corrcoef(streams))[np.triu_indices(8, 1)]
    places = [np.asarray(np.corrcoef(streams[0, :-lag], streams[0, lag:]))[0, 1] for lag in range(1, 9)]
    assert np.abs([*seeds, *places]).max() < 4.5 / np.sqrt(streams.shape[1])


# --- uniform numbers --------------------------------------------------------------------------------


def test_f32_is_24_bits_and_f64_53() -> None:
    bits = [Fraction(word >> 8, 2**24) for word in _stream(9, 50)]
    assert [Fraction(float(u)) for u in _drawn("rng_uniform", (50,), 9)] == bits
    first, second = _stream(9, 100)[:50], _stream(9, 100)[50:]
    pairs = [Fraction((a << 21) + (b >> 11), 2**53) for a, b in zip(first, second, strict=True)]
    assert [Fraction(float(u)) for u in _drawn("rng_uniform", (50,), 9, dtype=rlx.f64)] == pairs


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("low", "high"), [(0.0, 3.0), (-1.0, 1.0), (-1.3, 2.9), (1e-3, 7e4), (5.0, -2.0), (2.0, 2.0)])
def test_ranges_are_exact_but_for_their_rounding(low: float, high: float, name: str) -> None:
    kind = rlx.f64 if name == "f64" else rlx.f32
    unit = _drawn("rng_uniform", (400,), 4, dtype=kind).astype(np.longdouble)
    got = _drawn("rng_uniform", (400,), 4, low=low, high=high, dtype=name)
    expected = kind.numpy.type(low) + np.longdouble(kind.numpy.type(high - low)) * unit
    room = np.finfo(kind.numpy).eps * (abs(low) + abs(high)) / 8
    with np.errstate(over="ignore"):
        expected = expected.astype(kind.numpy).astype(got.dtype)
        limits = sorted(np.asarray([low, high]).astype(got.dtype))
    agree(got, expected, factor=0.5 if name in ("f32", "f64") else 1, noise=room)
    assert got.min() >= limits[0] and got.max() <= limits[1]


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_uniform_numbers_pass_kolmogorov_smirnov(name: str) -> None:
    from scipy import stats

    for seed in range(5):
        values = _drawn("rng_uniform", (20000,), seed, low=-2.0, high=6.0, dtype=name)
        assert stats.kstest(values.astype(np.float64), stats.uniform(-2, 8).cdf).pvalue > 1e-3


@pytest.mark.parametrize("compile_graphs", [compiled.compile_graphs, compiled_xla.compile_graphs], ids=["iree", "xla"])
def test_compiled_uniform_numbers_have_the_same_bits(compile_graphs: Any) -> None:
    """The widths of the ranges are not powers of two; a fused multiply-add would round differently."""
    graphs = []
    for name, low, high in (("f32", -1.3, 2.9), ("f64", -1.3, 2.9), ("f32", 0.1, 0.9), ("f32", 0.0, 0.3)):
        graph = rlx.Graph()
        seed = graph.input("seed", rlx.Shape((), "i64"))
        graph.set_outputs(graph.rng_uniform((1000,), seed, low=low, high=high, dtype=name))
        graphs.append(graph)
    for program in compile_graphs(graphs):
        assert program.problem is None, program.problem
        for seed in (0, -12345678901):
            given = np.asarray(seed)
            assert program.run([given])[0].tobytes() == evaluate(program.graph, {"seed": given})[0].tobytes()


def test_what_is_no_range_is_refused() -> None:
    for attributes in (
        {"low": np.nan},
        {"high": np.inf},
        {"low": -3e38, "high": 3e38},
        {"high": 3.4028e38},
        {"dtype": "i32"},
    ):
        with pytest.raises(ShapeError):
            _drawn("rng_uniform", (3,), 0, **attributes)
    assert np.isfinite(_drawn("rng_uniform", (3,), 0, low=-3e38, high=3e38, dtype="f64")).all()


# --- normal numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
def test_normal_numbers_are_those_of_box_and_muller(name: str) -> None:
    words = np.array(_stream(11, 1000)).reshape(2, 500)
    first = words[0].astype(np.float64 if name == "f64" else np.float32).astype(np.longdouble) / 2**32
    turn = (words[1] if name == "f64" else words[1] >> 8 << 8).astype(np.longdouble) / 2**32
    z = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * turn)
    got = _drawn("rng_normal", (500,), 11, mean=0.5, std=1.5, dtype=name)
    expected = (0.5 + 1.5 * z).astype(np.float64).astype(got.dtype)
    agree(got, expected, noise=np.full(500, 1e-15))  # error of 2π·turn, near the zeros of the cosine
    assert np.array_equal(_drawn("rng_normal", (20, 25), 11, mean=0.5, std=1.5, dtype=name).ravel(), got)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_normal_numbers_pass_kolmogorov_smirnov(name: str) -> None:
    from scipy import stats

    for seed in range(5):
        values = _drawn("rng_normal", (20000,), seed, mean=-3.0, std=2.0, dtype=name).astype(np.float64)
        assert stats.kstest(values, stats.norm(-3, 2).cdf).pvalue > 1e-3
        assert stats.normaltest(values).pvalue > 1e-3


def test_the_tails_of_normal_numbers() -> None:
    values = _drawn("rng_normal", (1 << 20,), 5)
    assert np.isfinite(values).all()
    for limit in (3, 4):
        expected = len(values) * special.ndtr(-limit) * 2
        assert abs((np.abs(values) > limit).sum() - expected) < 5 * np.sqrt(expected)


# --- sampling ---------------------------------------------------------------------------------------


def _sampled(logits: np.ndarray, unit: float, temperature: float, top_k: int, top_p: float) -> int:
    """Compute one draw, step by step."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    weights = [float(np.exp((float(logits[i]) - float(logits[order[0]])) / temperature)) for i in order]
    if top_k:
        order, weights = order[:top_k], weights[:top_k]
    if top_p < 1:
        total, kept = sum(weights), 1
        while kept < len(order) and sum(weights[:kept]) < top_p * total:
            kept += 1
        order, weights = order[:kept], weights[:kept]
    if not top_k and top_p == 1:
        by_id = dict(zip(order, weights, strict=True))
        order, weights = list(range(len(logits))), [by_id[i] for i in range(len(logits))]
    reached = 0.0
    for i, weight in zip(order, weights, strict=True):
        reached += weight
        if reached > unit * sum(weights):
            return i
    raise AssertionError("u is below 1")


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.3, 0, 1.0), (1.0, 4, 1.0), (2.0, 0, 0.7), (1.0, 5, 0.8), (1.0, 20, 1.0), (1.0, 0, 0.0)],
)
@pytest.mark.parametrize("name", FLOATS)
def test_sample_against_a_draw_step_by_step(temperature: float, top_k: int, top_p: float, name: str) -> None:
    rng = np.random.default_rng(1)
    logits = np.round(rng.uniform(-3, 3, (60, 20)), 1).astype(dtype(name).numpy)  # with ties
    chosen: Any = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    ids = run("sample", logits, np.asarray(6), **chosen)
    units = [(word >> 8) / 2**24 for word in _stream(6, 60)]
    assert ids.dtype == np.int32
    assert ids.tolist() == [_sampled(row, u, **chosen) for row, u in zip(logits, units, strict=True)]


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.75)])
def test_sample_follows_the_distribution(top_k: int, top_p: float) -> None:
    from scipy import stats

    logits = np.array([0.1, 1.5, -0.7, 2.0, 0.0, -5.0, 1.1, 0.6], np.float32)
    p = special.softmax(logits.astype(np.float64) / 0.8)
    order = np.argsort(-p)
    kept = order[: top_k or 8]
    if top_p < 1:
        kept = kept[: int((np.cumsum(p[kept]) < top_p).sum()) + 1]
    expected = np.zeros(8)
    expected[kept] = p[kept] / p[kept].sum()
    draws = run("sample", np.tile(logits, (20000, 1)), np.asarray(2), temperature=0.8, top_k=top_k, top_p=top_p)
    counts = np.bincount(draws, minlength=8)
    assert not counts[expected == 0].any()
    assert stats.chisquare(counts[kept], 20000 * expected[kept]).pvalue > 1e-3


def test_sample_at_temperature_zero_is_argmax() -> None:
    logits = np.array([[1, 3, 3, 0], [np.nan, 5, np.nan, 1], [-np.inf] * 4, [0, np.inf, 1, np.inf]], np.float32)
    for seed in range(3):
        assert run("sample", logits, np.asarray(seed), temperature=0.0).tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (2, 1.0), (0, 0.5)])
def test_sample_of_special_values(top_k: int, top_p: float) -> None:
    """Rows without a distribution return their largest logit; minus infinity is never drawn."""
    logits = np.array([[1, np.nan, 2, np.nan], [0, np.inf, 1, np.inf], [-np.inf] * 4, [-np.inf, 1, 0, 2]], np.float32)
    draws = [run("sample", logits, np.asarray(seed), top_k=top_k, top_p=top_p) for seed in range(50)]
    assert {tuple(ids[:3]) for ids in draws} == {(1, 1, 0)}
    assert {int(ids[3]) for ids in draws} <= {1, 2, 3}


def test_sample_of_extreme_temperatures() -> None:
    logits = np.array([3e38, -3e38, 2.9e38, 3e38], np.float32)
    rows = np.tile(logits, (200, 1))
    assert set(run("sample", rows, np.asarray(1), temperature=2.0**-126).tolist()) == {0, 3}
    assert set(run("sample", np.tile(logits / 1e38, (200, 1)), np.asarray(1), temperature=1e30).tolist()) == {
        0,
        1,
        2,
        3,
    }


def test_sample_refuses() -> None:
    logits = np.zeros((2, 5), np.float32)
    wrong: list[dict[str, Any]] = [{"temperature": -1.0}, {"temperature": np.nan}, {"temperature": 1e-40}]
    wrong += [{"temperature": np.inf}, {"top_k": -1}, {"top_k": 6}, {"top_p": 1.1}, {"top_p": np.nan}]
    for attributes in wrong:
        with pytest.raises(ShapeError):
            run("sample", logits, np.asarray(0), **attributes)
    for x in (np.zeros((2, 0), np.float32), np.asarray(1.0, np.float32)):
        with pytest.raises(ShapeError):
            run("sample", x, np.asarray(0))


def test_rows_of_a_batch_are_drawn_by_their_own_numbers() -> None:
    logits = np.random.default_rng(3).standard_normal((2, 3, 9)).astype(np.float32)
    whole = run("sample", logits, np.asarray(8))
    assert whole.shape == (2, 3)
    assert np.array_equal(run("sample", logits.reshape(6, 9), np.asarray(8)), whole.ravel())
    assert run("sample", logits[0, 0], np.asarray(8)) == whole[0, 0]
