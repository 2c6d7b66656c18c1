"""Names of other libraries: attributes of tensors and graphs, for conversions, devices, derivatives and declarations."""

from __future__ import annotations

from rlx.ops.vocabulary import dtypes, table

CONVERSIONS = dtypes() | table("""
to type : x.astype(dtype)
float cfloat : x.astype(rlx.f32)
double : x.astype(rlx.f64)
half : x.astype(rlx.f16)
bfloat16 : x.astype(rlx.bf16)
int : x.astype(rlx.i32)
long : x.astype(rlx.i64)
short : x.astype(rlx.i16)
char : x.astype(rlx.i8)
byte : x.astype(rlx.u8)
bool : x.astype(rlx.bool_)
cdouble : x.astype(rlx.c128)
chalf : x.astype(rlx.c64)
convert_element_type : g.cast(x, dtype)
type_as : g.cast(x, other.dtype)
bitcast_convert_type getfield byteswap : g.bitcast(x, dtype)
bool_ : rlx.bool_
inf : np.inf
nan : np.nan
pi : np.pi
e : np.e
newaxis : None, as in x[:, None]
finfo iinfo : np.finfo(x.dtype.numpy), np.iinfo(x.dtype.numpy)
distributions : g.sample(logits, seed=0) of classes, g.rng_normal(shape, seed=0, mean=…, std=…), g.rng_uniform(shape, seed=0)
itemsize element_size : x.dtype.itemsize
nbytes on_device_size_in_bytes : x.shape.size_bytes
is_floating_point : x.dtype.is_float
is_complex iscomplexobj : x.dtype.is_complex
isrealobj : not x.dtype.is_complex
is_signed : x.dtype.is_signed
issubdtype isdtype typename : x.dtype.is_float, x.dtype.is_complex, x.dtype == rlx.i32 …
result_type promote_types common_type : rlx.promote(a.dtype, b.dtype)
can_cast min_scalar_type mintypecode : rlx.promote(a.dtype, b.dtype)
is_tensor : isinstance(x, rlx.Tensor)
astype : g.cast(x, dtype)
grad_dtype dtype : x.dtype
get_default_dtype set_default_dtype set_default_tensor_type : a dtype where it is declared: g.input(name, shape, dtype=rlx.f32)
""")

VALUES = table("""
contiguous : x itself: tensors have no strides
clone copy deepcopy : x itself: tensors are values and are never changed
data : x itself: tensors are values and are never changed
copy_ set_ : the new tensor in place of x: tensors are values and are never changed
detach : g.stop_gradient(x)
numpy tolist item : compile the graph and run it, or rlx.evaluate(g, inputs): a tensor has no value while it is traced
flat tobytes dump dumps tofile ctypes : rlx.evaluate(g, inputs) gives arrays: a tensor has no value while it is traced
device_buffer addressable_data addressable_shards : rlx.evaluate(g, inputs) gives arrays: a tensor has no value
block_until_ready copy_to_host_async is_ready is_deleted : compiled.run(inputs) returns when its arrays are there
array_repr array_str array2string set_printoptions get_printoptions printoptions : print(x) of what rlx.evaluate gives
print debug_print : print(x) of a tensor that has a value: with rlx.eager(): …
cpu cuda is_cuda xpu hpu mps mtia ipu : nothing: a graph belongs to no device, rlx.Session(device) compiles it for one
pin_memory is_pinned share_memory_ is_shared devices device_buffers get_device : nothing: rlx.Session(device) compiles it
is_cpu is_mps is_xpu is_xla is_meta platform committed : nothing: rlx.Session(device) compiles a graph for a device
is_contiguous stride strides data_ptr storage : nothing: tensors have no strides
base layout flags setflags storage_offset untyped_storage storage_type dim_order : nothing: tensors have no strides
may_share_memory shares_memory is_set_to record_stream : nothing: tensors are values and share none
is_sparse is_sparse_csr is_nested is_coalesced to_sparse to_sparse_coo to_sparse_csr to_dense coalesce values sparse_mask \
sparse_dim dense_dim sparse_coo_tensor sparse_csr_tensor to_padded_tensor : x itself: all tensors are dense
is_quantized qscheme : x.dtype: g.quantize gives rlx.i8 …
is_leaf grad_fn retain_grad retains_grad output_nr : rlx.grad(g, wrt=[…])
register_hook register_post_accumulate_grad_hook : g.custom_fn(function, x, vjp=…)
backward requires_grad requires_grad_ grad detach_ : rlx.grad(g, wrt=[…]), and g.stop_gradient(x) where it ends
numel nelement : x.size
resize_as : g.reshape(x, other.shape)
is_conj : False: g.conjugate(x) is computed
ndimension dim : x.ndim
is_same_size : a.shape == b.shape
is_inference is_grad_enabled : nothing: derivatives are taken where rlx.grad is called
H mH adjoint : g.conjugate(x).mT
apply_ map_ map2_ : x = g.exp(x) …: the functions of a whole tensor
weak_type aval : x.shape and x.dtype
sharding with_sharding_constraint reshard is_fully_replicated : g.shard(x, sharding)
all_gather all_reduce psum pmean all_to_all reduce_scatter ppermute : nothing: a graph computes on one device, or is \
split by those who run it
axis_index axis_size psum_scatter pshuffle pswapaxes pbroadcast pcast psend precv ragged_all_to_all : nothing: a graph \
computes on one device, or is split by those who run it
""")

