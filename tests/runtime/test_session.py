"""Options and failures of compilation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.runtime.program import Program
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.cache import DiskCache
from tests.drawing import drawn


def test_unknown_devices_and_options(linear_graph: Any) -> None:
    with pytest.raises(rlx.Error, match=r"unknown device 'cpuu' .did you mean 'cpu'"):
        rlx.Session("cpuu")
    with pytest.raises(rlx.Error, match="unknown architecture of cuda"):
        rlx.Session("cuda", arch="sm_1")
    with pytest.raises(rlx.Error, match="threads must be an integer from 1 to 4096"):
        rlx.Session(threads=0)
    artifact = rlx.Session().compile(linear_graph).artifact
    wrong: list[Any] = [-1, 4097, True, "2"]
    for threads in wrong:
        with pytest.raises(rlx.Error, match="threads must be an integer from 1 to 4096"):
            Program(artifact, threads=threads)
    with pytest.raises(rlx.Error, match="policy 'fast'"):
        rlx.Session().compile(linear_graph, policy="fast")
    with pytest.raises(rlx.Error, match="compile takes a Graph"):
        rlx.Session().compile("module {}")
    with pytest.raises(rlx.Error, match="has no outputs"):
        rlx.Session().compile(rlx.Graph("empty"))


def test_a_parameter_of_symbolic_size_runs_where_its_symbol_is_fixed() -> None:
    g = rlx.Graph("scaled")
    g.set_outputs([g.input("x", (2, "n")) @ (g.param("w", ("n", 3)) * 2.0)])
    with pytest.raises(rlx.CompileError, match=r"parameter 'w' has a symbolic size(.|\n)*bind="):
        rlx.Session().compile(g, cache=False)
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    compiled = rlx.Session().compile(g, params={"w": w}, bind={"n": 4}, cache=False)
    np.testing.assert_allclose(compiled.run({"x": np.ones((2, 4), np.float32)})[0], np.ones((2, 4)) @ (2 * w))


def test_compiling_does_not_change_the_graph(session: Any, linear_graph: Any) -> None:
    before = str(linear_graph)
    session.compile(linear_graph, cache=False)
    assert str(linear_graph) == before


def test_cache_is_used_and_never_fatal(session: Any, linear_graph: Any, tmp_path: Path) -> None:
    cold = session.compile(linear_graph, cache=tmp_path / "cache")
    assert "iree" in cold.phases
    warm = session.compile(linear_graph, cache=tmp_path / "cache")
    assert "iree" not in warm.phases
    assert warm.artifact == cold.artifact
    for entry in DiskCache(tmp_path / "cache").directory.rglob("*"):
        if entry.is_file():
            os.truncate(entry, entry.stat().st_size // 2)
    again = session.compile(linear_graph, cache=tmp_path / "cache")
    assert "iree" in again.phases
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    unwritable = session.compile(linear_graph, cache=blocked)
    x, w = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    unwritable.set_param("w", w)
    np.testing.assert_array_equal(unwritable.run({"x": x})[0], np.full((2, 4), 3.0))


def test_options_are_part_of_the_key(linear_graph: Any, tmp_path: Path) -> None:
    for session in (rlx.Session(), rlx.Session(flags=("--iree-opt-level=O2",))):
        assert "iree" in session.compile(linear_graph, cache=tmp_path).phases


@drawn("device", ["cuda", "rocm", "vulkan", "metal"], of_each=2)
def test_other_targets_compile_here(device: str, tmp_path: Path) -> None:
    g: Any = rlx.Graph("layer", stage="hir")
    x = g.input("x", (1, 16, 32))
    weights = [g.transpose(g.param(f"w{i}", (32, 32))) for i in range(3)]  # [out, in], as in checkpoints
    q, k, v = (g.linear(x, w, activation="gelu") for w in weights)
    g.set_outputs([g.layer_norm(g.attention(q, k, v, num_heads=2, head_dim=16), np.ones(32, "f4"), np.zeros(32, "f4"))])
    compiled = rlx.Session(device).compile(g, cache=False)
    compiled.save(tmp_path / "program")
    assert Artifact.load(tmp_path / "program").target == device


def test_missing_device_is_an_error(linear_graph: Any) -> None:
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("this machine has a CUDA device")
    compiled = rlx.Session("cuda").compile(linear_graph)
    compiled.set_param("w", np.ones((3, 4), np.float32))
    with pytest.raises(rlx.ExecutionError):
        compiled.run({"x": np.ones((2, 3), np.float32)})
