"""Advice for options of layers, optimisers, schedules and transforms in other libraries."""

from __future__ import annotations

from rlx.ir.op.calls import ADVICE
from rlx.ops.vocabulary import table

# Options of layers, initialisers, optimisers and schedules.
_OF_CLASSES = table("""
use_bias use_scale use_weight channelwise_affine elementwise_affine scale_init bias_init : affine=False leaves out both; \
module.init(seed=0) gives first values, a dict that can be changed
kernel_init out_kernel_init out_bias_init weight_initializer : weight_init=rlx.nn.init.he_normal()
use_query_bias use_key_bias use_value_bias use_output_bias add_bias_kv qkv_bias : bias=False leaves out all
use_fast_variance promote_dtype qkv_promote_dtype out_promote_dtype ln_promote_dtype qkv_dtype param_dtype : leave it out: \
f16 and bf16 are computed in f32 where it matters
rngs rng_collection keep_rngs : module.init(seed=0) and module(x, seed=1, training=True)
deterministic inference use_running_stats : module(x, training=False)
bias_metadata scale_metadata kernel_metadata out_kernel_metadata out_bias_metadata query_ln_scale_metadata \
key_ln_scale_metadata embedding_metadata : leave it out: a parameter is its shape, dtype and first value
dot_general dot_general_cls qkv_dot_general out_dot_general qkv_dot_general_cls out_dot_general_cls conv_general_dilated \
attention_fn preferred_type : a subclass of rlx.nn.Module with a forward of its own
transpose_kernel num_spatial_dims batch_axis in_axis out_axis column_axis broadcast_dims broadcast_dropout reduction_axes \
feature_axes : leave it out: layouts are PyTorch's
end_dim : lambda x: rlx.ops.flatten(x, start_axis, end_axis)
dropout dropout_rate dropout_p : rlx.nn.Dropout(rate) behind it
kdim vdim key_size value_size qk_size vo_size in_kv_features output_size add_zero_attn decode normalize_qk : embed_dim=… for \
all; rlx.ops.attention takes other sizes
proj_size nonlinearity : a rlx.nn.Linear behind it, or rlx.ops.scan for another cell
_freeze freeze_params : wrt=[…] of rlx.train.TrainStep names what is trained
params parameters optimizer model : rlx.train.TrainStep(graph, rlx.train.Adam(1e-3)) has the parameters
amsgrad foreach maximize fused capturable differentiable decoupled_weight_decay eps_root mu_dtype accumulator_dtype \
factored factor : leave it out, or a subclass of rlx.train.Optimizer with update(…)
weight_decay_rate mask weight_decay_mask : weight_decay=… of AdamW, weight_decay_mask=… of rlx.train.TrainStep
nesterov : rlx.train.SGD(1e-2, momentum=0.9, nesterov=True)
T_max total_iters num_steps num_training_steps total_steps max_steps : decay_steps=… of cosine, transition_steps=… of others
eta_min end_factor : end_value=…
start_factor : init_value=…
last_epoch verbose power exponent : leave it out: a schedule is a function of the step
gamma : decay_rate=…
tensor : rlx.nn.init gives functions of a key and a shape: rlx.nn.init.normal(0.02)(0, (3, 4))
a : low=…, or negative_slope=… of kaiming_normal
lower minval : low=…
upper maxval : high=…
ksize pool_size window_size : kernel=…
""")

# Options of functions that take a graph, or a Python function.
_OF_GRAPHS = table("""
fun func f fn function model : a graph; of a Python function, rlx.jit(f).grad(), rlx.jit(f).graph_for(…)
has_aux holomorphic allow_int reduce_axes sum_match strict create_graph : leave it out: the other outputs of a graph are kept
prevent_cse policy concrete static_argnums static_argnames use_reentrant : leave it out: memory_limit=…, with g.checkpoint(): …
axis_name spmd_axis_name axis_index_groups randomness chunk_size in_axes : rlx.vmap(graph, batched={'x': 0}, size=8)
primals cotangents v : rlx.evaluate(derived, {'x': array, 'tangent_x': array}): new inputs of the graph that it gives
feed_dict inputs args arguments feeds : rlx.evaluate(graph, {'x': array})
mode dynamic fullgraph disable options recompile_limit isolate_recompiles shapes_spec example_inputs : leave it out: sizes \
with names are symbolic, bind={'n': 8} gives one
backend device target : rlx.Session('cuda').compile(graph)
name dtype precision_level half : leave it out; precision='f16' of compile
""")

_OF_ONE = {
    **dict.fromkeys(
        [
            ("jit", k)
            for k in ("in_shardings", "out_shardings", "keep_unused", "inline", "compiler_options", "abstracted_axes")
        ],
        "leave it out: rlx.jit(f, static=('n',))",
    ),
    ("jit", "fun"): "rlx.jit(f)",
    ("jit", "donate_argnames"): "leave it out: arguments are never changed",
    ("from_onnx", "opset"): "leave it out: a model says which it has",
    **dict.fromkeys(
        [("from_torch", k) for k in ("example_inputs", "example_args", "mod", "inputs")], "rlx.from_torch(module, args)"
    ),
    **dict.fromkeys(
        [("MultiHeadAttention", k) for k in ("in_features", "query_size", "out_features")], "embed_dim=…, for all of it"
    ),
    ("Embedding", "features"): "embedding_dim=…",
    **dict.fromkeys((("uniform", "b"), ("truncated_normal", "b")), "high=…"),
    ("Optimizer", "defaults"): "learning_rate=…, and fields of the subclass",
    **dict.fromkeys(
        (("orthogonal", "scale"), ("uniform", "scale")), "rlx.nn.init.orthogonal(gain), uniform(low, high)"
    ),
    ("Sequential", "layers"): "rlx.nn.Sequential(first, second)",
}

ADVICE.update({("", keyword): said for keyword, said in _OF_CLASSES.items() if ("", keyword) not in ADVICE})
ADVICE.update({("graph", keyword): said for keyword, said in _OF_GRAPHS.items()})
ADVICE.update({key: said for key, said in _OF_ONE.items() if key not in ADVICE})
