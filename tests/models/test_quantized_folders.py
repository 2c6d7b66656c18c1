"""Folders that other tools have quantised: their models are those with the weights in f32, and weights stay packed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models import load
from rlx.models.checkpoint import ModelTensors, ParameterPrefix
from rlx.models.quantized import matrix, open_folder
from rlx.models.weight_views import split_rows
from rlx.weights import PackedBlocks, PermutedBlocks
from rlx.weights.arrays import keep
from tests.models.quantized_files import (
    CONFIG,
    FOLDERS,
    MATRICES,
    bytes_with_scales,
    folder_pair,
    gptq,
    mlx,
    model_tensors,
)
from tests.models.references import reference, weight, weights, write_model

_IDS = np.array([[1, 5, 40, 7, 7]], np.int32)


def _logits(folder: Path) -> np.ndarray:
    graph = load(folder).graph(batch=1, sequence=_IDS.shape[1])
    (logits,) = rlx.evaluate(graph, {"input_ids": _IDS})
    return np.asarray(logits)


@pytest.mark.parametrize("name", FOLDERS)
def test_logits_and_formats(tmp_path: Path, name: str) -> None:
    quantised, plain = folder_pair(tmp_path, name)
    expected, got = _logits(plain), _logits(quantised)
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()
    weights = load(quantised).weights
    for part, (_, columns) in MATRICES.items():
        encoding = weights[f"layers.1.{part}.weight"].encoding
        is_permuted = "order" in name
        assert isinstance(encoding, PermutedBlocks if is_permuted else PackedBlocks)
        if columns == 64:  # others may have larger blocks
            assert encoding.scheme.name == FOLDERS[name].scheme
    # The values of a weight are those of the matrix.
    values = {n: w.numpy() for n, w in open_folder(quantised).items()}
    decoded = rlx.weights.open(plain)
    assert {*values} == {*decoded}
    for key, tensor in decoded.items():
        np.testing.assert_allclose(values[key], tensor.numpy(), rtol=2e-6, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("name", ["gptq_order", "float_order"])
def test_compiled_models(tmp_path: Path, name: str) -> None:
    quantised, plain = folder_pair(tmp_path, name)
    graph = load(quantised).graph(batch=1, sequence=_IDS.shape[1])
    (got,) = rlx.Session("cpu").compile(graph).run({"input_ids": _IDS})
    expected = _logits(plain)
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


def test_one_conversion(tmp_path: Path) -> None:
    """A matrix that is in use is not converted again."""
    tensor = open_folder(folder_pair(tmp_path, "gptq")[0])["model.layers.0.mlp.up_proj.weight"]
    first = tensor.stored()
    assert np.shares_memory(first, tensor.stored()) and not first.flags.writeable


def _refusal(path: Path, name: str, own: dict[str, Any] | None = None, tensors: Any = None, **config: Any) -> str:
    """Return the error for a folder of a kind with other fields or tensors."""
    kind = FOLDERS[name]
    _, quantised = model_tensors(kind.quantize, kind.also, kind.unused)
    key = next(iter(kind.config))
    fields = CONFIG | {key: dict(kind.config[key]) | (own or {})} | config
    fields[key] = {n: v for n, v in fields[key].items() if v is not ...}
    folder = write_model(path / "model", fields, quantised if tensors is None else tensors(quantised))
    with pytest.raises(rlx.Error) as caught:
        for tensor in load(folder).weights.values():
            tensor.numpy()
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "own", "message"),
    [
        (
            "gptq",
            {"quant_method": "bitsandbytes"},
            "'quant_method' 'bitsandbytes' are not supported; supported are awq, ",
        ),
        ("gptq", {"quant_method": ["gptq"]}, "and those of MLX"),
        ("gptq", {"quant_method": ..., "bits": ...}, "'quant_method' None are not supported"),
        ("gptq", {"bits": 3}, "weights of GPTQ with 3 bits are not supported, only 4 and 8"),
        ("gptq", {"bits": 8}, "'model.layers.0.mlp.down_proj.scales' of"),
        ("gptq", {"bits": "4"}, "'quantization_config.bits' must be"),
        ("gptq", {"group_size": 64}, "expected float16 or bfloat16 or float32 [4, 64]"),
        ("gptq", {"group_size": 0}, "'quantization_config.group_size' must be a positive integer"),
        ("gptq", {"checkpoint_format": "marlin"}, "the format 'marlin' of GPTQ is not supported; supported are gptq, "),
        ("gptq", {"sym": True}, "has zero-points other than 8, and 'sym' of its configuration is true"),
        ("awq", {"version": "gemv"}, "the layout 'gemv' of AWQ is not supported, only 'gemm'"),
        ("awq", {"bits": 8}, "weights of AWQ with 8 bits are not supported"),
        ("awq", {"zero_point": False}, "quantization_config.zero_point False is not supported"),
        ("mlx_4", {"mode": "mxfp4"}, "the mode 'mxfp4' of MLX is not supported"),
        ("mlx_4", {"bits": 7}, "weights of MLX with 7 bits are not supported"),
        ("mlx_4", {"bits": 8}, "'lm_head.scales'"),
        ("packed_4", {"format": "nvfp4-pack-quantized"}, "the format 'nvfp4-pack-quantized' of compressed-tensors"),
        ("packed_4", {"config_groups": {"a": {"format": "marlin-24"}}}, "the format 'marlin-24' of compressed-tensors"),
        ("packed_4", {"config_groups": []}, "'quantization_config.config_groups' must be an object"),
        ("packed_4", {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse weights of compressed-tensors"),
        (
            "packed_4",
            {"transform_config": {"config_groups": {"u": {"type": "hadamard", "apply": [{"location": "input"}]}}}},
            "transforms of activations ('quantization_config.transform_config') are not supported",
        ),
        ("packed_4", {"transform_config": 3}, "'quantization_config.transform_config' must be an object"),
        ("packed_4", {"rotation": "hadamard"}, "the field 'quantization_config.rotation' of compressed-tensors is not"),
        (
            "packed_4",
            {"config_groups": {"a": {"pre_scale": [1]}}},
            "the field 'quantization_config.config_groups.a.pre",
        ),
        ("fp8_blocks", {"weight_block_size": [64, 128]}, "weight_scale_inv' of"),
        ("fp8_blocks", {"weight_block_size": [0, 128]}, "'quantization_config.weight_block_size' must be a list of 2"),
        ("fp8_blocks", {"weight_block_size": "a"}, "'quantization_config.weight_block_size' must be a list of 2"),
    ],
)
def test_configurations(tmp_path: Path, name: str, own: dict[str, Any], message: str) -> None:
    # MLX has the object twice; the first one counts.
    assert message in _refusal(tmp_path, name, own)


def test_fields_without_a_meaning(tmp_path: Path) -> None:
    """Files of the library have all fields, and those that are not used are null or empty."""
    kind = FOLDERS["packed_4"]
    _, quantised = model_tensors(kind.quantize, kind.also, kind.unused)
    more = {"transform_config": {"config_groups": {}}, "sparsity_config": {}, "kv_cache_scheme": None, "rotation": None}
    more |= {"version": "0.12.2", "quantization_status": "compressed", "global_compression_ratio": 1.5}
    own = {**kind.config["quantization_config"], **more}
    folder = write_model(tmp_path / "model", CONFIG | {"quantization_config": own}, quantised)
    assert load(folder).weights


_UP = "model.layers.0.mlp.up_proj"


def _with_code(floats: np.ndarray, code: int) -> np.ndarray:
    """Return 8-bit floats with a byte for the last one."""
    codes = floats.view(np.uint8).copy()
    codes[-1, -1] = code
    return codes.view(floats.dtype)


@pytest.mark.parametrize(
    ("name", "part", "change", "message"),
    [
        ("gptq", "qzeros", None, f"has no tensor '{_UP}.qzeros', which belongs to a quantised matrix"),
        ("gptq", "scales", lambda a: a[:, :-8], "expected float16 or bfloat16 or float32 [2, 256]"),
        ("gptq", "scales", lambda a: a * np.float16(np.nan), "has scales or zero-points that are not finite"),
        ("gptq", "g_idx", lambda a: a * 0, "must have 32 columns for each group"),
        ("gptq", "g_idx", lambda a: a - 1, "must have 32 columns for each group"),
        ("gptq", "g_idx", lambda a: a[:5], "expected int32 or uint32 [64]"),
        ("gptq", "qweight", lambda a: a[0], "expected int32 or uint32 [any, any]"),
        ("gptq", "qweight", lambda a: a[:0], "'scales' of"),
        ("awq", "qweight", lambda a: a.astype(np.float32), "is float32[64, 32], expected int32 or uint32"),
        ("mlx_4", "scales", lambda a: a.astype(np.float32), "must have the dtype of"),
        ("mlx_4", "biases", None, f"has no tensor '{_UP}.biases'"),
        ("mlx_4", "weight", lambda a: a.reshape(-1), "has scales, and is not a matrix"),
        ("packed_4", "weight_shape", lambda a: a * -1, "which is not a matrix [-256, -64] of 4 or 8 bits"),
        ("packed_4", "weight_shape", lambda a: a[:1], "expected int64 or int32 [2]"),
        ("packed_4", "weight_scale", None, f"has no tensor '{_UP}.weight_scale'"),
        ("packed_4", "weight_scale", lambda a: a[:3], "needs [256, 1] or [1]"),
        ("packed_4_i8_zeros", "weight_g_idx", lambda a: a + 2, "must have 32 columns for each group"),
        ("gptq", "g_idx", lambda a: a * 0 - 1, "must have 32 columns for each group"),
        *(
            (f"{kind}_order", "weight_g_idx", change, f"'{_UP}.weight_g_idx' of")
            for kind in ("packed_4", "int", "float")
            for change in (lambda a: a.astype(np.float32), lambda a: a[:5], lambda a: a[None], lambda a: a * 0)
        ),
        (
            "float_tensor",
            "weight_scale",
            lambda a: a * np.float32(3e38),
            "product with their scale is too large for f32",
        ),
        (
            "fp8_blocks",
            "weight_scale_inv",
            lambda a: a * 0 - np.float32(3e38),
            "'model.layers.0.mlp.up_proj.weight' of",
        ),
        (
            "fp8_tensor_e5m2",
            "weight_scale",
            lambda a: a * 0 + np.float32(3e38),
            "product with their scale is too large",
        ),
        ("packed_8_zeros", "weight_scale", lambda a: a * 0 + np.float32(3e38), "product with their scale is too large"),
        ("mlx_f32", "biases", lambda a: a * 0 + np.float32(np.inf), "that are not finite"),
        *(
            (
                kind,
                "weight",
                lambda a, code=code: _with_code(a, code),
                f"has elements of {numpy_name} that are not finite",
            )
            for kind, numpy_name, codes in (
                ("float_tensor", "float8_e4m3fn", (0x7F, 0xFF)),
                ("fp8_tensor_e5m2", "float8_e5m2", (0x7C, 0x7D, 0x7F, 0xFC, 0xFF)),
            )
            for code in codes
        ),
        ("float_tensor", "weight_scale", None, f"is float8_e4m3fn, and '{_UP}.weight_scale' is missing"),
        ("float_tensor", "weight", lambda a: a.astype(np.float32), "expected float8_e4m3fn or float8_e5m2 or int8"),
    ],
)
def test_damaged_parts(tmp_path: Path, name: str, part: str, change: Any, message: str) -> None:
    def changed(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        key = f"{_UP}.{part}"
        own = {} if change is None else {key: np.ascontiguousarray(change(tensors[key]))}
        return {n: a for n, a in tensors.items() if n != key} | own

    problem = _refusal(tmp_path, name, tensors=changed)
    assert message.replace("'scales'", f"'{_UP}.scales'") in problem


def test_a_folder_without_its_field_is_refused(tmp_path: Path) -> None:
    """Packed integers are not read as numbers."""
    for name in FOLDERS:
        quantised, _ = folder_pair(tmp_path / name, name)
        (quantised / "config.json").write_text(json.dumps(CONFIG))
        with pytest.raises(rlx.Error, match="does not fit its configuration"):
            load(quantised)


def test_rows_that_do_not_divide(tmp_path: Path) -> None:
    """Blocks have at least 32 elements."""

    def narrow(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return tensors | {f"{_UP}.weight": tensors[f"{_UP}.weight"][:, :40].copy()}

    assert "rows of 40 elements with scales for 40 each; both must be multiples of 32" in _refusal(
        tmp_path, "float_tensor", tensors=narrow
    )


def test_mlx_with_bits_of_a_matrix(tmp_path: Path) -> None:
    """The configuration has other numbers for a matrix, and false for one that is not quantised."""
    plain, quantised = model_tensors(mlx(4, 32), ("lm_head",))
    parts, plain[f"{_UP}.weight"] = mlx(6, 64)(np.random.default_rng(0), 256, 64)
    quantised |= {f"{_UP}.{part}": array for part, array in parts.items()}
    other = "model.layers.1.mlp.up_proj"
    quantised = {n: a for n, a in quantised.items() if not n.startswith(other)}
    quantised[f"{other}.weight"] = plain[f"{other}.weight"]
    own = {"group_size": 32, "bits": 4, _UP: {"group_size": 64, "bits": 6}, other: False}
    folder = write_model(tmp_path / "quantised", CONFIG | {"quantization": own}, quantised)
    expected = _logits(write_model(tmp_path / "plain", CONFIG, plain))
    assert np.abs(_logits(folder) - expected).max() <= 1e-5 * np.abs(expected).max()
    assert load(folder).weights["layers.0.mlp.up_proj.weight"].encoding.name == "affine6_block64"


def _moe_tensors(path: Path, quantize: Any, stacked: bool) -> tuple[Path, Path]:
    """Write a mixture of experts with quantised experts, single ones or stacked as MLX does it, and one in f32."""
    content = reference("qwen3_moe")
    config = content["config"] | {"moe_intermediate_size": 64, "num_local_experts": 4, "num_experts": 4}
    plain, quantised = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for name, shape in content["tensors"].items():
        if ".experts." not in name:
            sizes = (4, *shape[1:]) if name.endswith("mlp.gate.weight") else tuple(shape)
            plain[name] = quantised[name] = weight(name, sizes)
    rng = np.random.default_rng(3)
    for layer in range(2):
        for part, shape in {"gate_proj": (64, 32), "up_proj": (64, 32), "down_proj": (32, 64)}.items():
            stem, experts = f"model.layers.{layer}.mlp", []
            for expert in range(4):
                parts, values = quantize(rng, *shape)
                plain[f"{stem}.experts.{expert}.{part}.weight"] = np.ascontiguousarray(values)
                experts.append(parts)
            for suffix in experts[0]:
                if stacked:
                    quantised[f"{stem}.switch_mlp.{part}.{suffix}"] = np.stack([e[suffix] for e in experts])
                for expert in range(0 if stacked else 4):
                    array = np.ascontiguousarray(experts[expert][suffix])
                    quantised[f"{stem}.experts.{expert}.{part}.{suffix}"] = array
    method = {"quantization": {"group_size": 32, "bits": 4}} if stacked else {}
    if not stacked:
        has_words = "qweight" in experts[0]
        own: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 32} if has_words else {}
        method = {"quantization_config": own or {"quant_method": "fp8", "weight_block_size": [48, 32]}}
    return (
        write_model(path / "quantised", config | method, quantised),
        write_model(path / "plain", config, plain),
    )


@pytest.mark.parametrize("name", ["gptq", "mlx", "fp8"])
def test_experts(tmp_path: Path, name: str) -> None:
    quantize = {"gptq": gptq(), "mlx": mlx(), "fp8": bytes_with_scales("float8_e4m3fn", "48x32", "weight_scale_inv")}
    quantised, plain = _moe_tensors(tmp_path, quantize[name], name == "mlx")
    expected, got = _logits(plain), _logits(quantised)
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()
    experts = load(quantised).weights["layers.1.mlp.experts.down_proj.weight"]
    assert isinstance(experts.encoding, PackedBlocks) and experts.shape == (4, 32, 64)


def test_fused_matrices(tmp_path: Path) -> None:
    content = reference("phi3")
    plain, quantised = weights(content["tensors"]), dict[str, np.ndarray]()
    rng = np.random.default_rng(0)
    for name, array in list(plain.items()):
        stem = name.removesuffix(".weight")
        if not stem.endswith(("qkv_proj", "gate_up_proj")):
            quantised[name] = array
            continue
        parts, values = gptq()(rng, *array.shape)
        plain[name] = np.ascontiguousarray(values)
        quantised |= {f"{stem}.{part}": np.ascontiguousarray(own) for part, own in parts.items()}
    own = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}
    folder = write_model(tmp_path / "quantised", content["config"] | {"quantization_config": own}, quantised)
    expected = _logits(write_model(tmp_path / "plain", content["config"], plain))
    assert np.abs(_logits(folder) - expected).max() <= 1e-5 * np.abs(expected).max()


def test_rows_of_a_matrix_whose_columns_are_in_another_order(tmp_path: Path) -> None:
    tensor = open_folder(folder_pair(tmp_path, "gptq_order")[0])["model.layers.0.mlp.up_proj.weight"]
    expected = tensor.numpy()
    first, second = split_rows(tensor, [100, 156])
    np.testing.assert_array_equal(first.numpy(), expected[:100])
    np.testing.assert_array_equal(second.numpy(), expected[100:])
    graph: Any = rlx.Graph("table")
    graph.set_outputs(ParameterPrefix(graph, ModelTensors({"t": tensor}, "the test", ())).param("t", (256, 64)))
    np.testing.assert_array_equal(rlx.evaluate(graph, {})[0], expected)


def test_conversion_to_gguf(tmp_path: Path) -> None:
    """The numbers of the file are those of the quantised weights."""
    from rlx.llm import quantize
    from tests.llm.test_quantize_folder import TOKENIZER

    for name in ("gptq_order", "mlx_3", "fp8_blocks"):
        quantised, plain = folder_pair(tmp_path / name, name)
        (quantised / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        quantize(quantised, tmp_path / "out.gguf", "F32", remark=lambda line: None)
        written = rlx.weights.open(tmp_path / "out.gguf")["blk.1.ffn_down.weight"]
        expected = rlx.weights.open(plain)["model.layers.1.mlp.down_proj.weight"].numpy()
        np.testing.assert_allclose(written.numpy(), expected, rtol=2e-6, atol=2e-6)


def test_programs_convert_once_and_do_not_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two entry points share the weights, which are read in place."""
    converted: list[str] = []
    original = matrix.MatrixConversion.packed_rows

    def counted(self: Any) -> np.ndarray:
        converted.append(self.matrix.name)
        return original(self)

    monkeypatch.setattr(matrix.MatrixConversion, "packed_rows", counted)
    model = load(folder_pair(tmp_path, "mlx_4")[0])
    graphs = {f"run{n}": model.graph(batch=1, sequence=n) for n in (1, 2)}
    program = rlx.Session("cpu").compile(graphs)
    assert sorted(converted) == sorted({*converted}) and len(converted) == 16
    name = "layers.1.mlp.up_proj.weight"
    stored = model.weights[name].stored()
    assert len(converted) == 16 and stored.ctypes.data % 64 == 0
    assert isinstance(stored.base, (np.ndarray, memoryview)) and keep(stored) is stored
    program["run1"].run({"input_ids": _IDS[:, :1]})


