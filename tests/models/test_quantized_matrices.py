"""Single matrices of folders that other tools have quantised: numbers of rows, and groups with options of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models.quantized import matrix, open_folder
from tests.models.quantized_files import CONFIG, awq, bytes_with_scales, gptq
from tests.models.references import write_model


def _values(path: Path, method: dict[str, Any], parts: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the tensors of a folder with some matrices, by the names of their parts."""
    named = {f"{stem}.{part}": np.ascontiguousarray(a) for stem, own in parts.items() for part, a in own.items()}
    folder = write_model(path, CONFIG | {"quantization_config": method}, named)
    return {name: tensor.numpy() for name, tensor in open_folder(folder).items()}


@pytest.mark.parametrize(("bits", "rows"), [(4, 270), (4, 1), (4, 2 * 8 + 7), (8, 6), (8, 270), (8, 1)])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("order", [False, True])
def test_gptq_rows_that_do_not_fill_words(
    tmp_path: Path, bits: int, rows: int, version: int, symmetric: bool, order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero-points are in as many words as they need. Rows are converted in several parts."""
    monkeypatch.setattr(matrix, "_AT_ONCE", 64 * 64)
    parts, expected = gptq(bits, 32, version, symmetric, order)(np.random.default_rng(rows), rows, 64)
    method = {"quant_method": "gptq", "bits": bits, "group_size": 32, "sym": symmetric, "desc_act": order}
    method["checkpoint_format"] = "gptq_v2" if version == 2 else "gptq"
    values = _values(tmp_path, method, {"x": parts})
    np.testing.assert_allclose(values["x.weight"], expected, rtol=2e-6, atol=2e-6)
    parts["qzeros"] = parts["qzeros"][:, :-1]
    with pytest.raises(rlx.Error, match=r"tensor 'x.qzeros' of .* expected int32 or uint32 \[2, "):
        _values(tmp_path / "short", method, {"x": parts})


@pytest.mark.parametrize("rows", [8, 264])
def test_awq_rows(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words have 8 rows each, so that other numbers of rows do not exist."""
    monkeypatch.setattr(matrix, "_AT_ONCE", 64 * 64)
    parts, expected = awq()(np.random.default_rng(rows), rows, 64)
    method = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
    np.testing.assert_allclose(_values(tmp_path, method, {"x": parts})["x.weight"], expected, rtol=2e-6, atol=2e-6)


def _groups(**groups: tuple[list[str], Any]) -> dict[str, Any]:
    own = {name: {"targets": targets, "weights": {"block_structure": size}} for name, (targets, size) in groups.items()}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": own}


@pytest.mark.parametrize("is_reversed", [False, True])
def test_each_group_has_its_block_structure(tmp_path: Path, is_reversed: bool) -> None:
    """Names count before regular expressions, and these before classes, in any order of the groups."""
    sizes = {"a.x": "128x32", "a.y": "192x32", "b": "64x64", "c": "channel"}
    rng, parts, expected = np.random.default_rng(0), dict[str, Any](), dict[str, np.ndarray]()
    for stem, size in sizes.items():
        parts[stem], expected[stem] = bytes_with_scales("float8_e4m3fn", size)(rng, 256, 64)
    groups = {"g0": (["re:.*x"], [128, 32]), "g1": (["re:a.*", "a.y"], [192, 32]), "g2": (["Linear"], [64, 64])}
    groups = {**groups, "g3": (["c", "re:.*c$"], None), "g4": (["a.x"], "128x32")}
    method = _groups(**dict(reversed(groups.items())) if is_reversed else groups)
    values = _values(tmp_path / "model", method, parts)
    for stem, array in expected.items():
        np.testing.assert_allclose(values[f"{stem}.weight"], array, rtol=2e-6, err_msg=stem)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            {"g0": (["re:.*x"], [128, 32]), "g1": (["re:a.*"], [192, 32])},
            "config_groups.g0' and 'quantization_config.conf",
        ),
        ({"g0": (["re:(x"], [128, 32]), "g1": (["re:a"], [192, 32])}, "the target 're:(x' is not a regular expression"),
        ({"g0": (["re:.*y"], [128, 32]), "g1": (["a.z"], [192, 32])}, "needs [256, 1] or [1]"),
        ({"g0": (["re:.*x"], [192, 32]), "g1": (["a.z"], [128, 32])}, "tensor 'a.x.weight_scale' of"),
        ({"g0": ("re:.*x", [128, 32])}, "'quantization_config.config_groups.g0.targets' must be a list of strings"),
        ({"g0": ([3], [128, 32])}, "'quantization_config.config_groups.g0.targets' must be a list of strings"),
        ({"g0": (["Linear"], [128.5, 32])}, "g0.weights.block_structure' must be a list of 2 integers"),
    ],
)
def test_refused_groups(tmp_path: Path, groups: dict[str, Any], message: str) -> None:
    parts, _ = bytes_with_scales("float8_e4m3fn", "120x32")(np.random.default_rng(0), 256, 64)
    with pytest.raises(rlx.Error) as caught:
        _values(tmp_path / "model", _groups(**groups), {"a.x": parts})
    assert message in str(caught.value)


def test_no_order_with_rectangles(tmp_path: Path) -> None:
    order = {"weight_g_idx": np.tile(np.array([0, 1], np.int32), 32)}
    parts, _ = bytes_with_scales("float8_e4m3fn", "128x32", "weight_scale_inv")(np.random.default_rng(0), 256, 64)
    with pytest.raises(
        rlx.UnsupportedError, match=r"tensor 'x.weight_g_idx' of .* scales for rectangles have no order"
    ):
        _values(tmp_path / "model", {"quant_method": "fp8", "weight_block_size": [128, 32]}, {"x": parts | order})
