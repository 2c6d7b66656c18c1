"""Advice for keyword arguments of other libraries that RLX methods do not have."""

from __future__ import annotations

from rlx.ir.op.calls import ADVICE, NOTES
from rlx.ops.vocabulary import table

# Keywords that have no counterpart in any method, and their replacement.
OF_ALL = table("""
out inplace copy overwrite_input overwrite_a overwrite_b donate : leave it out: tensors are values, use what it returns
dtype preferred_element_type acc promote_integers out_dtype index_dtype accumulator_dtype output_dtype new_dtype : \
x.astype(dtype) converts the operand before, or the result after
where mask : g.where(mask, a, b) chooses before, or after: what is left out may be 0 in a sum
initial : g.maximum(g.max(x), initial), g.minimum, or g.sum(x) + initial
order layout memory_format like subok : leave it out: tensors have no order in memory, and one class
casting : x.astype(dtype) converts where it is wanted
device pin_memory backend non_blocking : leave it out: rlx.Session(device) says where a graph runs
requires_grad : leave it out: rlx.grad(g, wrt=[…]) says what is differentiated
sharding out_sharding : g.shard(x, sharding) of what it gives
generator key rng random_state : seed=0, of the functions that take one
size_average reduce : reduction='mean', 'sum' or 'none'
precision : rlx.Session().compile(g, precision=…)
axis_name axis_index_groups spmd_axis_name : leave it out: a graph computes on one device
mode : leave it out: indices out of range are clamped; g.remainder(i, n) wraps them, g.where((i >= 0) & (i < n), values, 0) \
leaves others out
unique_indices indices_are_sorted assume_unique sparse_grad is_sorted stable is_stable kind sorter sparse : leave it out: it \
changes no result
fill_value : g.where(mask, x, fill_value) of what it gives
interpolation method : leave it out: between two elements it is linear
rounding_mode : g.floor_divide(a, b), or g.trunc(a / b)
alpha : x + alpha * y
beta : beta * x
hermitian UPLO symmetrize_input uplo : leave it out: g.eigh(a) reads the lower triangle
upper : x.mT of what it gives, or of the matrix
compute_uv eigenvectors : g.svdvals(a), g.eigvalsh(a)
some : full_matrices=False
driver check_finite accuracy allow_negative_indices cudnn_enabled cudnn_enable : leave it out
implementation algorithm stages num_keys unroll inner : leave it out
returned return_sign return_mask retstep return_index : a call of its own: g.sum(weights), g.sign(x), (stop - start) / num
prepend append : g.concat([first, x, last], axis) before
keepdims keepdim keep_dims : g.expand_dims(x, axis) of what it gives
momentum track_running_stats : rlx.nn.BatchNorm2d updates running statistics; here there are none
running_mean running_var use_running_average : g.batch_norm(x, mean, variance)
name names _stacklevel stacklevel rename : leave it out: with g.named('layer'): … gives names
period : x % period before
enable_gqa : leave it out: keys and values may have fewer heads
scale_grad_by_freq padding_idx max_norm norm_type : g.embedding(table, indices) of a table that is changed before
transpose adjoint trans left unitriangular : a.mT of the matrix before
pivot : g.lu(a) pivots

out_int32 : x.astype(rlx.i64) of what it gives
nan : g.nan_to_num(x, nan=…)
equal_nan : g.where(g.isnan(x), 0, x) before
p : ord=…
axis dim axes : g.moveaxis(x, axis, -1) before it
weights weight : weights * x before it
s n : g.pad(x, …), or of a slice, before it
ndim rank : x.rank
shape : g.reshape(x, shape) of what it gives
padding_mode : g.pad(x, padding, mode='reflect') before it
window_dilation base_dilation rhs_dilation lhs_dilation kernel_dilation : dilation=…
feature_group_count batch_group_count : groups=…
dimension_numbers data_format : leave it out: images are [N, C, H, W], kernels [O, C, H, W]; g.transpose moves axes
bias : + b behind it
threshold : g.where(x > threshold, a, b)
approximate : g.gelu_approx(x) is the approximation with tanh
""")

