"""Results of the transformers package for small models: `references/*.json`, which `tools/model_references.py` writes.

A file has a configuration in the format of that package, the names and shapes of its tensors, inputs and outputs.
Weights are computed from the names of the tensors, in the tool and here.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "references"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))

WITH_LABELS = {name for name in NAMES if name.endswith(("_sequence", "_answer"))}  # the heads of these classify


def reference(name: str) -> dict[str, Any]:
    """Return the content of a file."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values of a tensor, f32, large enough for every part of a model to affect the result."""
    values = np.random.default_rng(zlib.crc32(name.encode())).normal(0, 0.3, shape)
    return (values + ("norm" in name.lower() and name.endswith("weight"))).astype(np.float32)


def weights(shapes: Mapping[str, list[int]]) -> dict[str, np.ndarray]:
    """Return tensors by name."""
    return {name: weight(name, tuple(shape)) for name, shape in shapes.items()}


def arrays(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return inputs or outputs of a file, with integers as i32 and floats as f32."""
    result = {name: np.asarray(value) for name, value in values.items()}
    return {name: a.astype(np.int32 if a.dtype.kind == "i" else np.float32) for name, a in result.items()}


def write_model(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], num_files: int = 1) -> Path:
    """Write a folder in the format of published models: weights in one file, or in several with an index."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if num_files == 1:
        save_file(dict(tensors), folder / "model.safetensors")
        return folder
    places = {name: f"model-{i % num_files + 1:05}-of-{num_files:05}.safetensors" for i, name in enumerate(tensors)}
    for file in set(places.values()):
        save_file({name: tensors[name] for name, place in places.items() if place == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder
