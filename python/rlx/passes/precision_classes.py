"""What a lower precision does to each op: one table, which `rlx-precision` reads.

The classes are those of mixed-precision training: what gains from short numbers, what loses digits by them, and what
takes the precision of its surroundings.
"""

from __future__ import annotations

from enum import Enum

from rlx.ir import registry


class OpClass(Enum):
    """What an op does to numbers."""

    COMPUTE = "compute"  # products: the work is there, and they accumulate in f32 whatever they take
    REDUCTION = "reduction"  # adds up many numbers, or normalises by such a sum
    ELEMENTWISE = "elementwise"  # arithmetic of a few numbers
    DATA_MOVEMENT = "data movement"  # gives numbers that it was given
    BOUNDARY = "boundary"  # gives numbers of its own, or runs regions: always in its own dtype


# By family, which is the part of the dialect (and the file) that an op stands in.
FAMILIES: dict[str, OpClass] = {
    "leaf": OpClass.BOUNDARY,
    "elementwise": OpClass.ELEMENTWISE,
    "contraction": OpClass.COMPUTE,
    "convolution": OpClass.COMPUTE,
    "attention": OpClass.COMPUTE,
    "fused": OpClass.COMPUTE,
    "linear": OpClass.COMPUTE,
    "sequence": OpClass.COMPUTE,
    "transformer": OpClass.COMPUTE,
    "recurrent": OpClass.COMPUTE,
    "mtp": OpClass.COMPUTE,
    "norm": OpClass.REDUCTION,
    "reduce": OpClass.REDUCTION,
    "cumulative": OpClass.REDUCTION,
    "scatter": OpClass.REDUCTION,
    "shape": OpClass.DATA_MOVEMENT,
    "index": OpClass.DATA_MOVEMENT,
    "padding": OpClass.DATA_MOVEMENT,
    "order": OpClass.DATA_MOVEMENT,
    "quant": OpClass.BOUNDARY,
    "fake_quant": OpClass.BOUNDARY,
    "quant_compute": OpClass.BOUNDARY,
    "complex": OpClass.BOUNDARY,
    "fft": OpClass.BOUNDARY,
    "checkpoint": OpClass.BOUNDARY,
    "control": OpClass.BOUNDARY,
    "function": OpClass.BOUNDARY,
    "custom": OpClass.BOUNDARY,
    "convolution_transpose": OpClass.COMPUTE,
    "pool": OpClass.REDUCTION,
    "image": OpClass.ELEMENTWISE,
    "rope": OpClass.ELEMENTWISE,
    "random": OpClass.BOUNDARY,
    "loss": OpClass.REDUCTION,
    "linear_algebra": OpClass.COMPUTE,
    "backward": OpClass.ELEMENTWISE,
    "backward_attention": OpClass.COMPUTE,
    "backward_image": OpClass.COMPUTE,
    "backward_norm": OpClass.REDUCTION,
    "backward_quant": OpClass.BOUNDARY,
}

# Ops that are not like the rest of their family.
OPS: dict[str, OpClass] = {
    "cast": OpClass.DATA_MOVEMENT,
    "fused_swiglu": OpClass.ELEMENTWISE,
    "fused_residual_layer_norm": OpClass.REDUCTION,
    "fused_residual_rms_norm": OpClass.REDUCTION,
    "residual_rms_norm": OpClass.REDUCTION,
    "argmax": OpClass.DATA_MOVEMENT,
    "argmin": OpClass.DATA_MOVEMENT,
    "topk": OpClass.DATA_MOVEMENT,
    "cummax": OpClass.DATA_MOVEMENT,
    "gather_nd": OpClass.DATA_MOVEMENT,
    "stop_gradient": OpClass.DATA_MOVEMENT,
    "rope_backward": OpClass.ELEMENTWISE,
    "unet_residual_block": OpClass.COMPUTE,
    **dict.fromkeys(
        ("dense_solve", "batched_dense_solve"), OpClass.BOUNDARY
    ),  # an ill-conditioned system needs its digits
    "max_pool2d_backward": OpClass.REDUCTION,
    **dict.fromkeys(("cumsum_backward", "gather_backward", "softmax_cross_entropy_backward"), OpClass.REDUCTION),
    **dict.fromkeys(("selective_scan", "gated_delta_net", "gated_delta_net_carry"), OpClass.REDUCTION),
}

# Operands whose dtype need not be that of the others: they are taken as they are.
_MASKED = ("attention", "attention_backward", "fused_attention_block", "fused_transformer_layer")
_MASKED_BLOCKS = ("transformer_encoder_block", "llama_decoder_block")
OWN_DTYPE = frozenset((op, "mask") for op in (*_MASKED, *_MASKED_BLOCKS))

# Kinds of the enumerated elementwise ops that leave the range of f16 on harmless operands; PyTorch's autocast keeps the
# same ones in f32.
RANGE_SENSITIVE = frozenset({"exp", "log", "rsqrt", "tan", "pow"})

# Ops and kinds whose results are moderate, however large or small the operands.
MODERATING = frozenset(
    {
        *("sin", "cos", "tanh", "sigmoid", "atan"),
        *("softmax", "layer_norm", "layer_norm2d", "rms_norm", "group_norm"),
        *("residual_rms_norm", "fused_residual_layer_norm", "fused_residual_rms_norm"),
    }
)


def declared_class(name: str) -> OpClass | None:
    """The class of an op, None for one that the table does not know.

    Args:
        name: The op's name without prefix.
    """
    return OPS.get(name) or FAMILIES.get(registry.SPECS[name].family)


def class_of(name: str) -> OpClass:
    """The class of an op. One that the table does not know keeps its own dtype, which is never wrong."""
    return declared_class(name) or OpClass.BOUNDARY
