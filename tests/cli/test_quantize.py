"""`rlx quantize`, from a file to files that run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli.main import main
from tests.quantization.test_calibrate import batches, network, weights


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("model.mlir").write_text(f"{network()}\n")
    arrays: dict[str, Any] = weights()
    np.savez("weights.npz", **arrays)
    np.savez("data.npz", x=np.stack([batch["x"] for batch in batches()]))
    return tmp_path


def _error(path: str, params: str) -> float:
    data = batches()[0]
    (wanted,) = rlx.evaluate(network(), data | weights())
    graph = rlx.parse(Path(path).read_text())
    stored = rlx.weights.open(params)
    (got,) = rlx.evaluate(graph, data | {a.name: stored[a.name].numpy() for a in graph.params})
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def test_quantize(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["quantize", "model.mlir", "--params=weights.npz"]
    assert main([*given, "--data=data.npz", "-o", "q.mlir", "--save-record=record.json", "--sensitivity"]) == 0
    printed = capsys.readouterr().out
    assert "all together" in printed and "q.mlir: net, 1 q_conv2d, 1 q_matmul" in printed
    assert 0 < _error("q.mlir", "weights.npz") < 0.02
    assert main([*given, "--record=record.json", "-o", "r.mlir", "--output-params=r.safetensors"]) == 0
    assert _error("r.mlir", "r.safetensors") == _error("q.mlir", "weights.npz")
    assert main([*given, "--activations=none", "--weights=int4", "-o", "w.mlir", "--output-params=w.safetensors"]) == 0
    assert _error("w.mlir", "w.safetensors") < 0.2
    assert Path("w.safetensors").stat().st_size < Path("weights.npz").stat().st_size
    capsys.readouterr()
    assert main([*given, "--data=data.npz", "-o", "f.mlir", "--min-cosine=0.9999999"]) == 0
    assert "q_matmul" not in capsys.readouterr().out.splitlines()[-1]
    np.savez("labelled.npz", x=np.load("data.npz")["x"], label=np.zeros(3))
    assert main([*given, "--data=labelled.npz", "-o", "l.mlir"]) == 0
    assert "labelled.npz: label is no input, and not read" in capsys.readouterr().err


def test_what_is_wrong(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("other.npz", y=np.zeros(3, np.float32))
    np.savez("flat.npz", x=np.zeros((3, 6), np.float32))
    for options, message in (
        ([], "rounding activations needs data"),
        (["--activations=none", "--sensitivity"], "measuring accuracy needs data"),
        (["--data=other.npz"], "other.npz has no array 'x'"),
        (["--data=data.npz", "--params=weights.npz", "--min-cosine=1"], "above 0 and below 1, got 1.0"),
        (["--data=flat.npz", "--params=weights.npz"], "give it one axis more"),
        (["--data=data.npz"], "param 'w' is missing"),
        (["--activations=none", "--output-params=o.safetensors"], "needs the weights"),
        (["--data=missing.npz"], "missing.npz"),
    ):
        assert main(["quantize", "model.mlir", "-o", "out.mlir", *options]) == 1
        assert re.search(message, capsys.readouterr().err)
    assert not Path("out.mlir").exists()
