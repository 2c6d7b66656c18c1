"""What tuning finds: the time of a tuned program over that of the same program as given.

    python -m tools.bench_tuning [--seconds=120] [--only=cnn] [--model=FOLDER]

Prints the report of each, and a table as docs/performance.md has it: on one core, with one thread, in processor time, so that
what else the machine does counts little. The two programs of a row are measured once more, in turns, after the search: the
ratio is the median of the ratios of 15 rounds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.backends.cache import DiskCache
from rlx.runtime import tuning
from rlx.runtime.tuning import Request
from tools.bench_common import ONE_THREAD, calls_for, cpu_seconds, median_ms, median_ratio
from tools.training_models import MODELS

_ROUNDS, _SECONDS = 15, 0.3  # of a turn


@dataclass(frozen=True)
class Workload:
    """A program to tune: its name and sizes for readers, its graph, weights, and values of inputs and states."""

    name: str
    graph: Any
    params: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def workloads(model: Path | None) -> Iterator[tuple[str, Callable[[], Workload]]]:
    """What is measured, by name."""
    if model is not None:
        for batch, length in ((1, 16), (8, 128)):
            yield f"minilm-{batch}x{length}", lambda b=batch, n=length: _minilm(model, b, n)
    yield "llama", _llama
    yield "cnn", _cnn
    yield "training", _training


def _minilm(model: Path, batch: int, length: int) -> Workload:
    from rlx.models.bert import BertConfig, sentence_encoder

    graph = sentence_encoder(BertConfig.load(model / "config.json"), batch, length)
    ids = np.random.default_rng(0).integers(1000, 20000, (batch, length)).astype(np.int32)
    given = {a.name: ids if "ids" in a.name else np.ones((batch, length), a.shape.dtype.numpy) for a in graph.inputs}
    return Workload(f"MiniLM, {batch}×{length} tokens", graph, rlx.weights.open(model / "model.safetensors"), given)


def _llama() -> Workload:
    (decoder,) = [m for m in MODELS if m.graph().name == "decoder"]
    params, inputs = decoder.arrays()
    return Workload("a Llama block, 256×512, and its loss", decoder.graph(), params, inputs)


def _cnn() -> Workload:
    g: Any = rlx.Graph("cnn")
    x = g.input("x", (8, 3, 32, 32))
    for i, (before, after) in enumerate(((3, 32), (32, 64), (64, 64))):
        x = g.relu(g.conv(x, g.param(f"w{i}", (after, before, 3, 3)), padding=1) + g.param(f"b{i}", (after, 1, 1)))
        x = g.pool(x, kind="max", kernel=(2, 2), stride=(2, 2))
    g.set_outputs([g.reshape(x, (8, -1)) @ g.param("w", (1024, 10))])
    return Workload("a CNN, 8×3×32², three convolutions", g)


def _training() -> Workload:
    from rlx.train.program import training_graph

    (mlp,) = [m for m in MODELS if m.graph().name == "mlp"]
    params, inputs = mlp.arrays()
    graph = training_graph(mlp.graph(), rlx.train.Adam(1e-3)).graph
    states = {a.name: params[a.name] for a in graph.arguments if a.kind == "state" and a.name in params}
    rest = {a.name: params[a.name] for a in graph.params if a.name in params}
    return Workload("a training step of an MLP, 128×784, Adam", graph, rest, {**inputs, **states})


def row(workload: Workload, seconds: float, cache: str) -> str:
    """Tune a program, measure it once more, and give its row of the table."""
    session, disk = rlx.Session(threads=1), DiskCache(cache)
    options = {
        "bind": None,
        "precision": None,
        "passes": None,
        "policy": "direct",
        "opt": 2,
        "dispatch": None,
        "timeout": None,
    }
    request = Request(session, workload.graph, options, workload.params or None, workload.values, disk)
    tuned = tuning.tuned(request, seconds, measure=_processor_time)
    print(tuned.tuning, flush=True)
    given = session.compile(workload.graph, params=workload.params or None, cache=disk)
    times: list[list[float]] = [[], []]
    calls = [_call(program, workload) for program in (given, tuned)]
    counts = [max(1, calls_for(call, _SECONDS)) for call in calls]
    for number in range(_ROUNDS):
        for i in (0, 1) if number % 2 else (1, 0):
            times[i].append(cpu_seconds(calls[i], counts[i]))
    assert tuned.tuning is not None
    figures = f"{median_ms(times[0]):.3g} | {median_ms(times[1]):.3g} | {median_ratio(times[1], times[0]):.2f}"
    return f"| {workload.name} | {figures} | {tuned.tuning.chosen} |"


def _processor_time(program: rlx.CompiledGraph, inputs: Mapping[str, Any], calls: int) -> float:
    return cpu_seconds(lambda: program.run(inputs), calls)


def _call(program: rlx.CompiledGraph, workload: Workload) -> Callable[[], Any]:
    random = np.random.default_rng(0)
    inputs = {a.name: workload.values.get(a.name) for a in program.inputs}
    for a in program.inputs:
        if inputs[a.name] is None:
            inputs[a.name] = random.standard_normal(a.shape.static).astype(a.shape.dtype.numpy)
    if not workload.params:
        params = {a.name: a.shape for a in program.artifact.signature.of_kind("param")}
        program.set_params({n: random.standard_normal(s.static).astype(np.float32) / 10 for n, s in params.items()})
    for a in program.artifact.signature.of_kind("state"):
        if a.name in workload.values:
            program.set_state(a.name, workload.values[a.name])
    return lambda: program.run(inputs)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120, help="for each program (default: %(default)s)")
    parser.add_argument("--only", metavar="NAME", default="", help="programs whose name begins so")
    parser.add_argument("--model", type=Path, help="the folder of MiniLM, which is left out without it")
    arguments = parser.parse_args()
    os.environ.update(ONE_THREAD)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name, make in workloads(arguments.model):
            if name.startswith(arguments.only):
                rows.append(row(make(), arguments.seconds, cache))
                print(rows[-1], flush=True)
    print("\n".join(["| program | as given, ms | tuned, ms | ratio | kept |", "|---|---|---|---|---|", *rows]))


if __name__ == "__main__":
    main()
