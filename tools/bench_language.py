"""Language models with RLX and llama.cpp: decoding, prompts, memory and starts, from the same file with random weights.

llama.cpp is measured if the package `llama-cpp-python` is installed, built for this machine. To measure another CPU level, set
`RLX_CPU_LEVEL` and install a build of llama.cpp for this level.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tools.bench_common import Figure, median_ratio, worker
from tools.language_models import SHAPES, write_model

SCHEMES = ("q4_k", "q6_k", "q8_0")
THREADS = (1, 2)
# Decoding is limited by the memory, and prompts by the arithmetic of the CPU.
LIMIT = 1.0
_PROMPT, _TOKENS, _CONTEXT = 512, 16, 1024
# The start of Python to the first token, the second time and the first time.
WARM_S, COLD_S = 1.5, 15.0
# Memory beyond 1.1 times the file and the cache: the interpreter, libraries and the arrays of a run.
MEMORY_MIB = 300.0

Step = Callable[[], float]


def measure(rounds: int) -> Iterator[Figure]:
    """Yield the milliseconds of a token and of a prompt for each format and number of threads, and RLX's ratio.

    Times of one thread are processor times on one core, and those of several threads wall times.
    """
    peers = ["rlx", *(["llama.cpp"] if importlib.util.find_spec("llama_cpp") is not None else [])]
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            for scheme in SCHEMES:
                path = Path(folder) / f"{scheme}.gguf"
                write_model(path, shape, scheme)
                if scheme == SCHEMES[0]:
                    yield from _starts(path, f"{shape.name}, {scheme}", rounds)
                for threads in THREADS:
                    yield from _measured(path, f"{shape.name}, {scheme}, threads={threads}", threads, peers, rounds)
                path.unlink()


def _starts(path: Path, case: str, rounds: int) -> Iterator[Figure]:
    """Yield the wall times from the start of Python to the first token, and the peak memory."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "RLX_CACHE_DIR": cache}
        runs: list[dict[str, float]] = []
        for _ in range(1 + rounds):
            started = time.perf_counter()
            output = subprocess.run(
                [sys.executable, "-c", _START, str(path)], check=True, capture_output=True, env=environment, text=True
            ).stdout
            runs.append({**json.loads(output), "seconds": time.perf_counter() - started})
    warm = runs[1:]
    yield Figure(f"{case}: the first token of the first start", runs[0]["seconds"], "s", COLD_S)
    yield Figure(f"{case}: the first token", median(run["seconds"] for run in warm), "s", WARM_S)
    beyond = median(run["peak"] - 1.1 * path.stat().st_size - run["cache"] for run in warm) / 2**20
    yield Figure(f"{case}: memory beyond 1.1 of the file and the cache", beyond, "MiB", MEMORY_MIB)


# Prints the bytes of the cache and the peak of the process.
_START = """
import json, resource, sys
import rlx
model = rlx.llm.load(sys.argv[1])
model.generate("a", max_tokens=1)
cache = model.config.cache_bytes("f16") * model.context
print(json.dumps({"cache": cache, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


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
            yield Figure(f"{case}, {work}: {peer}", median(seconds[work, peer]) * 1e3, "ms")
        if len(peers) == 1:
            continue
        ratio = median_ratio(seconds[work, "rlx"], seconds[work, "llama.cpp"])
        yield Figure(f"{case}, {work}: rlx to llama.cpp", ratio, "x", LIMIT)


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
        yield rng.integers(300, 120_000, _PROMPT).tolist()


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
            lengths.append(len(model.generate(last, max_tokens=count, ignore_eos=True).tokens))

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
                model.eval([300 + number])

        return _timed(threads, generate) / _TOKENS

    return {f"prompt of {_PROMPT}": prompt, "token": token}
