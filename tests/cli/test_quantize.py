"""`rlx quantize`, from a file to runnable files."""

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


def test_integers_alone(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("rows.npz", x=np.concatenate([batch["x"] for batch in batches()]))
    given = ["quantize", "model.mlir", "--integer-only", "--bind=batch=8", "--params=weights.npz"]
    assert main([*given, "--data=rows.npz", "-o", "q.mlir", "--save-record=ranges.json", "--layer=w2=4"]) == 0
    assert "q.mlir: net, 1 q_conv2d, 1 q_matmul, weights of 8 bits" in capsys.readouterr().out
    graph = rlx.parse(Path("q.mlir").read_text())
    known, data = rlx.quantizations(graph), batches()[0]
    assert not graph.params and set(known) == {"x", "y"}
    (wanted,) = rlx.evaluate(network(), data | weights())
    got = known["y"].dequantize(rlx.evaluate(graph, {"x": known["x"].quantize(data["x"])})[0])
    assert np.linalg.norm(got - wanted) < 0.2 * np.linalg.norm(wanted)  # with 4 bits
    assert main([*given, "--record=ranges.json", "-o", "r.mlir", "--layer=w2=4"]) == 0
    assert Path("r.mlir").read_text() == Path("q.mlir").read_text()
    capsys.readouterr()
    rows = np.load("rows.npz")["x"]
    np.savez("more.npz", x=np.concatenate([rows, rows[:3]]))
    assert main([*given, "--data=more.npz", "-o", "m.mlir", "--layer=w2=4"]) == 0
    told = f"more.npz: 3 of {len(rows) + 3} rows of 'x' do not fill a batch of 8, and are not read"
    assert told in capsys.readouterr().err
    assert Path("m.mlir").read_text() == Path("q.mlir").read_text()
    assert main([*given, "--data=rows.npz", "-o", "s.mlir", "--max-bytes=200", "--mode=short"]) == 0
    printed = capsys.readouterr().out
    assert "score at 4 bits alone" in printed and re.search(r"s\.mlir: .*, (\d+) bytes of weights", printed)
    assert 'mode = "short"' in Path("s.mlir").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bits=4"], "--bits goes with --integer-only"),
        (["--data=data.npz", "--record=r.json", "--save-record=s.json"], "--record reads them: give one"),
        (["--integer-only", "--record=r.json", "--save-record=s.json"], "--record reads them: give one"),
        (["--activations=none", "--save-record=s.json"], "--activations=none does not use"),
        (["--integer-only"], "rounding activations needs data"),
        (["--integer-only", "--data=data.npz", "--weights=int4"], "--weights does not go with --integer-only"),
        (["--integer-only", "--data=data.npz", "--layer=w"], "--layer=w: expected NAME=BITS"),
        (["--integer-only", "--data=data.npz", "--layer=v=4", "--bind=batch=8"], "there is no product 'v'"),
        (["--integer-only", "--data=data.npz"], "unknown: batch"),
        (["--integer-only", "--data=data.npz", "--max-bytes=9", "--bits=4"], "choose the bits; --bits and --layer"),
        (["--integer-only", "--data=data.npz", "--max-bytes=9", "--bind=batch=8"], "the weights take 63 bytes"),
        (["--integer-only", "--record=data.npz"], "data.npz"),
        (["--allow-float", "--data=data.npz"], "--allow-float goes with --integer-only"),
    ],
)
def test_what_is_wrong_with_integers(
    files: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quantize", "model.mlir", "--params=weights.npz", "-o", "q.mlir", *options]) == 1
    assert message in capsys.readouterr().err and not Path("q.mlir").exists()


def test_ops_without_an_integer_form_stay_in_floats(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g: Any = rlx.Graph("ordered")
    w = g.constant(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
    g.set_outputs({"y": g.sort(g.input("x", (2, 4)) @ w, -1)})
    Path("sorted.mlir").write_text(str(g))
    np.savez("x.npz", x=np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 2, 4))
    given = ["quantize", "sorted.mlir", "--integer-only", "--data=x.npz", "-o", "s.mlir"]
    assert main(given) == 1
    assert "--allow-float" in capsys.readouterr().err
    assert main([*given, "--allow-float"]) == 0
    text = Path("s.mlir").read_text()
    assert "rlx.q_matmul" in text and "tensor<2x3xf32>" in text  # the order is of floats
