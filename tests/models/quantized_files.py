"""Small folders whose weights are quantised as other tools do it, and the same models with weights in f32.

Integers and scales are random. They are packed here by loops that follow the published layouts, and decoded by the formula.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.models.references import write_model

WIDTH, INNER, VOCABULARY, LAYERS = 64, 256, 272, 2
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
MATRICES = {
    **{"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (32, WIDTH), "self_attn.v_proj": (32, WIDTH)},
    **{"self_attn.o_proj": (WIDTH, WIDTH), "mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH)},
    "mlp.down_proj": (WIDTH, INNER),
}
Tensors = dict[str, np.ndarray]
# Returns the parts of a matrix by their suffixes, and its values, f32.
Quantize = Callable[[np.random.Generator, int, int], tuple[Tensors, np.ndarray]]


def pack_words(steps: np.ndarray, bits: int) -> np.ndarray:
    """Return integers `[rows, n]` as words u32 `[rows, n·bits/32]`: a stream of bits, the lowest first."""
    result = np.zeros((len(steps), -(-steps.shape[1] * bits // 32)), np.uint32)
    for row, values in enumerate(steps):
        number = sum(int(value) << bits * i for i, value in enumerate(values))
        for word in range(result.shape[1]):
            result[row, word] = number >> 32 * word & 0xFFFFFFFF
    return result


def _scales(rng: np.random.Generator, shape: tuple[int, ...], bits: int, dtype: Any) -> np.ndarray:
    return (rng.uniform(0.5, 1.5, shape) / 2 ** (bits - 1) / 4).astype(dtype)


def _steps(rng: np.random.Generator, bits: int, *shape: int) -> np.ndarray:
    return rng.integers(0, 1 << bits, shape)


def gptq(
    bits: int = 4,
    group: int = 32,
    version: int = 1,
    symmetric: bool = False,
    order: bool = False,
    indices: bool = True,
    dtype: Any = np.float16,
) -> Quantize:
    """Matrices of GPTQ. `order`: the group of each column is arbitrary. `indices`: there is a tensor of groups."""

    def quantize(rng: np.random.Generator, out: int, columns: int) -> tuple[Tensors, np.ndarray]:
        size = columns if group == -1 else group
        groups = columns // size
        steps, scales = _steps(rng, bits, out, columns), _scales(rng, (groups, out), bits, dtype)
        # The older format cannot store 0, and stores the highest number as the one above it.
        zeros = rng.integers(1 if version == 1 else 0, (1 << bits) + (version == 1), (groups, out))
        if symmetric:
            zeros[:] = 1 << bits - 1
        group_of = np.arange(columns) // size
        if order:
            rng.shuffle(group_of)
        parts = {
            "qweight": pack_words(steps, bits).T.view(np.int32),
            "scales": scales,
            "qzeros": pack_words(zeros - (version == 1), bits).view(np.int32),  # the last word may have fewer rows
        }
        if indices:
            parts["g_idx"] = group_of.astype(np.int32)
        exact = scales.astype(np.float64)[group_of].T
        return parts, ((steps - zeros[group_of].T) * exact).astype(np.float32)

    return quantize


def awq(group: int = 32) -> Quantize:
    def words(values: np.ndarray) -> np.ndarray:
        """Pack the last axis: nibble `i` of a word has the element 0, 2, 4, 6, 1, 3, 5, 7."""
        result = np.zeros((values.shape[0], values.shape[1] // 8), np.uint32)
        for word in range(result.shape[1]):
            for i, element in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
                result[:, word] |= (values[:, 8 * word + element] << 4 * i).astype(np.uint32)
        return result.view(np.int32)

    def quantize(rng: np.random.Generator, out: int, columns: int) -> tuple[Tensors, np.ndarray]:
        size = columns if group == -1 else group
        steps, zeros = _steps(rng, 4, columns, out), _steps(rng, 4, columns // size, out)
        scales = _scales(rng, zeros.shape, 4, np.float16)
        values = (steps - np.repeat(zeros, size, 0)) * np.repeat(scales.astype(np.float64), size, 0)
        return {"qweight": words(steps), "qzeros": words(zeros), "scales": scales}, values.T.astype(np.float32)

    return quantize


def mlx(bits: int = 4, group: int = 32, dtype: Any = np.float16) -> Quantize:
    def quantize(rng: np.random.Generator, out: int, columns: int) -> tuple[Tensors, np.ndarray]:
        steps, scales = _steps(rng, bits, out, columns), _scales(rng, (out, columns // group), bits, dtype)
        biases = (-scales.astype(np.float64) * rng.uniform(0, 1 << bits, scales.shape)).astype(dtype)
        values = steps * np.repeat(scales.astype(np.float64), group, 1) + np.repeat(biases.astype(np.float64), group, 1)
        return {"weight": pack_words(steps, bits), "scales": scales, "biases": biases}, values.astype(np.float32)

    return quantize


def packed(
    bits: int = 4,
    group: int = 32,
    zeros: str = "",
    dtype: Any = ml_dtypes.bfloat16,
    order: bool = False,
    no_order: bool = False,
) -> Quantize:
    """Matrices of compressed-tensors in words. `zeros`: there are zero-points, `"packed"` or `"i8"`. `order`: as for `gptq`."""

    def quantize(rng: np.random.Generator, out: int, columns: int) -> tuple[Tensors, np.ndarray]:
        middle = 1 << bits - 1
        steps, scales = _steps(rng, bits, out, columns), _scales(rng, (out, columns // group), bits, dtype)
        own_zeros = _steps(rng, bits, *scales.shape) if zeros else np.full(scales.shape, middle)
        parts = {
            "weight_packed": pack_words(steps, bits).view(np.int32),
            "weight_scale": scales,
            "weight_shape": np.array([out, columns], np.int64),
        }
        if zeros == "packed":
            parts["weight_zero_point"] = pack_words(own_zeros.T, bits).T.view(np.int32)
        elif zeros:
            parts["weight_zero_point"] = (own_zeros - middle).astype(np.int8)
        group_of = np.arange(columns) // group
        if order:
            rng.shuffle(group_of)
            parts["weight_g_idx"] = group_of.astype(np.int32)
        elif no_order:
            parts["weight_g_idx"] = np.full(columns, -1, np.int32)
        values = (steps - own_zeros[:, group_of]) * scales.astype(np.float64)[:, group_of]
        return parts, values.astype(np.float32)

    return quantize


def bytes_with_scales(
    kind: str,
    shape: str,
    scale: str = "weight_scale",
    dtype: Any = np.float32,
    order: bool = False,
    zeros: bool = False,
) -> Quantize:
    """Matrices of 8-bit floats or i8 with scales for the `"tensor"`, `"channel"`s, or `"128x32"` rectangles.

    `order`: as for `gptq`. `zeros`: there are zero-points.
    """

    def quantize(rng: np.random.Generator, out: int, columns: int) -> tuple[Tensors, np.ndarray]:
        if kind == "int8":
            codes = rng.integers(-128, 128, (out, columns)).astype(np.int8)
        else:
            codes = rng.normal(0, 60, (out, columns)).astype(getattr(ml_dtypes, kind))
        height, width = {"tensor": (out, columns), "channel": (1, columns)}.get(shape, (0, 0))
        if not height:
            height, width = map(int, shape.split("x"))
        sizes = (-(-out // height), -(-columns // width))
        scales = (rng.uniform(0.5, 1.5, sizes) / 200).astype(dtype)
        parts: Tensors = {"weight": codes, scale: scales[0] if shape == "tensor" else scales}
        group_of, own_zeros = np.arange(columns) // width, np.zeros(sizes)
        if order:
            rng.shuffle(group_of)
            parts["weight_g_idx"] = group_of.astype(np.int32)
        if zeros:
            own_zeros = parts["weight_zero_point"] = rng.integers(-128, 128, sizes).astype(np.int8)
        rows = np.arange(out)[:, None] // height
        values = codes.astype(np.float64) - own_zeros.astype(np.float64)[rows, group_of]
        return parts, (values * scales.astype(np.float64)[rows, group_of]).astype(np.float32)

    return quantize


@dataclass(frozen=True)
class QuantizedFolder:
    """A kind of folder: the field of `config.json`, the function of matrices, and the format that they become."""

    config: Mapping[str, Any]
    quantize: Quantize
    scheme: str
    also: tuple[str, ...] = ()
    unused: Mapping[str, Any] = field(default_factory=dict)


def _of_gptq(scheme: str, bits: int = 4, group: int = 32, **options: Any) -> QuantizedFolder:
    own: dict[str, Any] = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": False}
    own |= {"desc_act": options.get("order", False), "sym": options.get("symmetric", False)}
    if options.get("version") == 2:
        own["checkpoint_format"] = "gptq_v2"
    return QuantizedFolder({"quantization_config": own}, gptq(bits, group, **options), scheme)


def _of_mlx(scheme: str, bits: int, group: int, dtype: Any = np.float16) -> QuantizedFolder:
    own = {"group_size": group, "bits": bits}
    also = ("model.embed_tokens", "lm_head")
    return QuantizedFolder({"quantization": own, "quantization_config": own}, mlx(bits, group, dtype), scheme, also)


def _of_compressed(form: str, scheme: str, quantize: Quantize, **weights: Any) -> QuantizedFolder:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": {"dynamic": True}}}
    own = {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}
    unused = {"input_scale": np.ones(1, np.float32)}
    return QuantizedFolder({"quantization_config": own}, quantize, scheme, unused=unused)


def _of_fp8(scheme: str, quantize: Quantize, **options: Any) -> QuantizedFolder:
    return QuantizedFolder({"quantization_config": {"quant_method": "fp8", **options}}, quantize, scheme)


_RECTANGLES = "weight_scale_inv"
FOLDERS: Mapping[str, QuantizedFolder] = {
    "gptq": _of_gptq("int4_block32_asym"),
    "gptq_v2": _of_gptq("int4_block64_asym", group=64, version=2),
    "gptq_symmetric": _of_gptq("int4_block32", symmetric=True, indices=False),
    "gptq_symmetric_v2_without_name": QuantizedFolder(
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": True}},
        gptq(4, 64, version=2, symmetric=True),
        "int4_block64",
    ),
    "gptq_rows": _of_gptq("int4_block64_asym", group=-1),
    "gptq_bf16": _of_gptq("int4_block32_asym_bf16", dtype=ml_dtypes.bfloat16),
    "gptq_8": _of_gptq("int8_block32_asym", bits=8),
    "gptq_8_symmetric": _of_gptq("int8_block32", bits=8, symmetric=True),
    "gptq_order": _of_gptq("int4_block32_asym", order=True),
    "gptq_order_8": _of_gptq("int8_block32", bits=8, symmetric=True, order=True),
    "awq": QuantizedFolder(
        {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}},
        awq(),
        "int4_block32_asym",
    ),
    "awq_own_names": QuantizedFolder(
        {"quantization_config": {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": True}},
        awq(64),
        "int4_block64_asym",
    ),
    **{f"mlx_{bits}": _of_mlx(f"affine{bits}_block32", bits, 32) for bits in (2, 3, 4, 5, 6, 8)},
    "mlx_bf16": _of_mlx("affine4_block64_bf16", 4, 64, ml_dtypes.bfloat16),
    "mlx_f32": _of_mlx("affine6_block64_f32", 6, 64, np.float32),
    "packed_4": _of_compressed("pack-quantized", "int4_block32_bf16", packed(), num_bits=4, group_size=32),
    "packed_4_zeros": _of_compressed("pack-quantized", "int4_block64_asym", packed(4, 64, "packed", np.float16)),
    "packed_4_i8_zeros": _of_compressed("pack-quantized", "int4_block32_asym_bf16", packed(4, 32, "i8", no_order=True)),
    "packed_4_order": _of_compressed("pack-quantized", "int4_block32_bf16", packed(order=True)),
    "packed_8_zeros_order": _of_compressed(
        "pack-quantized", "int8_block32_asym_bf16", packed(8, zeros="packed", order=True)
    ),
    "int_order": _of_compressed("int-quantized", "int8_block32_f32", bytes_with_scales("int8", "1x32", order=True)),
    "int_zeros_order": _of_compressed(
        "int-quantized", "int8_block32_asym_f32", bytes_with_scales("int8", "1x32", order=True, zeros=True)
    ),
    "float_order": _of_compressed(
        "float-quantized", "fp8_e4m3_block32", bytes_with_scales("float8_e4m3fn", "1x32", order=True)
    ),
    "packed_8": _of_compressed("pack-quantized", "int8_block32_bf16", packed(8, 32)),
    "packed_8_zeros": _of_compressed("pack-quantized", "int8_block32_asym_f32", packed(8, 32, "packed", np.float32)),
    "int_channel": _of_compressed(
        "int-quantized", "int8_block64_bf16", bytes_with_scales("int8", "channel", dtype=ml_dtypes.bfloat16)
    ),
    "float_tensor": _of_compressed(
        "naive-quantized", "fp8_e4m3_block64", bytes_with_scales("float8_e4m3fn", "tensor"), strategy="tensor"
    ),
    "float_channel": _of_compressed(
        "float-quantized",
        "fp8_e4m3_block64",
        bytes_with_scales("float8_e4m3fn", "channel", dtype=ml_dtypes.bfloat16),
        strategy="channel",
    ),
    "float_block": _of_compressed(
        "float-quantized",
        "fp8_e4m3_block32",
        bytes_with_scales("float8_e4m3fn", "24x32"),
        strategy="block",
        block_structure=[24, 32],
    ),
    "fp8_blocks": _of_fp8(
        "fp8_e4m3_block64",
        bytes_with_scales("float8_e4m3fn", "48x128", _RECTANGLES),
        weight_block_size=[48, 128],
        activation_scheme="dynamic",
    ),
    "fp8_small_blocks": _of_fp8(
        "fp8_e4m3_block32",
        bytes_with_scales("float8_e4m3fn", "128x32", _RECTANGLES, ml_dtypes.bfloat16),
        weight_block_size=[128, 32],
    ),
    "fp8_tensor_e5m2": _of_fp8("fp8_e5m2_block64", bytes_with_scales("float8_e5m2", "tensor")),
}


def folder_pair(path: Path, name: str, **config: Any) -> tuple[Path, Path]:
    """Write a folder with quantised weights, and one with the same weights in f32. Return their paths."""
    own = FOLDERS[name]
    plain, quantised = model_tensors(own.quantize, own.also, own.unused)
    return (
        write_model(path / "quantised", CONFIG | config | dict(own.config), quantised, 2),
        write_model(path / "plain", CONFIG | config, plain),
    )


def model_tensors(
    quantize: Quantize, also: tuple[str, ...] = (), unused: Mapping[str, Any] | None = None
) -> tuple[Tensors, Tensors]:
    """Return the tensors of a model in f32, and the same with quantised matrices."""
    shapes = {f"model.layers.{i}.{part}": shape for i in range(LAYERS) for part, shape in MATRICES.items()}
    tables = dict.fromkeys(("model.embed_tokens", "lm_head"), (VOCABULARY, WIDTH))
    plain, quantised = Tensors(), Tensors()
    for stem, shape in (shapes | tables).items():
        rng = np.random.default_rng(zlib.crc32(stem.encode()))
        if stem in tables and stem not in also:
            plain[f"{stem}.weight"] = quantised[f"{stem}.weight"] = rng.normal(0, 0.3, shape).astype(np.float32)
            continue
        parts, values = quantize(rng, *shape)
        plain[f"{stem}.weight"] = np.ascontiguousarray(values)
        quantised |= {f"{stem}.{part}": np.ascontiguousarray(array) for part, array in parts.items()}
        quantised |= {f"{stem}.{part}": array for part, array in (unused or {}).items()}
    norms = ["model.norm"]
    norms += [f"model.layers.{i}.{n}" for i in range(LAYERS) for n in ("input_layernorm", "post_attention_layernorm")]
    for stem in norms:
        values = np.random.default_rng(zlib.crc32(stem.encode())).normal(1, 0.1, WIDTH).astype(np.float32)
        plain[f"{stem}.weight"] = quantised[f"{stem}.weight"] = values
    return plain, quantised
