"""What other libraries have in their modules: what `rlx`, `rlx.nn` and `rlx.train` have in its place."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.ir.suggestions import suggestion

MODULES = {
    **dict.fromkeys(
        ("MaxPool1d", "MaxPool2d", "MaxPool3d"), "a function in Sequential: lambda x: rlx.ops.max_pool(x, kernel)"
    ),
    **dict.fromkeys(
        ("AvgPool1d", "AvgPool2d", "AvgPool3d"), "a function in Sequential: lambda x: rlx.ops.avg_pool(x, kernel)"
    ),
    **dict.fromkeys(
        ("AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d"), "lambda x: rlx.ops.adaptive_avg_pool(x, size)"
    ),
    **dict.fromkeys(("ModuleList", "ModuleDict"), "a Python list or dict as the attribute of a module"),
    "CrossEntropyLoss": "rlx.ops.cross_entropy(logits, target)",
    "MSELoss": "rlx.ops.mse_loss(prediction, target)",
    "L1Loss": "rlx.ops.l1_loss(prediction, target)",
    "NLLLoss": "rlx.ops.nll_loss(log_probs, target)",
    "BCEWithLogitsLoss": "rlx.ops.binary_cross_entropy_with_logits(logits, targets)",
    "MultiheadAttention": "rlx.nn.MultiHeadAttention(embed_dim, num_heads)",
    "functional": "rlx.ops: rlx.ops.relu(x) …",
    **dict.fromkeys(
        ("TransformerEncoderLayer", "TransformerEncoder", "Transformer", "TransformerDecoderLayer"),
        "the blocks of graphs at HIR, such as g.transformer_encoder_block, or rlx.nn.MultiHeadAttention in a module",
    ),
    **dict.fromkeys(("numpy", "lax"), "rlx.ops: rlx.ops.sum(x) …"),
    **dict.fromkeys(("save", "export", "dump"), "str(graph) is its text; compiled.save(path) writes a program"),
    **dict.fromkeys(("random", "manual_seed"), "a seed for each call: rlx.ops.rng_normal(shape, seed)"),
    **dict.fromkeys(
        ("value_and_gradient", "gradient", "backward"), "rlx.jit(f).value_and_grad(), or rlx.grad_with_loss"
    ),
    **dict.fromkeys(("device", "devices"), "rlx.Device.CPU …, rlx.Session('cpu')"),
    "function": "rlx.jit(function)",
    "jacobian": "rlx.jacrev(graph, wrt), or rlx.jacfwd",
    **dict.fromkeys(
        ("tree_map", "tree", "tree_util"), "jax.tree, or a comprehension: rlx.jit takes dicts, lists, tuples"
    ),
    **dict.fromkeys(
        ("float8_e4m3fn", "float8_e5m2", "float8_e4m3"), "rlx.f16 or rlx.bf16: there are no floats of 8 bits"
    ),
    "inference_mode": "nothing: derivatives are taken where rlx.grad or rlx.jit(f).grad() is called",
    "load_state_dict": "module.params_from(path_or_mapping), or compiled.set_params(…)",
    "RNN": "rlx.nn.GRU, rlx.nn.LSTM, or rlx.ops.scan in a module",
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), "rlx.nn.LSTM, rlx.nn.GRU of a sequence of one"),
    "PixelShuffle": "lambda x: rlx.ops.pixel_shuffle(x, upscale_factor)",
    "Dense": "rlx.nn.Linear(in_features, out_features)",
    "LeakyReLU": "lambda x: rlx.ops.leaky_relu(x, negative_slope)",
    "PReLU": "lambda x: rlx.ops.where(x > 0, x, slope * x) with a parameter",
    "Unflatten": "lambda x: rlx.ops.reshape(x, shape)",
    **dict.fromkeys(
        (
            "Softplus",
            "Hardswish",
            "ELU",
            "SELU",
            "CELU",
            "Mish",
            "ReLU6",
            "LogSoftmax",
            "Softsign",
            "Hardtanh",
            "LogSigmoid",
        ),
        "the function in Sequential: lambda x: rlx.ops.softplus(x), hard_swish, elu …",
    ),
    "make_jaxpr": "print(rlx.jit(f).graph_for(…))",
    "config": "options of the call: rlx.Session(threads=…), compile(precision=…)",
    "Bilinear": "rlx.ops.einsum in a module",
    **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"), "lambda x: rlx.ops.instance_norm(x)"),
    **dict.fromkeys(("Dropout1d", "Dropout2d", "Dropout3d"), "rlx.nn.Dropout(rate)"),
    "ParameterList": "rlx.nn.Parameter as attributes of a module",
    "utils": "rlx.train: TrainStep(clip_norm=1.0) …",
    **dict.fromkeys(("xavier_uniform_", "xavier_uniform"), "rlx.nn.init.glorot_uniform()"),
    **dict.fromkeys(("xavier_normal_", "xavier_normal"), "rlx.nn.init.glorot_normal()"),
    **dict.fromkeys(("kaiming_uniform_", "he_uniform"), "rlx.nn.init.kaiming_uniform()"),
    **dict.fromkeys(("kaiming_normal_", "he_normal"), "rlx.nn.init.kaiming_normal()"),
    **{f"{name}_": f"rlx.nn.init.{name}" for name in ("zeros", "ones", "normal", "uniform", "orthogonal", "constant")},
    **dict.fromkeys(("trunc_normal_", "trunc_normal"), "rlx.nn.init.truncated_normal()"),
    **dict.fromkeys(
        ("RMSprop", "RMSProp", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam"),
        "rlx.train.Adam, AdamW, Lion, Adafactor or SGD; another one is a subclass of rlx.train.Optimizer",
    ),
    **dict.fromkeys(
        (
            "cosine_decay_schedule",
            "CosineAnnealingLR",
            "warmup_cosine",
            "warmup_cosine_decay_schedule",
            "cosine_schedule",
        ),
        "rlx.train.cosine(peak_value, decay_steps, warmup_steps=…)",
    ),
    **dict.fromkeys(("linear_schedule", "LinearLR", "linear_warmup"), "rlx.train.linear(init_value, end_value, steps)"),
    **dict.fromkeys(
        ("exponential_decay", "ExponentialLR"), "rlx.train.exponential(init_value, transition_steps, decay_rate)"
    ),
    **dict.fromkeys(
        ("clip_by_global_norm", "clip_grad_norm_", "clip_grad_norm"), "rlx.train.TrainStep(…, clip_norm=1.0)"
    ),
    **dict.fromkeys(("adam", "adamw", "sgd", "lion"), "the class of that name: rlx.train.Adam(1e-3) …"),
    **dict.fromkeys(("Trainer", "train", "Fit"), "rlx.train.fit(step, batches, …)"),
    "pmap": "g.to_jax(), which JAX splits over devices",
    "Upsample": "lambda x: rlx.ops.resize(x, size=…)",
    "compile": "rlx.Session().compile(graph), or rlx.jit(function)",
    **dict.fromkeys(("tensor", "array", "asarray"), "NumPy's arrays are the values: rlx.jit(function)(array)"),
    **dict.fromkeys(
        ("zeros", "ones", "randn", "rand", "arange"), "rlx.ops has the functions of tensors, NumPy makes arrays"
    ),
    "no_grad": "nothing: derivatives are taken where rlx.grad or rlx.jit(f).grad() is called",
    "value_and_grad": "rlx.jit(f).value_and_grad(), or rlx.grad_with_loss(graph, wrt=[…])",
    "optim": "rlx.train: rlx.train.Adam(1e-3) …",
    **{
        name: f"rlx.{short}"
        for name, short in {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}.items()
    },
    **{f"int{n}": f"rlx.i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"rlx.u{n}" for n in (8, 32)},
}


def module_problem(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a module has not."""
    instead = f"; instead: {MODULES[name]}" if name in MODULES else suggestion(name, known)
    return AttributeError(f"module '{module}' has no attribute '{name}'{instead}")
