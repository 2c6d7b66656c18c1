"""Recurrences against explicit loops, PyTorch's cells, and the same op in two chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rlx
from tests.drawing import drawn
from tests.ops.references import FLOATS, agree, random, run

# A few steps, each with sums of a few numbers around 1.
_ROOM = np.array(20 * np.finfo(np.float32).eps)
# The library computes in the dtype of its operands.
_NOISE = {"f64": np.array(1e-14), "f32": _ROOM, "f16": np.array(2e-3), "bf16": np.array(2e-2)}


def _random(kind: str, *shapes: tuple[int, ...], low: float = -0.9, high: float = 0.9) -> list[np.ndarray]:
    return [random(kind, s, low=low, high=high, seed=i) for i, s in enumerate(shapes)]


def _agree(got: Any, reference: Any) -> None:
    for ours, theirs in zip(got, reference, strict=True):
        agree(ours, np.asarray(theirs).astype(ours.dtype), noise=_NOISE[rlx.dtype(ours.dtype).name])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _wide(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [a.astype(np.float64) for a in arrays]


# --- selective_scan ---------------------------------------------------------------------------------


def _selective_scan_operands(kind: str, batch: int, steps: int, width: int, size: int) -> list[np.ndarray]:
    x, b, c = _random(kind, (batch, steps, width), (batch, steps, size), (batch, steps, size))
    delta, a = random(kind, x.shape, low=0, high=1), random(kind, (width, size), low=-2, high=0)
    return [x, delta, a, b, c]


def _selective_scan(x: Any, delta: Any, a: Any, b: Any, c: Any) -> np.ndarray:
    """Compute one number at a time."""
    result = np.zeros(x.shape)
    for batch, lane in np.ndindex(x.shape[0], x.shape[2]):
        h = [0.0] * a.shape[1]
        for t in range(x.shape[1]):
            d = delta[batch, t, lane]
            h = [np.exp(d * r) * s + d * i * x[batch, t, lane] for r, s, i in zip(a[lane], h, b[batch, t], strict=True)]
            result[batch, t, lane] = sum(s * o for s, o in zip(h, c[batch, t], strict=True))
    return result


@drawn("kind", FLOATS, of_each=2)
@pytest.mark.parametrize("sizes", [(2, 7, 3, 4), (1, 1, 2, 1), (2, 0, 3, 4), (0, 3, 2, 2), (2, 3, 2, 0)])
def test_selective_scan(sizes: tuple[int, int, int, int], kind: str) -> None:
    operands = _selective_scan_operands(kind, *sizes)
    _agree([run("selective_scan", *operands)], [_selective_scan(*_wide(operands))])


def test_selective_scan_keeps_nan_and_infinity_from_where_they_occur() -> None:
    x, delta, a, b, c = _selective_scan_operands("f32", 2, 6, 3, 4)
    x[0, 2, 1], x[1, 4, 0] = np.nan, np.inf
    got = run("selective_scan", x, delta, a, b, c)
    assert np.isnan(got[0, 2:, 1]).all() and np.isfinite(got[0, :2]).all() and np.isfinite(got[0, :, 0]).all()
    assert not np.isfinite(got[1, 4:, 0]).any() and np.isfinite(got[1, :4]).all()


def test_selective_scan_checks_state_size() -> None:
    g: Any = rlx.Graph()
    operands = [g.input(f"x{i}", s) for i, s in enumerate(((2, 5, 3), (2, 5, 3), (3, 4), (2, 5, 4), (2, 5, 4)))]
    assert g.selective_scan(*operands, state_size=4).shape == (2, 5, 3)
    with pytest.raises(rlx.ShapeError, match="state_size is 5"):
        g.selective_scan(*operands, state_size=5)


# --- gated delta net --------------------------------------------------------------------------------


def _delta_net_operands(kind: str, batch: int, steps: int, heads: int, size: int) -> list[np.ndarray]:
    vectors = _random(kind, *[(batch, steps, heads, size)] * 3)
    decay, rate = (
        random(kind, (batch, steps, heads), low=-2, high=0),
        random(kind, (batch, steps, heads), low=0, high=1),
    )
    return [*vectors, decay, rate, random(kind, (batch, heads, size, size), low=-1, high=1, seed=8)]


def _delta_net(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> tuple[np.ndarray, np.ndarray]:
    """Compute one head at a time, with matrices."""
    result, last = np.zeros(q.shape), state.copy()
    for batch, head in np.ndindex(q.shape[0], q.shape[2]):
        s = last[batch, head]
        for t in range(q.shape[1]):
            at = (batch, t, head)
            s = s * np.exp(g[at])
            s = s + np.outer(k[at], (v[at] - s.T @ k[at]) * beta[at])
            result[at] = s.T @ q[at] / np.sqrt(q.shape[3])
        last[batch, head] = s
    return result, last


@drawn("kind", FLOATS, of_each=2)
@pytest.mark.parametrize("sizes", [(2, 6, 3, 4), (1, 1, 1, 1), (2, 0, 2, 3), (0, 3, 1, 2)])
def test_gated_delta_net(sizes: tuple[int, int, int, int], kind: str) -> None:
    *operands, state = _delta_net_operands(kind, *sizes)
    wide = _wide(operands)
    _agree(run("gated_delta_net_carry", *operands, state), _delta_net(*[*wide, state.astype(np.float64)]))
    _agree([run("gated_delta_net", *operands)], _delta_net(*[*wide, np.zeros(state.shape)])[:1])


def test_gated_delta_net_with_a_state_is_the_op_with_a_carry() -> None:
    g: Any = rlx.Graph()
    *operands, state = (g.input(f"x{i}", a.shape) for i, a in enumerate(_delta_net_operands("f32", 2, 5, 3, 4)))
    result, following = g.gated_delta_net(*operands, state)
    assert result.shape == (2, 5, 3, 4) and following.shape == (2, 3, 4, 4)
    assert g.gated_delta_net(*operands).shape == (2, 5, 3, 4)
    g.set_outputs([result])
    assert str(g).count("rlx.gated_delta_net_carry") == 1


def test_gated_delta_net_needs_a_number_for_the_size_of_heads() -> None:
    g: Any = rlx.Graph()
    vectors = [g.input(n, (2, 5, 3, "size")) for n in "qkv"]
    with pytest.raises(rlx.ShapeError, match="size N of the heads"):
        g.gated_delta_net(*vectors, g.input("g", (2, 5, 3)), g.input("beta", (2, 5, 3)))


# --- lstm and gru -----------------------------------------------------------------------------------


def _lstm_operands(kind: str, batch: int, steps: int, width: int, hidden: int) -> list[np.ndarray]:
    states = [(batch, hidden), (batch, hidden)]
    weights = [(width, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,)]
    return _random(kind, (batch, steps, width), *states, *weights)


def _gru_operands(kind: str, batch: int, steps: int, width: int, hidden: int) -> list[np.ndarray]:
    weights = [(width, 3 * hidden), (hidden, 3 * hidden), (3 * hidden,), (3 * hidden,)]
    return _random(kind, (batch, steps, width), (batch, hidden), *weights)


def _lstm(x: Any, h: Any, c: Any, w_input: Any, w_hidden: Any, bias: Any, *, reverse: bool) -> list[np.ndarray]:
    size, rows = h.shape[1], {}
    for t in reversed(range(x.shape[1])) if reverse else range(x.shape[1]):
        gates = x[:, t] @ w_input + h @ w_hidden + bias
        i, f, g, o = (gates[:, n * size : (n + 1) * size] for n in range(4))
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        rows[t] = h = _sigmoid(o) * np.tanh(c)
    return [_stacked(rows, x, h), h, c]


def _gru(
    x: Any, h: Any, w_input: Any, w_hidden: Any, bias_input: Any, bias_hidden: Any, *, reverse: bool
) -> list[np.ndarray]:
    size, rows = h.shape[1], {}
    for t in reversed(range(x.shape[1])) if reverse else range(x.shape[1]):
        given, own = x[:, t] @ w_input + bias_input, h @ w_hidden + bias_hidden
        r = _sigmoid(given[:, :size] + own[:, :size])
        z = _sigmoid(given[:, size : 2 * size] + own[:, size : 2 * size])
        n = np.tanh(given[:, 2 * size :] + r * own[:, 2 * size :])
        rows[t] = h = (1 - z) * n + z * h
    return [_stacked(rows, x, h), h]


def _stacked(rows: dict[int, np.ndarray], x: np.ndarray, h: np.ndarray) -> np.ndarray:
    result = np.zeros((*x.shape[:2], h.shape[1]))
    for t, row in rows.items():
        result[:, t] = row
    return result


_CELLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lstm": (_lstm_operands, _lstm),
    "gru": (_gru_operands, _gru),
}


@pytest.mark.parametrize("reverse", [False, True])
@drawn("kind", FLOATS, of_each=2)
@pytest.mark.parametrize("sizes", [(2, 6, 3, 4), (1, 1, 1, 1), (2, 0, 3, 2), (0, 3, 2, 2), (2, 3, 0, 2), (1, 2, 3, 0)])
@pytest.mark.parametrize("op", _CELLS)
def test_cells(op: str, sizes: tuple[int, int, int, int], kind: str, reverse: bool) -> None:
    operands_of, reference = _CELLS[op]
    operands = operands_of(kind, *sizes)
    _agree(run(op, *operands, reverse=reverse), reference(*_wide(operands), reverse=reverse))


# --- chunks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 2, 6])
def test_two_chunks_with_a_carried_state_are_the_whole(cut: int) -> None:
    """In f64, the dtype of the evaluators, carried states lose nothing."""
    *steps, state = _delta_net_operands("f64", 2, 6, 3, 4)
    result, last = run("gated_delta_net_carry", *steps, state)
    first, between = run("gated_delta_net_carry", *(t[:, :cut] for t in steps), state)
    second, end = run("gated_delta_net_carry", *(t[:, cut:] for t in steps), between)
    _agree([np.concatenate([first, second], 1), end], [result, last])

    for op, count in (("lstm", 2), ("gru", 1)):
        x, *rest = _CELLS[op][0]("f64", 2, 6, 3, 4)
        weights = rest[count:]
        for reverse in (False, True):
            result, *last = run(op, x, *rest, reverse=reverse)
            parts = [x[:, :cut], x[:, cut:]]
            early, late = parts[::-1] if reverse else parts
            first, *between = run(op, early, *rest, reverse=reverse)
            second, *end = run(op, late, *between, *weights, reverse=reverse)
            whole = np.concatenate([second, first] if reverse else [first, second], 1)
            _agree([whole, *end], [result, *last])


# --- mamba_block ------------------------------------------------------------------------------------


def _mamba(
    x: Any, in_w: Any, conv_w: Any, conv_b: Any, x_w: Any, dt_w: Any, dt_b: Any, a_log: Any, d: Any, out_w: Any
) -> Any:
    """Compute step by step, carrying the last K inputs of the convolution and the state."""
    (inner, size), rank, kernel = a_log.shape, dt_w.shape[0], conv_w[:, 0, 0, :]
    result = np.zeros((*x.shape[:2], out_w.shape[1]))
    for row in range(x.shape[0]):
        seen, h = [np.zeros(inner)] * kernel.shape[1], np.zeros((inner, size))
        for t in range(x.shape[1]):
            u, z = np.split(x[row, t] @ in_w, 2)
            seen = [*seen[1:], u]
            u = sum(w * s for w, s in zip(kernel.T, seen, strict=True)) + conv_b
            u = u * _sigmoid(u)
            r, b, c = np.split(u @ x_w, [rank, rank + size])
            delta = np.log(1 + np.exp(r @ dt_w + dt_b))
            h = np.exp(delta[:, None] * -np.exp(a_log)) * h + (delta * u)[:, None] * b
            result[row, t] = ((h @ c + d * u) * z * _sigmoid(z)) @ out_w
    return result


@pytest.mark.parametrize("kernel_size", [1, 4])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_mamba_block(steps: int, kernel_size: int) -> None:
    e, inner, rank, size = 4, 6, 2, 3
    shapes = [(2, steps, e), (e, 2 * inner), (inner, 1, 1, kernel_size), (inner,), (inner, rank + 2 * size)]
    operands = _random("f32", *shapes, (rank, inner), (inner,), (inner, size), (inner,), (inner, e))
    _agree([run("mamba_block", *operands)], [_mamba(*_wide(operands))])


@pytest.mark.parametrize("shift", [-80.0, -30.0, -8.0, 0.0, 30.0, 200.0])
def test_mamba_block_keeps_the_digits_of_small_steps(shift: float) -> None:
    """`log(1 + exp(v))` far below and above zero, relative to itself. `d` is 0, so the first result is `delta·b·u·c`."""
    x, in_w, conv_w, conv_b, x_w, a_log, out_w = _random(
        "f32", (1, 1, 2), (2, 4), (2, 1, 1, 1), (2,), (2, 3), (2, 1), (2, 2), low=0.5, high=1
    )
    zero, dt_b = np.zeros(2, np.float32), np.full(2, shift, np.float32)
    operands = [x, in_w, conv_w, conv_b, x_w, np.zeros((1, 2), np.float32), dt_b, a_log, zero, out_w]
    expected = _mamba(*_wide([*operands[:6], np.zeros(2), *operands[7:]]))
    delta = np.logaddexp(0, shift) / np.log(2)
    np.testing.assert_allclose(run("mamba_block", *operands), expected * delta, rtol=1e-6)
