"""Models from packages, compared with ONNX Runtime. Each is skipped if its package is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from tests.drawing import of_which
from tests.importers.test_onnx_contrib import run_by_onnxruntime

OCR, DYNAMIC = "p2o.DynamicDimension", "DynamicDimension"
BLOCKS = {f"{OCR}.1": "32*rows", f"{OCR}.2": "32*columns"}
RATE = {"sr": np.array(16000)}
# File, sizes for the importer, constants, and the shape of each input. Integers are drawn below 10.
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "magika": ("magika/models/standard_v3_3/model.onnx", {}, {}, {"bytes": (2, 2048)}),
    "detector": ("rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", BLOCKS, {}, {"x": (1, 3, 64, 96)}),
    "recogniser": ("rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", {"x_dim2": 48}, {}, {"x": (1, 3, 48, 64)}),
    "direction": ("rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {}, {}, {"x": (2, 3, 48, 96)}),
    "voice": (
        "silero_vad/data/silero_vad.onnx",
        {"input_dim0": 2, "input_dim1": 576, "state_dim1": 2},
        RATE,
        {"input": (2, 576), "state": (2, 2, 128)},
    ),
    "faces": ("nudenet/320n.onnx", {"height": "32*h", "width": "32*w"}, {}, {"images": (1, 3, 64, 96)}),
    "letters": (
        "piper/hebrew/nakdimon.onnx",
        {"unk__1915": 6, "unk__1916": 2},
        {},
        {"input_1": (6, 2)},
    ),
}


def path_of(file: str) -> Path:
    """Return the file of a model in a package, without importing the package."""
    package, _, rest = file.partition("/")
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"needs the package {package}")
    path = Path(found.submodule_search_locations[0]) / rest
    if not path.exists():
        pytest.skip(f"this version of {package} has no {rest}")
    return path


def prepared(name: str) -> tuple[rlx.Graph, dict[str, np.ndarray], list[Any]]:
    """Return a model, inputs, and ONNX Runtime's results for them."""
    file, sizes, constants, shapes = MODELS[name]
    path = path_of(file)
    g = rlx.from_onnx(path, sizes=sizes, constants=constants)
    random = np.random.default_rng(1)
    inputs = {}
    for declared in g.inputs:
        values = random.normal(size=shapes[declared.name]), random.integers(0, 10, shapes[declared.name])
        inputs[declared.name] = values[declared.shape.dtype.is_integer].astype(declared.shape.dtype.numpy)
    return g, inputs, run_by_onnxruntime(str(path), {**inputs, **constants})


@pytest.mark.parametrize("name", MODELS)
def test_evaluated(name: str) -> None:
    g, inputs, wanted = prepared(name)
    for mine, theirs in zip(rlx.evaluate(g, inputs), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)


@of_which("name")
@pytest.mark.parametrize("name", ["magika", "voice"])
def test_compiled(name: str) -> None:
    g, inputs, wanted = prepared(name)
    for mine, theirs in zip(rlx.Session("cpu").compile(g).run(inputs), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)
