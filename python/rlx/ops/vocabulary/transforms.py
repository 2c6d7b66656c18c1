"""Names of other libraries that `import rlx` lacks or names differently: transforms, devices, dtypes, values."""

from __future__ import annotations

from rlx.ops.vocabulary import dtypes, table

TRANSFORMS = table("""
value_and_gradient gradient backward : rlx.jit(f).value_and_grad(), or rlx.grad_with_loss
value_and_grad fwd_and_bwd : rlx.jit(f).value_and_grad(), or rlx.grad_with_loss(graph, wrt=[…])
function compile tensor_function : rlx.jit(function), or rlx.Session().compile(graph)
jacobian : rlx.jacrev(graph, wrt), or rlx.jacfwd
linear_transpose : rlx.vjp(graph, wrt)
custom_jvp custom_vjp custom_gradient Function autograd : g.custom_fn(function, *args, vjp=…, jvp=…)
closure_convert pure_callback : g.custom_fn(function, *args), or a class of rlx.CustomOp
remat : rlx.checkpoint(graph), or with g.checkpoint(): …
make_jaxpr : print(rlx.jit(f).graph_for(…))
eval_shape typeof : rlx.jit(f).graph_for(…).outputs, with their shapes
ShapeDtypeStruct : rlx.Shape((3, 4), rlx.f32)
named_scope named_call : with g.named('layer0'): …
pmap shard_map smap make_mesh NamedSharding P set_mesh : g.to_jax(), which JAX splits over devices; rlx.Mesh and g.shard
disable_jit no_tracing : with rlx.eager(): …
no_execution : rlx.jit(f).graph_for(…)
ds : rlx.ops.dynamic_slice_in_dim(x, start, size, axis)
jit_script script trace export_function : rlx.jit(function), or rlx.from_torch(module, args)
softmax_custom_jvp : rlx.ops.softmax(x, axis=-1)
stop_gradient : rlx.ops.stop_gradient(x)
tree_map tree tree_util tree_flatten tree_leaves : jax.tree, or a comprehension: rlx.jit takes dicts, lists, tuples
map flatten leaves unflatten structure reduce map_with_path leaves_with_path flatten_with_path : jax.tree, or a \
comprehension: rlx.jit takes dicts, lists, tuples
all broadcast transpose reduce_associative static : rlx.ops.all(x) … of tensors, jax.tree of trees
no_grad inference_mode enable_grad set_grad_enabled : nothing: derivatives are taken where rlx.grad or rlx.jit(f).grad() \
is called
autograd_grad functional_call : rlx.grad(graph, wrt=[…])
""")

DEVICES = table("""
device devices local_devices default_device default_backend Devices : rlx.Device.CPU …, rlx.Session('cpu')
device_count local_device_count process_count process_index : rlx devices on the command line, rlx.Session('cpu')
device_put device_get block_until_ready live_arrays copy_to_host_async : compiled.run(inputs) takes and returns arrays
cuda mps xpu is_available : rlx.Session('cuda').compile(graph)
Array ndarray Ref : np.ndarray; on a device rlx.DeviceArray
config enable_x64 default_matmul_precision debug_nans enable_checks set_default_dtype : options of the call: \
rlx.Session(threads=…), compile(precision=…)
set_num_threads set_default_device get_default_device : rlx.Session(device, threads=4)
clear_caches log_compiles : rlx.jit(f).clear_cache()
profiler profile : compiled.profile(inputs)
print_environment_info show_config : rlx doctor on the command line
""")

VALUES = dtypes() | table("""
numpy lax jnp functional special scipy linalg fft : rlx.ops: rlx.ops.sum(x) …
save : module.save(path, params), step.save(path) of a TrainStep, compiled.save(path) of a program
export dump : str(graph) is the text of rlx.jit(f).graph_for(x); compiled.save(path) writes a program
load_state_dict state_dict : module.params_from(path_or_mapping), or compiled.set_params(…)
random manual_seed seed PRNGKey key split : a seed for each call: rlx.ops.rng_normal(shape, seed)
cfloat : rlx.c64
cdouble : rlx.c128
float : rlx.f32
half : rlx.f16
double : rlx.f64
short : rlx.i16
int : rlx.i32
long : rlx.i64
tensor array asarray from_numpy as_tensor : NumPy's arrays are the values: rlx.jit(function)(array)
zeros ones randn rand arange full eye linspace : rlx.ops has the functions of tensors, NumPy makes arrays
optim : rlx.train: rlx.train.Adam(1e-3) …
Module Linear Sequential Parameter init : rlx.nn.Linear(in_features, out_features) …
Adam AdamW SGD TrainStep fit utils : rlx.train.TrainStep(graph, rlx.train.Adam(1e-3)) …
onnx : rlx.from_onnx(path)
""")
