"""A classifier's training step compiles for devices that are not present."""

from __future__ import annotations

from typing import Any

import rlx
from rlx.targets.compilation import Compilation
from rlx.targets.registry import target_of
from rlx.train.options import TrainingOptions
from rlx.train.program import training_graph
from tests.drawing import drawn


@drawn("name", ["cuda", "rocm", "vulkan", "metal"])
def test_compiles(name: str) -> None:
    g: Any = rlx.Graph("classifier")
    x, labels = g.input("x", (8, 5)), g.input("labels", (8,), rlx.i32)
    h = g.relu(x @ g.param("w1", (5, 6)) + g.param("b1", (6,)))
    loss = g.softmax_cross_entropy_with_logits(h @ g.param("w2", (6, 4)), labels)
    g.set_outputs({"loss": g.mean(loss)})
    step = training_graph(g, rlx.train.AdamW(rlx.train.cosine(0.1, 10)), TrainingOptions(accumulate=2, clip_norm=1.0))
    artifact = Compilation(step.graph, target_of(name)).artifact()
    assert artifact.program and artifact.target == name
