"""The multi-token prediction head against its description, computed in NumPy token by token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from tests.drawing import drawn
from tests.ops.references import agree, random, run

_ROOM = np.array(40 * np.finfo(np.float32).eps)
_SIZES = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 6, "n_rot": 4, "eps": 1e-6}
_EMBEDDING, _INNER, _TOKENS, _LABELS = 8, 12, 11, 9


def _weights() -> dict[str, np.ndarray]:
    """Return all operands except the first five, in the order of the record."""
    e, f, d = _EMBEDDING, _INNER, _SIZES["head_dim"]
    heads, kv = _SIZES["num_heads"] * d, _SIZES["num_kv_heads"] * d
    shapes = {
        **{"embed_w": (_TOKENS, e), "hnorm_w": (e,), "hnorm_b": (e,), "enorm_w": (e,), "enorm_b": (e,)},
        **{"eh_w": (2 * e, e), "attn_norm_w": (e,), "attn_norm_b": (e,), "q_gate_w": (e, 2 * heads)},
        **{"k_w": (e, kv), "v_w": (e, kv), "q_norm_w": (d,), "q_norm_b": (d,), "k_norm_w": (d,), "k_norm_b": (d,)},
        **{"o_w": (heads, e), "post_norm_w": (e,), "post_norm_b": (e,)},
        **{"gate_w": (e, f), "up_w": (e, f), "down_w": (f, e)},
        **{"head_norm_w": (e,), "head_norm_b": (e,), "lm_head_w": (e, _LABELS)},
    }
    return {name: random("f32", s, low=-0.7, high=0.7, seed=i) for i, (name, s) in enumerate(shapes.items())}


def _inputs(batch: int, length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(length)
    angles = np.outer(np.arange(length), [1.0, 0.1])
    return {
        "h_pre_norm": random("f32", (batch, length, _EMBEDDING), low=-1, high=1, seed=9),
        "input_ids": rng.integers(0, _TOKENS, (batch, length)).astype(np.int32),
        "cos": np.cos(angles).astype(np.float32),
        "sin": np.sin(angles).astype(np.float32),
        "last_token_idx": rng.integers(0, length, (batch, 1)).astype(np.int32),
    }


def _norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x) + _SIZES["eps"]) * scale + shift


def _turned(head: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    half = _SIZES["n_rot"] // 2
    result = head.copy()
    for lane in range(half):
        first, second = head[lane], head[lane + half]
        result[lane] = first * cos[lane] - second * sin[lane]
        result[lane + half] = second * cos[lane] + first * sin[lane]
    return result


def _attended(p: dict[str, np.ndarray], normal: list[np.ndarray], at: int) -> np.ndarray:
    """Return the packed heads of one position, each times its gate."""
    d, group = _SIZES["head_dim"], _SIZES["num_heads"] // _SIZES["num_kv_heads"]
    found = []
    for head in range(_SIZES["num_heads"]):
        both = (normal[at] @ p["q_gate_w"])[2 * d * head : 2 * d * (head + 1)]
        query = _turned(_norm(both[:d], p["q_norm_w"], p["q_norm_b"]), p["cos"][at], p["sin"][at])
        columns = slice(d * (head // group), d * (head // group + 1))
        scores, values = [], []
        for other in range(at + 1):
            key = _norm((normal[other] @ p["k_w"])[columns], p["k_norm_w"], p["k_norm_b"])
            scores.append(query @ _turned(key, p["cos"][other], p["sin"][other]) / np.sqrt(d))
            values.append((normal[other] @ p["v_w"])[columns])
        weights = np.exp(np.array(scores) - max(scores))
        found.append(weights / weights.sum() @ np.array(values) / (1 + np.exp(-both[d:])))
    return np.concatenate(found)


def _reference(operands: dict[str, np.ndarray]) -> np.ndarray:
    p = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in operands.items()}
    result = []
    for row, (tokens, last) in enumerate(zip(p["input_ids"], p["last_token_idx"][:, 0], strict=True)):
        streams = []
        for at, token in enumerate(tokens):
            embedded = _norm(p["embed_w"][token], p["enorm_w"], p["enorm_b"])
            hidden = _norm(p["h_pre_norm"][row, at], p["hnorm_w"], p["hnorm_b"])
            streams.append(np.concatenate([embedded, hidden]) @ p["eh_w"])
        normal = [_norm(x, p["attn_norm_w"], p["attn_norm_b"]) for x in streams]
        finished = []
        for at, x in enumerate(streams):
            h = x + _attended(p, normal, at) @ p["o_w"]
            narrow = _norm(h, p["post_norm_w"], p["post_norm_b"])
            gate = narrow @ p["gate_w"]
            finished.append(h + (narrow @ p["up_w"] * gate / (1 + np.exp(-gate))) @ p["down_w"])
        result.append([_norm(finished[last], p["head_norm_w"], p["head_norm_b"]) @ p["lm_head_w"]])
    return np.array(result)


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 7), (3, 12)])
def test_evaluator_follows_the_description(batch: int, length: int) -> None:
    operands = _inputs(batch, length) | _weights()
    got = run("qwen35_mtp_head", *operands.values(), **_SIZES)
    agree(got, _reference(operands).astype(np.float32), noise=_ROOM)


def test_last_token_idx_is_clamped() -> None:
    operands = _inputs(2, 7) | _weights()
    expected = run("qwen35_mtp_head", *(operands | {"last_token_idx": np.array([[0], [6]])}).values(), **_SIZES)
    got = run("qwen35_mtp_head", *(operands | {"last_token_idx": np.array([[-3], [2**40]])}).values(), **_SIZES)
    assert np.array_equal(got, expected)


def _module(length: Any) -> rlx.GraphModule:
    """Return a module whose weights are parameters, for two sequences."""
    shapes: dict[str, Any] = {
        "h_pre_norm": (2, length, _EMBEDDING),
        "input_ids": (2, length),
        "cos": (length, _SIZES["n_rot"] // 2),
        "sin": (length, _SIZES["n_rot"] // 2),
        "last_token_idx": (2, 1),
    }

    def build(m: Any) -> Any:
        inputs = [
            m.input(n, s, dtype="i32" if n in ("input_ids", "last_token_idx") else "f32") for n, s in shapes.items()
        ]
        return m.qwen35_mtp_head(*inputs, *(m.param(n, a.shape) for n, a in _weights().items()), **_SIZES)

    return rlx.GraphModule.define("head", build)


@drawn("length", [7, "seq"])
def test_compiled_follows_the_description(length: Any) -> None:
    compiled = rlx.Session("cpu").compile(_module(length))
    compiled.set_params(_weights())
    for size in (7,) if length == 7 else (3, 7, 32):
        inputs = _inputs(2, size)
        got = compiled.run(inputs)
        agree(got[0], _reference(inputs | _weights()).astype(np.float32), noise=_ROOM)


@pytest.mark.parametrize("count", [28, 30])
def test_wrong_operand_count(count: int) -> None:
    graph: Any = rlx.Graph(stage="hir")
    tensors = [graph.input(n, a.shape, dtype=a.dtype) for n, a in (_inputs(2, 7) | _weights()).items()]
    given = [*tensors, tensors[0]][:count]
    with pytest.raises(rlx.ShapeError, match="29"):
        graph.qwen35_mtp_head(*given, **_SIZES)
    with pytest.raises(rlx.ShapeError, match="29"):
        graph.emit("qwen35_mtp_head", given, **_SIZES)
