"""Programs of realistic size, for measuring the compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from tests.plan.models import BLOCKS, graph
from tools.training_models import MODELS


@dataclass(frozen=True)
class Workload:
    """A program to measure: its name and sizes for readers, its graph, weights, and values of inputs and states."""

    name: str
    graph: Any
    params: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def workloads(model: Path | None) -> Iterator[tuple[str, Callable[[], Workload]]]:
    """Yield the measured programs, by name."""
    if model is not None:
        for batch, length in ((1, 16), (8, 128)):
            yield f"minilm-{batch}x{length}", lambda b=batch, n=length: _minilm(model, b, n)
    yield "llama", _llama
    yield "cnn", _cnn
    yield "resnet", _resnet
    yield "training", _training


def blocks(scale: int) -> Iterator[tuple[str, Callable[[], Workload]]]:
    """Yield blocks of real models, forward and differentiated, by name. `scale` determines their width."""
    for name in BLOCKS:
        yield name, lambda name=name: _block(name, scale, differentiated=False)
        yield f"{name}-gradient", lambda name=name: _block(name, scale, differentiated=True)


def _block(name: str, scale: int, differentiated: bool) -> Workload:
    g = graph(name, scale, differentiated=differentiated)
    return Workload(f"{name.replace('_', ' ')}{', its gradient' if differentiated else ''}", g)


def _minilm(model: Path, batch: int, length: int) -> Workload:
    from rlx.models.model import load_config
    from rlx.models.sentence import sentence_encoder

    graph = sentence_encoder(load_config(model / "config.json")[1], batch, length)
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


def _resnet() -> Workload:
    """Return ResNet-18 with its batch norms folded into the convolutions."""
    g: Any = rlx.Graph("resnet")

    def conv(x: Any, width: int, size: int, stride: int = 1) -> Any:
        number, before = len(g.params), x.shape.dims[1]
        w, b = g.param(f"w{number}", (width, before, size, size)), g.param(f"b{number}", (width, 1, 1))
        return g.conv(x, w, stride=stride, padding=size // 2) + b

    x = g.relu(conv(g.input("x", (1, 3, 112, 112)), 64, 7, 2))
    x = g.max_pool(x, (3, 3), (2, 2), 1)
    for width in (64, 128, 256, 512):
        for stride in (1 if width == 64 else 2, 1):
            skip = conv(x, width, 1, stride) if x.shape.dims[1] != width else x
            x = g.relu(conv(g.relu(conv(x, width, 3, stride)), width, 3) + skip)
    g.set_outputs([g.mean(x, (2, 3)) @ g.param("w", (512, 1000))])
    return Workload("ResNet-18, 1×3×112²", g)


def _training() -> Workload:
    from rlx.train.program import training_graph

    (mlp,) = [m for m in MODELS if m.graph().name == "mlp"]
    params, inputs = mlp.arrays()
    graph = training_graph(mlp.graph(), rlx.train.Adam(1e-3)).graph
    states = {a.name: params[a.name] for a in graph.arguments if a.kind == "state" and a.name in params}
    rest = {a.name: params[a.name] for a in graph.params if a.name in params}
    return Workload("a training step of an MLP, 128×784, Adam", graph, rest, {**inputs, **states})


def call_of(program: rlx.Program, workload: Workload) -> Callable[[], Any]:
    """Return a call of a compiled program with the values of its workload, or random ones."""
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