DECLARATIONS = table("""
parameter variable get_parameter Variable Parameter register_parameter add_param : g.param(name, shape)
placeholder Placeholder Input add_input : g.input(name, shape)
register_buffer buffer add_state : g.state(name, shape, init=0)
output ret return_ set_output add_output : g.set_outputs({name: x})
assign : g.update(state, value)
to_mlir as_text mlir to_text lower : str(g), or g.text() with all lines
parameters named_parameters num_parameters : g.params
state_dict load_state_dict : g.weights, and compiled.set_params(mapping)
eval train : nothing: a graph has no modes; rlx.evaluate(g, inputs) computes it
summary describe : print(rlx.inspect_graph(g))
scope name_scope named_scope variable_scope : with g.named('layer0'): …
compile run forward predict : rlx.Session().compile(g).run({name: array}), or rlx.evaluate(g, inputs)
save load savez savez_compressed savetxt : str(g) is its text, rlx.parse reads it; compiled.save(path) writes a program
nn : rlx.nn for layers, or g.relu(x), g.softmax(x) …
functional : g.relu(x), g.softmax(x) …
linalg : g.solve(a, b), g.inv(a), g.det(a), g.cholesky(a), g.lu(a), g.qr(a), g.svd(a), g.eigh(a), g.pinv(a), g.norm(x) …
lax : the functions of jax.lax by their own names: g.cumsum(x, axis), g.scan(…) …
ops np jnp : the functions by their own names: g.exp(x) …
special scipy : the functions by their own names: g.erf(x), g.logsumexp(x), g.digamma(x) …
while_loop : g.while_(cond, body, *init): cond and body take the parts, as lambda i, x: (i + 1, x * 0.5)
fori_loop : g.scan(lambda c, i: (body(i, c), i), init, g.arange(start, stop))[0]
switch case : g.if_(i <= 0, f0, lambda *a: g.if_(i <= 1, f1, f2, *a), *args)
associative_scan : g.cumsum(x, axis), g.cumprod(x, axis), g.cummax(x, axis), or g.scan(body, init, xs)
custom_root : g.while_(cond, body, *init), whose derivative g.custom_fn takes
wait fork : nothing: a graph says what depends on what, and is run in parallel
sym_int sym_float sym_max sym_min sym_sum sym_not : x.shape.dims: sizes are numbers or symbols with + - * //
map apply_over_axes : the function of a whole x, rlx.vmap(graph, …), or g.scan(body, init, xs)
vmap vectorize apply_along_axis frompyfunc : rlx.vmap(graph, …) of a graph; ops take leading axes as they are
jit : rlx.jit(function)
remat : with g.checkpoint(): …
no_grad inference_mode set_grad_enabled enable_grad : g.stop_gradient(x): rlx.grad says where derivatives are taken
autocast set_float32_matmul_precision : rlx.Session().compile(g, precision=…)
set_num_threads get_num_threads set_default_device get_default_device : rlx.Session(device, threads=4)
use_deterministic_algorithms set_deterministic_debug_mode : nothing: the same program gives the same numbers
""")
