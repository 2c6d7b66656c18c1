"""Import errors have both locations: the one in the model, and the user's line that imports it."""

from __future__ import annotations

import inspect
import os
import random
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from tests.importers.onnx_models import cnn, transformer
from tools.fuzz.kinds import onnx


def check(source: Any, call: Callable[[Any], Any], place: str) -> bool:
    """Return whether a model is refused. Check that the error has a location in the model, and the line here."""
    line = inspect.getsourcelines(call)[1]
    try:
        call(source)
    except rlx.Error as problem:
        assert place in str(problem), problem
        assert f"{__file__}:{line}" in str(problem), problem
        return True
    return False


TEXTS = (
    """func.func @main(%x: tensor<2x3xf32>, %w: tensor<3x4xf32>) -> tensor<2x4xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %1 = stablehlo.constant dense<1.0> : tensor<2x4xf32>
  %2 = stablehlo.add %0, %1 : tensor<2x4xf32>
  return %2 : tensor<2x4xf32>
}
""",
    """func.func @main(%x: tensor<4x6xi32>) -> tensor<3x2xi32> {
  %0 = stablehlo.slice %x [1:4, 0:4:2] : (tensor<4x6xi32>) -> tensor<3x2xi32>
  %1 = func.call @inner(%0) : (tensor<3x2xi32>) -> tensor<3x2xi32>
  return %1 : tensor<3x2xi32>
}
func.func private @inner(%x: tensor<3x2xi32>) -> tensor<3x2xi32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x2xi32>) -> tensor<2x3xi32>
  %1 = stablehlo.reshape %0 : (tensor<2x3xi32>) -> tensor<3x2xi32>
  %2 = stablehlo.custom_call @chlo.abs(%1) : (tensor<3x2xi32>) -> tensor<3x2xi32>
  return %1 : tensor<3x2xi32>
}
""",
)
# Words that replace another word of a text: wrong types, attributes and ops.
WORDS = (
    "i64",
    "f64",
    "i4",
    "?",
    "0",
    "1",
    "7",
    "-1",
    "add",
    "divide",
    "foo",
    "@inner",
    "stablehlo.sine",
    "tensor<2xf32>",
)


def damaged(text: str, rng: random.Random) -> str:
    """Return a text with one or two words replaced."""
    for _ in range(rng.randint(1, 2)):
        word = rng.choice(list(re.finditer(r"[\w.@]+", text)))
        text = text[: word.start()] + rng.choice(WORDS) + text[word.end() :]
    return text


def test_of_damaged_texts(seed: int) -> None:
    generators = [random.Random(f"{seed} {i}") for i in range(150)]
    texts = [damaged(rng.choice(TEXTS), rng) for rng in generators]
    refused = [check(text, lambda s: rlx.from_stablehlo(s), "<text>:") for text in texts]
    assert sum(refused) > 50


def test_of_damaged_onnx_models(seed: int) -> None:
    models = [cnn(), transformer()]
    refused = 0
    for i in range(100):
        rng = random.Random(f"{seed} {i}")
        refused += check(onnx.damaged_fields(rng.choice(models), rng), lambda s: rlx.from_onnx(s), "<bytes>")
    assert refused > 20


def test_of_text_whose_ops_rlx_refuses() -> None:
    """The op's location is in the file, and the message about shapes comes from the builder."""
    text = """func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.custom_call @chlo.erf(%x) {foo = 1 : i32} : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("layer.py":7:3)
  return %0 : tensor<2x3xf32>
}
"""
    assert not check(text, lambda s: rlx.from_stablehlo(s), "layer.py:7:3")
    assert check(text.replace("chlo.erf", "other"), lambda s: rlx.from_stablehlo(s), "layer.py:7:3")


def test_of_functions_of_jax() -> None:
    pytest.importorskip("jax")

    def wrong(x: Any) -> Any:
        return x @ x

    line = f"{__file__}:{inspect.getsourcelines(wrong)[1] + 1}"
    assert check(wrong, lambda f: rlx.from_jax(f, np.ones((2, 3), np.float32)), line)
    assert check(wrong, lambda f: rlx.from_jax(lambda x: f(f(x)), np.ones((2, 3), np.float32)), line)


def test_of_modules_of_torch() -> None:
    torch = pytest.importorskip("torch")

    class Wrong(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.airy_ai(x)

    line = f"{__file__}:{inspect.getsourcelines(Wrong.forward)[1] + 1}"
    assert check(Wrong(), lambda m: rlx.from_torch(m, (torch.ones(2),)), line)


@pytest.mark.parametrize("importer", [rlx.from_stablehlo, rlx.from_onnx])
def test_what_is_no_file_is_refused_at_once(importer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        began = time.monotonic()
        for name, kind in {"pipe": "a pipe", "socket": "a socket", "/dev/zero": "a device", ".": "a folder"}.items():
            with pytest.raises(rlx.Error, match=f"expected a file of .*{kind}") as caught:
                importer(name)
            assert __file__ in str(caught.value)
            Path("link").symlink_to(name)
            with pytest.raises(rlx.Error, match=kind):
                importer("link")
            Path("link").unlink()
        assert time.monotonic() - began < 5
