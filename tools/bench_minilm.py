"""all-MiniLM-L6-v2 with RLX, ONNX Runtime and JAX: each in a process on the same core, one thread, f32, alternating."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench_common import Figure, calls_for, cpu_seconds, median_ms, median_ratio, worker

PEERS = ("rlx", "onnxruntime", "onnxruntime, fused ops", "jax")
SHAPES = ((1, 16), (1, 64), (1, 128), (1, 256), (8, 32), (8, 128))
LIMIT = 1.15  # times the time of the faster library
_TOLERANCE = 1e-5
_SECONDS_PER_TURN = 0.15

Shape = tuple[int, int]
Encode = Callable[[np.ndarray, np.ndarray], np.ndarray]


def measure(model: Path, rounds: int) -> Iterator[Figure]:
    """Yield, for each batch and length, the time of each library and RLX's ratio to the fastest other.

    Raises:
        ArithmeticError: The vectors of the libraries differ.
    """
    with contextlib.ExitStack() as stack:
        workers = {peer: stack.enter_context(worker(_open, peer, model)) for peer in PEERS}
        calls = {}
        for shape in SHAPES:
            vectors = {peer: w.submit(_prepare, shape).result() for peer, w in workers.items()}
            _check(shape, vectors)
            for peer, w in workers.items():
                calls[peer, shape] = w.submit(_calls, shape).result()
        seconds: dict[Any, list[float]] = {key: [] for key in calls}
        for _ in range(rounds):
            for peer, shape in calls:
                turn = workers[peer].submit(_turn, shape, calls[peer, shape])
                seconds[peer, shape].append(turn.result())
    for shape in SHAPES:
        milliseconds = {peer: median_ms(seconds[peer, shape]) for peer in PEERS}
        case = f"MiniLM, batch {shape[0]}, {shape[1]} tokens"
        for peer in PEERS:
            yield Figure(f"{case}: {peer}", milliseconds[peer], "ms")
        ratio = max(median_ratio(seconds["rlx", shape], seconds[peer, shape]) for peer in PEERS[1:])
        yield Figure(f"{case}: rlx to the fastest other", ratio, "x", LIMIT)


def _check(shape: Shape, vectors: dict[str, np.ndarray]) -> None:
    for peer in PEERS[1:]:
        error = float(np.abs(vectors[peer] - vectors["rlx"]).max())
        if not error < _TOLERANCE:
            raise ArithmeticError(f"{peer} and rlx differ by {error:.2g} at {shape}")


# --- in the peer's process ------------------------------------------------------------------------

_make: Callable[[int, int], Encode]
_prepared: dict[Shape, Callable[[], np.ndarray]] = {}


def _open(peer: str, model: Path) -> None:
    global _make
    _make = _rlx(model) if peer == "rlx" else _other(peer, model)


def _prepare(shape: Shape) -> np.ndarray:
    """Compile, and return the vectors of the sentences that will be timed."""
    encode = _make(*shape)
    ids, mask = _batch(*shape)
    _prepared[shape] = lambda: encode(ids, mask)
    return _prepared[shape]()


def _calls(shape: Shape) -> int:
    return calls_for(_prepared[shape], _SECONDS_PER_TURN)


def _turn(shape: Shape, calls: int) -> float:
    return cpu_seconds(_prepared[shape], calls)


def _batch(batch: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return token ids and mask. All rows but the first are slightly shorter than `length`."""
    rng = np.random.default_rng(batch * 1000 + length)
    ids = rng.integers(1000, 30000, (batch, length), dtype=np.int32)
    mask = np.ones((batch, length), np.int32)
    for row in range(1, batch):
        mask[row, length - row % (length // 4) :] = 0
    return ids * mask, mask


def _rlx(model: Path) -> Callable[[int, int], Encode]:
    from rlx.models.embedder import SentenceEmbedder
    from rlx.runtime.session import Session

    embedder = SentenceEmbedder(model, Session(threads=1))

    def make(batch: int, length: int) -> Encode:
        program = embedder.program(batch, length)
        return lambda ids, mask: program.run({"input_ids": ids, "attention_mask": mask})[0]

    return make


def _other(peer: str, model: Path) -> Callable[[int, int], Encode]:
    from rlx.models.model import load_config
    from rlx.weights import open as open_weights

    config = load_config(model / "config.json")[1]
    weights = {name: weight.numpy() for name, weight in open_weights(model).items()}
    if peer == "jax":
        from tools.bench_jax import jax_sentence_encoder

        encode = jax_sentence_encoder(config, weights)
    else:
        from tools.bench_onnx import onnx_sentence_encoder

        style = "fused" if peer.endswith("fused ops") else "standard"
        session = onnx_session(onnx_sentence_encoder(config, weights, style))
        encode = lambda ids, mask: session.run(["embedding"], {"ids": ids, "mask": mask})[0]  # noqa: E731
    return lambda batch, length: encode


def onnx_session(model: bytes) -> Any:
    """Return an `onnxruntime.InferenceSession` with all graph optimisations and one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
