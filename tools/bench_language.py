"""Language models with RLX and llama.cpp: decoding and prompts, from the same file with random weights.

llama.cpp is measured if the package `llama-cpp-python` is installed, built for this machine.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tools.bench_common import Figure, median_ratio, worker

SCHEMES = ("q4_k", "q6_k", "q8_0")
THREADS = (1, 2)
# Decoding is limited by the memory, and prompts by the arithmetic of the CPU.
LIMIT = 1.0
_PROMPT, _TOKENS, _CONTEXT = 512, 16, 1024
_LAYERS, _WIDTH, _HEAD, _HEADS, _KV_HEADS, _FEED_FORWARD, _VOCABULARY = 28, 1024, 128, 16, 8, 3072, 151936

Step = Callable[[], float]


def measure(rounds: int) -> Iterator[Figure]:
    """Yield the milliseconds of a token and of a prompt for each format and number of threads, and RLX's ratio.

    Times of one thread are processor times on one core, and those of several threads wall times.
    """
    peers = ["rlx", *(["llama.cpp"] if importlib.util.find_spec("llama_cpp") is not None else [])]
    with tempfile.TemporaryDirectory() as folder:
        for scheme in SCHEMES:
            path = Path(folder) / f"{scheme}.gguf"
            write_model(path, scheme)
            for threads in THREADS:
                yield from _measured(path, f"{scheme}, threads={threads}", threads, peers, rounds)
            path.unlink()


def _measured(path: Path, case: str, threads: int, peers: list[str], rounds: int) -> Iterator[Figure]:
    seconds: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        workers = {p: stack.enter_context(worker(_open, p, path, threads, pinned=threads == 1)) for p in peers}
        for turn in range(rounds + 1):
            for peer in peers if turn % 2 else reversed(peers):
                found = workers[peer].submit(_turn).result()
                for work, value in found.items() if turn else ():  # the first turn warms up
                    seconds.setdefault((work, peer), []).append(value)
    for work in ("token", f"prompt of {_PROMPT}"):
        for peer in peers:
            yield Figure(f"Qwen3-0.6B, {case}, {work}: {peer}", median(seconds[work, peer]) * 1e3, "ms")
        if len(peers) == 1:
            continue
        ratio = median_ratio(seconds[work, "rlx"], seconds[work, "llama.cpp"])
        yield Figure(f"Qwen3-0.6B, {case}, {work}: rlx to llama.cpp", ratio, "x", LIMIT)


# --- the file -------------------------------------------------------------------------------------


def write_model(path: Path, scheme: str) -> None:
    """Write a model with the sizes of Qwen3-0.6B, whose matrices are packed in one format."""
    import rlx
    from rlx.weights import PackedBlocks, Weight

    packing, rng = rlx.weights.schemes[scheme], np.random.default_rng(0)
    encode = packing.encode
    assert encode is not None
    tensors: dict[str, Any] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        few = encode((rng.standard_normal((64, columns)) * 0.02).astype(np.float32))
        data = np.resize(few, (rows, few.shape[1])).tobytes()
        tensors[f"{name}.weight"] = Weight(
            name, (rows, columns), PackedBlocks(packing), len(data), str(path), lambda: data
        )

    matrix("token_embd", _VOCABULARY, _WIDTH)
    tensors["output_norm.weight"] = np.ones(_WIDTH, np.float32)
    for number in range(_LAYERS):
        layer = f"blk.{number}."
        matrix(f"{layer}attn_q", _HEADS * _HEAD, _WIDTH)
        matrix(f"{layer}attn_k", _KV_HEADS * _HEAD, _WIDTH)
        matrix(f"{layer}attn_v", _KV_HEADS * _HEAD, _WIDTH)
        matrix(f"{layer}attn_output", _WIDTH, _HEADS * _HEAD)
        matrix(f"{layer}ffn_gate", _FEED_FORWARD, _WIDTH)
        matrix(f"{layer}ffn_up", _FEED_FORWARD, _WIDTH)
        matrix(f"{layer}ffn_down", _WIDTH, _FEED_FORWARD)
        for norm, size in (("attn_norm", _WIDTH), ("ffn_norm", _WIDTH), ("attn_q_norm", _HEAD), ("attn_k_norm", _HEAD)):
            tensors[f"{layer}{norm}.weight"] = np.ones(size, np.float32)
    rlx.weights.save_gguf(path, tensors, _metadata())


def _metadata() -> dict[str, Any]:
    tokens = [f"<{number}>" for number in range(_VOCABULARY)]
    sizes = {
        "block_count": _LAYERS,
        "context_length": 4096,
        "embedding_length": _WIDTH,
        "feed_forward_length": _FEED_FORWARD,
        "attention.head_count": _HEADS,
        "attention.head_count_kv": _KV_HEADS,
        "attention.key_length": _HEAD,
        "attention.value_length": _HEAD,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
    }
    return {
        "general.architecture": "qwen3",
        **{f"qwen3.{name}": value for name, value in sizes.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.ones(_VOCABULARY, np.int32),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }


# --- in the peer's process ------------------------------------------------------------------------

_steps: dict[str, Step] = {}


def _open(peer: str, path: Path, threads: int) -> None:
    _steps.update((_rlx_steps if peer == "rlx" else _llama_steps)(path, threads))


def _turn() -> dict[str, float]:
    """Return the seconds of a prompt, and of a token after it."""
    return {work: step() for work, step in _steps.items()}


def _timed(threads: int, call: Callable[[], Any]) -> float:
    clock = time.process_time if threads == 1 else time.perf_counter
    started = clock()
    call()
    return clock() - started


def _prompts() -> Iterator[list[int]]:
    """Yield prompts that share no start, so that no part of one is still in a cache."""
    rng = np.random.default_rng(1)
    while True:
        yield rng.integers(2, _VOCABULARY, _PROMPT).tolist()


def _rlx_steps(path: Path, threads: int) -> dict[str, Step]:
    import rlx

    model = rlx.llm.load(path, threads=threads, context=_CONTEXT)
    prompts, last = _prompts(), list[int]()

    def prompt() -> float:
        last[:] = next(prompts)
        return _timed(threads, lambda: model.generate(last, max_tokens=1))

    def token() -> float:
        # All tokens of the prompt except the last one are in the cache.
        lengths: list[int] = []

        def generate(count: int) -> None:
            lengths.append(len(model.generate(last, max_tokens=count, logit_bias={1: -100.0}).tokens))

        one, many = (_timed(threads, lambda count=count: generate(count)) for count in (1, 1 + _TOKENS))
        if lengths != [1, 1 + _TOKENS]:
            raise ArithmeticError(f"generated {lengths} tokens")
        return (many - one) / _TOKENS

    return {f"prompt of {_PROMPT}": prompt, "token": token}


def _llama_steps(path: Path, threads: int) -> dict[str, Step]:
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=_CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False)
    prompts = _prompts()

    def prompt() -> float:
        tokens = next(prompts)
        model.reset()
        return _timed(threads, lambda: model.eval(tokens))

    def token() -> float:
        # Without sampling, which is slow in the Python package: the time of RLX includes it.
        def generate() -> None:
            for number in range(_TOKENS):
                model.eval([2 + number])

        return _timed(threads, generate) / _TOKENS

    return {f"prompt of {_PROMPT}": prompt, "token": token}
