"""The target `tpu`: facts that libtpu reports if it is installed, and errors if it is not."""

from __future__ import annotations

import importlib.util
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli.main import main
from rlx.targets.compilation import Compilation
from rlx.targets.registry import target_of
from rlx.targets.tpu import backend, process
from rlx.targets.tpu.targets import CHIPS

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed: rlx[tpu]"
)


def product(size: int = 512, dtype: str = "bf16") -> rlx.Graph:
    g = rlx.Graph("product")
    g.set_outputs([g.input("x", (size, size), dtype) @ g.param("w", (size, size), dtype)])
    return g


@needs_libtpu
def test_every_version_compiles_and_says_what_is_known(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    size = 512
    (tmp_path / "m.mlir").write_text(str(product(size)))
    for arch, chip in CHIPS.items():
        output = tmp_path / f"{arch}.tpu"
        command = [
            "compile",
            str(tmp_path / "m.mlir"),
            "--target=tpu",
            f"--arch={arch}",
            "--no-cache",
            "-o",
            str(output),
        ]
        assert main(command) == 0
        printed = capfd.readouterr()
        assert printed.err == "" and "memory: arguments 1 MiB, outputs 512 KiB" in printed.out
        assert f"by the peak of {arch}" in printed.out and f"for {chip.kind}, compiled by libtpu" in printed.out
        # The host of a TPU loads a pickle of JAX, which refers to the devices.
        assert output.read_bytes()[:1] == pickle.PROTO
        info = Compilation(product(size), target_of("tpu", arch)).artifact().info
        assert 2 * size**3 <= info["flops"] <= 2.1 * size**3
        assert 3 * 2 * size**2 <= info["bytes"] <= 20 * 2 * size**2
        least = backend.least_seconds(info["flops"], info["bytes"], chip)
        assert least is not None and info["seconds"] >= 0.5 * least


@needs_libtpu
def test_a_training_step_with_all_kinds_of_values() -> None:
    g = rlx.Graph("mixed")
    x, i = g.input("x", (4, 8)), g.input("i", (4,), "i32")
    loss = g.mean(g.tanh(x @ g.param("w", (8, 8))) ** 2) + g.mean(g.gather(g.param("table", (5,)), i))
    calls = g.state("calls", (), "u32")
    g.update(calls, calls + 1)
    g.set_outputs({"loss": loss, "values": g.topk(x, 2)[0], "flags": x > 0, "wide": g.cast(i, "i64") + 1})
    from rlx.train import AdamW
    from rlx.train.options import TrainingOptions
    from rlx.train.program import training_graph

    step = training_graph(g, AdamW(1e-3), TrainingOptions(loss="loss")).graph
    info = Compilation(step, target_of("tpu")).artifact().info
    assert info["order"] == [a.name for a in step.arguments]
    assert info["updates"] == [o.updates for o in step.results] and info["arguments"] > 0


@needs_libtpu
def test_what_is_too_large_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rlx.CompileError, match=r"libtpu refuses the program: .*(?:i64|s64)"):
        Compilation(product(8, "i64"), target_of("tpu")).artifact()
    with pytest.raises(rlx.CompileError, match=r"refuses the program: .*exceeds available HBM"):
        Compilation(product(1 << 16, "f32"), target_of("tpu")).artifact()


def test_what_is_refused_before() -> None:
    with pytest.raises(rlx.UnsupportedError, match=r"target tpu \(v5e\) does not support some dtypes"):
        _ = Compilation(product(8, "f64"), target_of("tpu")).lir
    with pytest.raises(rlx.CompileError, match="unknown architecture of tpu: 'v9'") as error:
        target_of("tpu", "v9")
    assert "known: v4, v5e, v5p, v6e, v7x" in str(error.value)
    with pytest.raises(rlx.CompileError, match="tpu has no flag '--fast'"):
        target_of("tpu", None, ("--fast",))
    g = rlx.Graph("symbolic")
    g.set_outputs([g.input("x", ("n", 2)) * 2.0])
    with pytest.raises(rlx.UnsupportedError, match="the size of n is a symbol"):
        Compilation(g, target_of("tpu")).artifact()


def test_without_libtpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "libtpu" else found(name))
    (tmp_path / "m.mlir").write_text(str(product(8)))
    assert main(["compile", str(tmp_path / "m.mlir"), "--target=tpu", "-o", str(tmp_path / "m.tpu")]) == 1
    error = capfd.readouterr().err
    assert "the target tpu needs the package 'libtpu'" in error and "pip install 'rlx[tpu]'" in error
    assert not (tmp_path / "m.tpu").exists()


FACTS = {
    "arguments": 8,
    "outputs": 8,
    "temporary": 0,
    "code": 8,
    "kind": "TPU",
    "flops": 1e9,
    "bytes": 1e6,
    "seconds": 1e-5,
}


@pytest.mark.parametrize(
    ("changed", "seconds", "line"),
    [
        ({}, 1e-5, "time: estimate 10 µs; at best 5.076 µs, by the peak of v5e"),
        ({"seconds": -2.0}, None, "time: the compiler's estimate of the time is not usable; at best 5.076 µs"),
        ({"seconds": math.nan}, None, "not usable"),
        ({"seconds": 1e-12}, None, "not usable"),  # below the chip's best time
        ({"seconds": 1e3}, None, "not usable"),
        ({"flops": -1.0}, 1e-5, "work: operations are not known, 976.6 KiB read and written"),
        ({"flops": -1.0, "bytes": math.inf}, None, "bytes are not known"),
    ],
)
def test_estimates_are_checked(
    changed: dict[str, Any], seconds: float | None, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replaces the compiler's answer. The compiler's estimates of the time are often nonsense."""
    monkeypatch.setattr(process, "version", lambda: "libtpu 0")
    monkeypatch.setattr(process, "compiled", lambda program, header, timeout_s=None: (FACTS | changed, b"code"))
    artifact = Compilation(product(8), target_of("tpu")).artifact()
    assert artifact.program == b"code" and artifact.info["seconds"] == seconds
    assert line in "\n".join(backend.notes(artifact))


def test_a_program_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "version", lambda: "libtpu 0")
    large = FACTS | {"temporary": 20 << 30}
    monkeypatch.setattr(process, "compiled", lambda program, header, timeout_s=None: (large, b"code"))
    with pytest.raises(rlx.CompileError, match="takes 20 GiB; v5e has 16 GiB"):
        Compilation(product(8), target_of("tpu")).artifact()


def test_a_mesh_is_left_out() -> None:
    g = rlx.Graph("spread", mesh=rlx.Mesh({"data": 2}))
    g.set_outputs([g.shard(g.input("x", (4,), sharding=("data",)) * 2.0, ("data",))])
    text = backend.emit("stablehlo", Compilation(g, target_of("tpu")))
    assert text is not None and "sdy" not in text and "mhlo" not in text
    np.testing.assert_array_equal(rlx.evaluate(g, {"x": np.ones(4, np.float32)})[0], np.full(4, 2.0))
