"""What to call in place of arguments that other libraries have and a method here does not."""

from __future__ import annotations

from rlx.ir.calls import ADVICE

# Keywords of other libraries that have no counterpart, and what does what they ask for.
ADVICE.update(
    {
        ("gelu", "approximate"): "g.gelu_approx(x) is the approximation with tanh, g.gelu(x) the exact one",
        ("embedding", "padding_idx"): "its row takes no gradient in "
        "g.embedding(table.at[row].set(g.stop_gradient(table[row])), indices)",
        ("embedding", "max_norm"): "scale the rows of the table before",
        **dict.fromkeys((("attention", "causal"), ("attention", "is_causal")), "mask_kind='causal'"),
        ("LSTM", "batch_first"): "leave it out: x is [B, S, input_size]",
        ("GRU", "batch_first"): "leave it out: x is [B, S, input_size]",
        ("MultiHeadAttention", "batch_first"): "leave it out: x is [B, S, embed_dim]",
        ("Linear", "device"): "leave it out: rlx.Session(device) says where a graph runs",
        ("Conv2d", "padding_mode"): "rlx.ops.pad(x, padding, mode='reflect') before it",
        ("Adam", "weight_decay"): "rlx.train.AdamW(learning_rate, weight_decay=…)",
        ("Adam", "betas"): "rlx.train.Adam(learning_rate, b1=0.9, b2=0.999)",
        ("AdamW", "betas"): "rlx.train.AdamW(learning_rate, b1=0.9, b2=0.999)",
        (
            "vmap",
            "",
        ): "rlx.vmap(graph, batched={'x': 0}, size=8); of a Python function, rlx.jit(f).graph_for(…) is a graph",
        ("vmap", "in_axes"): "rlx.vmap(graph, batched={'x': 0}, size=8), by the names of arguments",
        ("param", "init"): "g.param(name, shape, value=array), or set_params of the compiled graph",
        ("set_outputs", ""): "g.set_outputs([a, b]), or g.set_outputs({'a': a, 'b': b})",
        (
            "cond",
            "",
        ): "g.if_(pred, then, els, *args) chooses one of two functions; g.cond(a) is the condition of a matrix",
        ("compile", "target"): "rlx.Session(target).compile(graph)",
        (
            "jit",
            "donate_argnums",
        ): "leave it out: arguments are never changed; g.input(name, shape, donate=True) of a graph",
        ("scaled_dot_product_attention", "dropout_p"): "g.dropout of what it gives",
        ("rfft", "n"): "g.rfft(g.pad(x, …)), or of a slice",
        ("fft", "n"): "g.fft(g.pad(x, …)), or of a slice",
        ("leaky_relu", "alpha"): "g.leaky_relu(x, negative_slope=0.1)",
        ("index_add", ""): "g.index_add(x, indices, values, axis)",
        ("LayerNorm", "elementwise_affine"): "rlx.nn.LayerNorm(4, affine=False)",
        ("Embedding", "padding_idx"): "its row is trained like others; set it to 0 in params",
        ("MultiHeadAttention", "dropout"): "rlx.nn.Dropout(rate) behind it",
        ("MultiHeadAttention", "qkv_features"): "rlx.nn.MultiHeadAttention(embed_dim, num_heads)",
        ("stft", ""): "g.stft(x, frame_length=n_fft, hop=hop_length, window=None)",
        **dict.fromkeys((("matmul", "transpose_b"), ("matmul", "transpose_a")), "g.matmul(a, b.mT)"),
        ("topk", "sorted"): "leave it out: g.topk(x, k) sorts",
        ("cholesky", "upper"): "g.cholesky(a).mT",
        ("LayerNorm", "bias"): "rlx.nn.LayerNorm(4, affine=False), or a bias of zeros",
        **{
            (n, "params"): f"rlx.train.TrainStep(graph, rlx.train.{n}(1e-3)) has them" for n in ("SGD", "Adam", "AdamW")
        },
        ("SGD", "dampening"): "there is none: rlx.train.SGD(0.1, momentum=0.9)",
        ("exponential", ""): "rlx.train.exponential(init_value, transition_steps, decay_rate)",
        ("layer_norm", ""): "g.layer_norm(x, scale, bias, axis=-1), without weights g.layer_norm(x)",
        ("repeat", ""): "g.tile(x, (2, 1)) is PyTorch's x.repeat(2, 1)",
        **dict.fromkeys((("round", ""), ("round", "decimals")), "g.round(x * 100) / 100 keeps two decimals"),
        (
            "scatter_add",
            "",
        ): "g.index_add and g.put_along_axis(x, indices, values, axis, reduction='add') add along an axis",
        ("gather", "dim"): "PyTorch's is g.take_along_axis(x, index, axis)",
        ("split", "dim"): "parts of a size: g.chunk(x, chunks, axis), or at borders: g.split(x, [2, 4], axis)",
        **dict.fromkeys(
            (("max", "dim"), ("min", "dim")), "g.max(x, axis=…) for values, g.argmax(x, axis=…) for positions"
        ),
        ("sort", "dim"): "g.sort(x, axis=…) for values, g.argsort(x, axis=…) for positions",
        ("median", "dim"): "g.median(x, axis=…), which gives the values alone, and between two their mean",
        ("logsumexp", "b"): "g.logsumexp(x + g.log(b), axis)",
        **dict.fromkeys((("add", "alpha"), ("sub", "alpha")), "x + alpha * y"),
        ("pad", "constant_values"): "g.pad(x, padding, value=3.0)",
        ("diff", "prepend"): "g.diff(g.concat([first, x], axis), axis=axis)",
        **dict.fromkeys(
            [(n, k) for n in ("sort", "argsort") for k in ("stable", "kind")], "leave it out: sorts are stable"
        ),
        ("logit", "eps"): "g.logit(g.clip(x, eps, 1 - eps))",
        ("checkpoint", ""): "with g.checkpoint(): … holds the ops that are computed again",
        ("softplus", "threshold"): "it needs none: g.softplus(x, beta=1.0) does not overflow",
        **dict.fromkeys((("", "inplace"), ("", "out")), "tensors are values: use what it returns"),
        ("", "dtype"): "x.astype(dtype) converts the operand before, or the result after",
        ("", "where"): "g.where(mask, a, b) chooses before, or after: what is left out may be 0 in a sum",
    }
)