def test_mlx_with_the_field_of_the_model_before(tmp_path: Path) -> None:
    quantised, plain = folder_pair(tmp_path, "mlx_4")
    config = json.loads((quantised / "config.json").read_text())
    (quantised / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}))
    expected, got = _logits(plain), _logits(quantised)
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("size", [[128.9, 32.9], [128, 32.5], [128, True], [128, 32, 1]])
def test_sizes_of_rectangles_are_integers(tmp_path: Path, size: list[Any]) -> None:
    problem = _refusal(tmp_path, "fp8_small_blocks", {"weight_block_size": size})
    assert "'quantization_config.weight_block_size' must be a list of 2" in problem


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("gptq", "weight", "qweight"),
        ("awq", "weight", "qweight"),
        ("packed_4", "weight", "weight_packed"),
        ("float_tensor", "weight_scale_inv", "weight_scale"),
        ("packed_8", "weight_scale_inv", "weight_scale"),
        ("fp8_blocks", "weight_scale_inv", "weight_scale"),
    ],
)
@pytest.mark.parametrize("is_first", [False, True])
def test_two_tensors_for_one_part(tmp_path: Path, name: str, first: str, second: str, is_first: bool) -> None:
    """One of them would be ignored, which depends on the order of the file."""

    def both(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        present = next(tensors[f"{_UP}.{part}"] for part in (second, first) if f"{_UP}.{part}" in tensors)
        more = {f"{_UP}.{part}": present for part in (first, second) if f"{_UP}.{part}" not in tensors}
        if first == "weight":
            more = {f"{_UP}.weight": np.ones((256, 64), np.float32)}
        return more | tensors if is_first else tensors | more

    problem = _refusal(tmp_path, name, tensors=both)
    assert f"tensor '{_UP}.{first}' of" in problem and f" and '{_UP}.{second}' of" in problem


def test_stacked_experts_with_two_names(tmp_path: Path) -> None:
    parts, _ = mlx()(np.random.default_rng(0), 64, 64)
    tensors = {f"a.mlp.switch_mlp.up_proj.{part}": array[None].copy() for part, array in parts.items()}
    tensors["a.mlp.experts.up_proj.weight"] = np.ones((1, 64, 64), np.float32)
    folder = write_model(tmp_path / "model", CONFIG | {"quantization": {"group_size": 32, "bits": 4}}, tensors)
    with pytest.raises(rlx.Error, match=r"'a.mlp.switch_mlp.up_proj.weight' of .* and 'a.mlp.experts.up_proj"):
        open_folder(folder)