# Keywords that have no counterpart in a particular method, and their replacement.
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
        ("Conv2d", "padding_mode"): "leave it out for zeros; rlx.ops.pad(x, padding, mode='reflect') before it",
        (
            "BatchNorm",
            "track_running_stats",
        ): "leave it out: module(x, training=True) takes the statistics of the batch",
        ("Adam", "weight_decay"): "rlx.train.AdamW(learning_rate, weight_decay=…)",
        (
            "vmap",
            "",
        ): "rlx.vmap(graph, batched={'x': 0}, size=8); of a Python function, rlx.jit(f).graph_for(…) is a graph",
        ("vmap", "in_axes"): "rlx.vmap(rlx.jit(f).graph_for(x), batched={'x': 0}, size=8), by the names of arguments",
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
        ("leaky_relu", "alpha"): "g.leaky_relu(x, negative_slope=0.1)",
        ("index_add", "alpha"): "g.index_add(x, indices, alpha * values, axis=0)",
        **dict.fromkeys(
            [(n, "order") for n in ("reshape", "ravel", "flatten")],
            "leave it out; order='F' is g.transpose(g.reshape(g.transpose(x), shape[::-1]))",
        ),
        **dict.fromkeys(
            [("softmax", k) for k in ("where", "mask")],
            "g.where(mask, g.softmax(g.where(mask, x, -np.inf), axis), 0)",
        ),
        **dict.fromkeys(
            (("grad", "argnums"), ("grad", "argnames")),
            "rlx.jit(f).grad(wrt=['a', 'b'])(a, b) of a Python function, by the names of its arguments",
        ),
        **dict.fromkeys(
            [(n, k) for n in ("jacrev", "jacfwd", "hessian") for k in ("argnums", "argnames")],
            "rlx.jacrev(rlx.jit(f).graph_for(a, b), wrt=['a']) of a Python function, by the names of its arguments",
        ),
        **dict.fromkeys(
            (("max", "where"), ("min", "where")), "g.max(g.where(mask, x, -np.inf), axis), and np.inf for g.min"
        ),
        **dict.fromkeys((("sum", "where"), ("prod", "where")), "g.sum(g.where(mask, x, 0), axis), and 1 for g.prod"),
        ("mean", "where"): "g.sum(g.where(mask, x, 0), axis) / g.sum(mask, axis)",
        ("index_add", ""): "g.index_add(x, indices, values, axis)",
        ("LayerNorm", "elementwise_affine"): "rlx.nn.LayerNorm(4, affine=False)",
        ("Embedding", "padding_idx"): "its row is trained like others; set it to 0 in params",
        ("MultiHeadAttention", "dropout"): "rlx.nn.Dropout(rate) behind it",
        ("MultiHeadAttention", "qkv_features"): "rlx.nn.MultiHeadAttention(embed_dim, num_heads)",
        **dict.fromkeys(
            (("forward", "need_weights"), ("forward", "average_attn_weights")),
            "leave it out: the result is the tensor alone, without the weights of attention",
        ),
        ("forward", "is_causal"): "rlx.nn.MultiHeadAttention(embed_dim, num_heads, causal=True)",
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
        (
            "split",
            "dim",
        ): "at borders, the sums of the sizes: g.split(x, np.cumsum(sizes)[:-1], axis=…), or in equal parts g.chunk(x, chunks, \
axis=…)",
        ("logsumexp", "b"): "g.logsumexp(x + g.log(b), axis)",
        **dict.fromkeys((("add", "alpha"), ("sub", "alpha")), "x + alpha * y"),
        ("pad", "constant_values"): "g.pad(x, padding, value=3.0)",
        ("diff", "prepend"): "g.diff(g.concat([first, x], axis), axis=axis)",
        **dict.fromkeys(
            [(n, k) for n in ("sort", "argsort") for k in ("stable", "kind")], "leave it out: sorts are stable"
        ),
        **dict.fromkeys((("logit", "eps"), ("logit", "")), "g.logit(g.clip(x, eps, 1 - eps))"),
        ("group_norm", ""): "g.group_norm(x, scale, bias, num_groups=3), without weights g.group_norm(x, num_groups=3)",
        ("isin", ""): "g.isin(x, test, invert=True)",
        **dict.fromkeys(
            (("cumsum", ""), ("cumprod", "")),
            "g.cumsum(x, axis=0), of all elements in a row g.cumsum(g.ravel(x), axis=0)",
        ),
        ("cumsum", "reverse"): "g.flip(g.cumsum(g.flip(x, axis), axis), axis)",
        ("cumprod", "reverse"): "g.flip(g.cumprod(g.flip(x, axis), axis), axis)",
        **dict.fromkeys([(n, k) for n in ("max", "min") for k in ("other", "y")], "g.maximum(a, b), g.minimum(a, b)"),
        **dict.fromkeys((("std", "mean"), ("var", "mean")), "leave it out: it is computed"),
        ("round", "rounding_method"): "leave it out: halves go to the even integer",
        ("instance_norm", "use_input_stats"): "leave it out: statistics are those of each image",
        ("solve", "B"): "g.solve(a, b)",
        ("unique", "sorted"): "leave it out: g.unique(x, size=n) is sorted",
        ("cummin", "reverse"): "g.flip(g.cummin(g.flip(x, axis), axis), axis)",
        ("cummax", "reverse"): "g.flip(g.cummax(g.flip(x, axis), axis), axis)",
        (
            "dot_general",
            "dimension_numbers",
        ): "g.dot_general(a, b, lhs_contracting=[2], rhs_contracting=[2], lhs_batch=[0], rhs_batch=[0])",
        (
            "dot_general",
            "",
        ): "g.dot_general(a, b, lhs_contracting=[2], rhs_contracting=[2], lhs_batch=[0], rhs_batch=[0])",
        ("matrix_rank", "tol"): "g.sum(g.svdvals(a) > tol, axis=-1), or rtol=… of the greatest",
        ("matrix_rank", ""): "g.matrix_rank(a, rtol=…), a share of the greatest singular value",
        ("zeros", ""): "g.zeros((2, 3)): the shape is one argument",
        ("ones", ""): "g.ones((2, 3)): the shape is one argument",
        ("average", ""): "g.average(x, axis, weights, keepdims=True)",
        ("average", "returned"): "g.sum(weights, axis) is the sum of the weights",
        **dict.fromkeys(
            (("jvp", ""), ("jvp", "primals")),
            "rlx.jvp(graph, tangents=['x']); of a Python function, rlx.jit(f).graph_for(…) is a graph",
        ),
        **dict.fromkeys(
            [(name, "has_aux") for name in ("grad", "value_and_grad", "vjp")],
            "f returns the loss first: rlx.jit(f).value_and_grad() gives what stands behind it as well",
        ),
        ("hvp", ""): "rlx.hvp(graph, wrt=['x']); of a Python function, rlx.jit(f).graph_for(…) is a graph",
        ("nth_order_grad", ""): "rlx.nth_order_grad(graph, wrt=['x'], order=2)",
        **dict.fromkeys(
            (("reshape", "shape"), ("permute", "dims")), "x.reshape((2, 3)), x.permute((1, 0)): without its name"
        ),
        ("expand", "size"): "x.expand((2, 3))",
        **dict.fromkeys((("transpose", "dim0"), ("transpose", "dim1")), "x.swapaxes(0, 1)"),
        ("unfold", "dimension"): "x[:, i] with i = g.arange(n)[:, None] * step + g.arange(size); g.unfold takes images",
        ("checkpoint", ""): "with g.checkpoint(): … holds the ops that are computed again",
        ("softplus", "threshold"): "it needs none: g.softplus(x, beta=1.0) does not overflow",
        **{("", keyword): said for keyword, said in OF_ALL.items()},
    }
)

# Keywords of methods whose result differs from that of the other library.
NOTES.update(
    {
        **dict.fromkeys((("max", "dim"), ("min", "dim")), "the values alone: g.argmax and g.argmin give the positions"),
        ("sort", "dim"): "the values alone: g.argsort gives the positions",
        ("median", "dim"): "the values alone, and between two their mean",
        **dict.fromkeys((("cummax", "dim"), ("cummin", "dim")), "the values alone"),
        ("lstsq", "rcond"): "the solution alone",
    }
)
