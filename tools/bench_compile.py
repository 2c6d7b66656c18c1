"""Compile time of MiniLM: the share of RLX compared with that of IREE, and the time saved by the disk cache."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools.bench_common import Figure, worker

OWN_LIMIT_S, WARM_LIMIT_S = 0.5, 0.3
_SHAPE = (1, 128)
_PROCESSES = 3


def measure(model: Path) -> Iterator[Figure]:
    """Yield the seconds of each phase, each the median over fresh processes."""
    runs = []
    for _ in range(_PROCESSES):
        with tempfile.TemporaryDirectory() as cache, worker(pinned=False) as process:
            runs.append(process.submit(_compile, model, cache).result())
    seconds = {phase: statistics.median(run[phase] for run in runs) for phase in runs[0]}
    case = f"compile MiniLM, {_SHAPE[0]} x {_SHAPE[1]} tokens"
    for phase in ("graph", "key", "passes", "lower", "iree"):
        yield Figure(f"{case}: {phase}", seconds[phase], "s")
    # IREE compiles in a separate process, so the processor time of this process is the share of RLX.
    yield Figure(f"{case}: own share (processor time)", seconds["own"], "s", OWN_LIMIT_S)
    yield Figure(f"{case}: graph and compile, from the cache", seconds["warm"], "s", WARM_LIMIT_S)
    yield Figure(f"{case}: load, with packing of the weights", seconds["load"], "s")


def _compile(model: Path, cache: str) -> dict[str, float]:
    from rlx.models.model import load_config
    from rlx.models.sentence import sentence_encoder
    from rlx.runtime.session import Session
    from rlx.weights import open as open_weights

    config, session = load_config(model / "config.json")[1], Session()
    weights = {name: weight.numpy() for name, weight in open_weights(model).items()}
    cpu_started, started = time.process_time(), time.perf_counter()
    graph = sentence_encoder(config, *_SHAPE)
    built = time.perf_counter()
    cold = session.compile(graph, cache=cache)
    seconds = {**cold.phases, "graph": built - started, "own": time.process_time() - cpu_started}
    started = time.perf_counter()
    warm = session.compile(sentence_encoder(config, *_SHAPE), cache=cache)
    seconds["warm"] = time.perf_counter() - started
    if "cached" in cold.phases or "cached" not in warm.phases:
        raise AssertionError("the first compilation fills the cache and the second reads it")
    warm.set_params({a.name: weights[a.name] for a in graph.params})
    started = time.perf_counter()
    warm.load()
    return {**seconds, "load": time.perf_counter() - started}
