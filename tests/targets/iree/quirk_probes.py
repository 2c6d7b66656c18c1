"""Shared helpers of the quirks' tests: the table of probes, and modules that are compiled without a workaround."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.support.errors import Error
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.pipeline import lowering_passes
from rlx.targets.iree.targets import target
from tests.targets.iree.vm_branches import lowered

_RANDOM = np.random.default_rng(0)
# Functions by name of the quirk, which return whether it occurs.
PROBES: dict[str, Callable[[], bool]] = {}


def probe(name: str) -> Callable[[Callable[[], bool]], None]:
    """Decorate a function that returns whether a quirk occurs."""

    def register(shows: Callable[[], bool]) -> None:
        PROBES[name] = shows

    return register


def floats(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def run(text: str, *arrays: np.ndarray, name: str = "cpu", arch: str | None = None) -> list[np.ndarray]:
    """The results of a module, compiled on the first rung."""
    device = target(name, arch)
    compiled = compile_module(text, replace(device, ladder=device.ladder[:1]), timeout_s=60)
    if compiled.cpu is not None and (lacks := compiled.cpu.lacks()):
        pytest.skip(lacks)
    return list(IreeExecutable(compiled.vmfb).function("main")(list(arrays)))


def fails(text: str, *arrays: np.ndarray) -> bool:
    """Whether a module fails to compile or to run."""
    try:
        run(text, *arrays)
    except Error:
        return True
    return False


def needs(step: str, build: Callable[..., Any], **inputs: tuple[np.ndarray, tuple[Any, ...]]) -> bool:
    """Whether a graph of f32 arrays, with declared sizes, is wrong or fails without one pass of the pipeline."""
    graph: Any = rlx.Graph("main")
    graph.set_outputs(build(graph, *(graph.input(name, dims) for name, (_, dims) in inputs.items())))
    arrays = {name: a for name, (a, _) in inputs.items()}
    assert step in lowering_passes(target("cpu")).split(",")
    try:
        results = run(lowered(graph, step), *arrays.values())
    except Error:
        return True
    wanted = rlx.evaluate(graph, arrays)
    return not all(np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(results, wanted, strict=True))
