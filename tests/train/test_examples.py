"""The training examples, with fewer steps and, for the transformer, a smaller model."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import rlx
from examples import char_transformer, digits_cnn, mlperf_tiny, tinyconv
from tests.drawing import drawn
from tests.packages import needs_package

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
@drawn("way", ["cpu-ste", "xla-lsq"], weights={"cpu-ste": 0.2})  # it takes a minute to compile
def test_digits_in_f32_and_in_few_bits(way: str, tmp_path: Path) -> None:
    device, method = way.split("-")
    accuracy = digits_cnn.train(device, 200, tmp_path, method, bits=4)
    assert accuracy["f32"] > 0.97
    assert accuracy["rounded"] < accuracy["f32"] - 0.01
    assert accuracy["trained"] > max(accuracy["f32"] - 0.02, accuracy["rounded"])
    assert (tmp_path / "digits_cnn.png").read_bytes().startswith(PNG)


@pytest.mark.slow
@needs_package("pycde", "fpga")
@needs_package("unicorn", "cortexm")
def test_digits_in_integers(tmp_path: Path) -> None:
    """All devices give the evaluator's class for every image, otherwise the example would fail."""
    accuracy = tinyconv.run([8], ["c", "m4", "fpga-sim"], 80, tmp_path, images=1)
    assert accuracy["f32"] > 0.9 and accuracy["8 bits"] > accuracy["f32"] - 0.05
    graph = rlx.parse((tmp_path / "tinyconv8.mlir").read_text())
    assert not graph.params and graph.outputs[0].shape == rlx.Shape((1,), "i32")


@pytest.mark.parametrize("name", mlperf_tiny.NETWORKS)
def test_shapes_of_mlperf_tiny(name: str, tmp_path: Path) -> None:
    mlperf_tiny.run([name], 0.125, 8, ["c"], "ecp5-85k", tmp_path)
    assert str(rlx.parse((tmp_path / f"{name}.mlir").read_text())).count("rlx.requantize") > 8


@pytest.mark.slow
def test_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"LAYERS": 1, "HEADS": 1, "EMBED": 64, "HIDDEN": 128, "FORMATS": ("F32", "Q8_0")}
    for name, value in sizes.items():
        monkeypatch.setattr(char_transformer, name, value)
    history, text = char_transformer.train("xla", 150, tmp_path, length=80)
    assert history[0]["loss"] > 6 and history[-1]["validation_bits"] < 0.5 * history[0]["loss"]
    assert text.startswith(char_transformer.PROMPT) and len(text) == 80 + len(char_transformer.PROMPT)
    # Random characters would rarely be letters and blanks.
    assert np.mean([c.islower() or c in " \n" for c in text]) > 0.7
    assert (tmp_path / "char_transformer.png").read_bytes().startswith(PNG)
    files = char_transformer.export(tmp_path / char_transformer.CHECKPOINT, tmp_path)
    losses = char_transformer.losses(files, "xla")
    assert losses["F32"] == pytest.approx(history[-1]["validation_bits"], abs=1e-5)
    assert losses["Q8_0"] == pytest.approx(losses["F32"], abs=0.01)


@pytest.fixture
def char_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The files of an untrained model with one layer, of the width that Q4_K packs."""
    monkeypatch.setattr(char_transformer, "LAYERS", 1)
    weights = char_transformer.initial(char_transformer.model(), np.random.default_rng(0))
    weights["head"][:, 128:] = 0  # only ASCII is likely, so that bytes of texts are whole characters
    save_file(weights, tmp_path / char_transformer.CHECKPOINT)
    return char_transformer.export(tmp_path / char_transformer.CHECKPOINT, tmp_path)


def test_characters_of_gguf_files(char_files: dict[str, Path], tmp_path: Path) -> None:
    """The file has the weights of the graph, and the language model of the file computes the logits of the graph."""
    read = char_transformer.read_back(char_files["F32"])
    stored = rlx.weights.open(tmp_path / char_transformer.CHECKPOINT)
    assert all((read[name] == stored[name].numpy()).all() for name in stored) and read.keys() == stored.keys()
    g = rlx.Graph("logits", stage="hir")
    hidden = char_transformer.layers(g, g.input("characters", (1, char_transformer.SPAN), "i32"))
    g.set_outputs({"logits": hidden @ g.param("head", (char_transformer.EMBED, char_transformer.CODES))})
    text = char_transformer.pieces(char_transformer.reference()[0], np.array([0]))["characters"]
    (expected,) = rlx.Session("numpy").compile(g, params=read).run({"characters": text})
    with rlx.llm.load(char_files["F32"]) as model:
        assert np.abs(model.logits(text[0].tolist()) - expected[0]).max() < 1e-3
    formats = {name: rlx.weights.open(file)["blk.0.attn_q.weight"].encoding.name for name, file in char_files.items()}
    assert formats == {"F32": "plain", "Q8_0": "q8_0", "Q4_K": "q4_k"}


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed")
@pytest.mark.parametrize("format", ["Q8_0", "Q4_K"])
def test_characters_by_llama_cpp(format: str, char_files: dict[str, Path]) -> None:
    file = char_files[format]
    text = char_transformer.continued(file, 24)
    other = char_transformer.continued_by_llama_cpp(file, 24)
    assert other is not None
    result = char_transformer.compared(file, text, other)
    assert result == "the same text" or float(result.split("differ by ")[1].split(":")[0]) < 0.1, result


def test_the_parts_of_the_text_do_not_overlap() -> None:
    training, validation = char_transformer.reference()
    known = {p.strip() for p in bytes(training.tolist()).decode("ascii").split("\n\n")}
    # The paragraph at the border is in both.
    shared = [p for p in bytes(validation.tolist()).decode("ascii").split("\n\n")[1:] if p.strip() in known]
    assert not [p for p in shared if len(p) > 30]


@pytest.mark.parametrize("module", ["sklearn.datasets", "matplotlib.figure"])
def test_what_is_missing_is_named_at_once(module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("rlx.train.TrainStep", None)  # it is not reached
    with pytest.raises(SystemExit, match=r"pip install 'rlx\[examples\]'"):
        digits_cnn.train("cpu", 1, tmp_path)
    if module == "matplotlib.figure":
        with pytest.raises(SystemExit, match=r"pip install 'rlx\[examples\]'"):
            char_transformer.train("cpu", 1, tmp_path, 1)


@pytest.mark.parametrize("example", [digits_cnn, char_transformer])
@pytest.mark.parametrize(
    ("options", "message"), [(["--steps", "0"], "decay_steps must be an integer"), (["--device", "abacus"], "abacus")]
)
def test_bad_options_are_refused(
    example: Any, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["example", "--output", str(tmp_path), *options])
    with pytest.raises(SystemExit, match=message):
        example.main()
