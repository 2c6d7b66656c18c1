"""Names of other libraries: attributes of modules, optimisers, steps and compiled functions."""

from __future__ import annotations

from rlx.ops.vocabulary import table

MODULES = table("""
state_dict init_weights reset_parameters variables : module.init(seed=0), a dict of arrays by the names of PyTorch
load_state_dict set_extra_state get_extra_state load_weights : module.params_from(path_or_mapping), or module.load(path)
named_parameters named_buffers buffers get_parameter get_buffer params weights trainable_variables : module.parameters(), \
a dict by name
modules named_modules children named_children get_submodule layers_list : module.members()
num_params count_parameters : module.num_parameters
train eval : module(x, training=True), and False is the default
to cpu cuda xpu ipu mtia to_empty share_memory : nothing: rlx.Session(device) compiles a graph for a device
half float double bfloat16 type : the dtype of a layer: rlx.nn.Linear(4, 5, dtype=rlx.f16), or compile(g, precision='f16')
zero_grad requires_grad_ backward : rlx.train.TrainStep(graph, rlx.train.Adam(1e-3), wrt=['weight'])
register_parameter : module.weight = rlx.nn.Parameter((3, 4))
register_buffer : module.count = rlx.nn.Buffer((3, 4))
add_module register_module set_submodule append extend insert add : an attribute, or a list as one: module.layers = [a, b]
register_forward_hook register_forward_pre_hook register_full_backward_hook register_backward_hook : a subclass of \
rlx.nn.Module with a forward of its own
register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook \
register_state_dict_post_hook register_state_dict_pre_hook : a subclass of rlx.nn.Module with a forward of its own
compile jit : rlx.jit(lambda params, x: module.apply(params, x))
bind call init_with_output lazy_init : module.apply(params, x), with params = module.init(seed=0)
tabulate summary extra_repr : print(module)
kernel scale embedding gamma : module.weight, as in PyTorch
beta : module.bias, as in PyTorch
pop items keys values : module.layers, the attributes
""")

FUNCTIONS = table("""
lower trace eval_shape as_text inspect_lowered : f.graph_for(x), the graph, whose text is str(graph)
compile warmup : f.compiled_for(x), the program
backward gradient vjp : f.grad()(x), or f.value_and_grad()(x)
value_and_gradient : f.value_and_grad()(x)
vmap map : rlx.vmap(f.graph_for(x), batched={'x': 0}, size=8)
jacobian jacrev hessian jvp : rlx.jacrev(f.graph_for(x), wrt=['x']) and its like
forward run predict apply call : f(x)
clear_caches cache_clear : f.clear_cache()
cost_analysis memory_analysis : f.compiled_for(x).cost()
""")

OPTIMISERS = table("""
step minimize apply_gradients apply_updates : step({'x': batch}) of step = rlx.train.TrainStep(graph, optimizer)
zero_grad : nothing: each step has its own gradients
init : rlx.train.TrainStep(graph, optimizer), which makes the states
param_groups add_param_group : rlx.train.TrainStep(graph, optimizer, groups=…)
state_dict load_state_dict state : step.save(path) and step.load(path) of rlx.train.TrainStep
lr : optimizer.learning_rate
get_last_lr : optimizer.learning_rate, a number or a function of the step
register_step_post_hook register_step_pre_hook register_state_dict_post_hook register_state_dict_pre_hook \
register_load_state_dict_post_hook register_load_state_dict_pre_hook profile_hook_step : \
rlx.train.fit(step, batches, callbacks=[…])
""")

STEPS = table("""
step train train_step train_on_batch apply_gradients : step({'x': batch})
backward zero_grad optimizer_step : step({'x': batch}), which does both
state_dict : step.params, or step.snapshot() with the states of the optimiser
load_state_dict : step.set_params(mapping), or step.restore(snapshot)
parameters named_parameters weights variables : step.params
fit train_loop : rlx.train.fit(step, batches, epochs=3)
eval validate test : step.evaluate(batches)
""")

SESSIONS = table("""
run predict forward execute call : rlx.Session().compile(graph).run({'x': array})
evaluate eval : rlx.evaluate(graph, {'x': array}), or compile(graph).run({'x': array})
jit trace : rlx.jit(function), or compile(graph)
load load_model : rlx.load(path), or compile(rlx.from_onnx(path))
save export : compile(graph).save(path)
get_inputs get_outputs : graph.inputs and graph.outputs
device devices : rlx.Session('cpu') …, and rlx.Device
grad : compile(rlx.grad(graph, wrt=['w']))
""")

PARAMETERS = table("""
numel nelement size : math.prod(parameter.shape.static), and module.num_parameters of all
requires_grad requires_grad_ is_leaf : isinstance(parameter, rlx.nn.Buffer) if it is not trained, wrt=[…] of \
rlx.train.TrainStep
data detach numpy cpu clone item tolist mean sum std norm : module.init(seed=0)[name], an array: a parameter is a declaration
grad backward register_hook retain_grad : rlx.jit(lambda params, x: …).grad(), or rlx.grad(graph, wrt=[…])
fill_ zero_ copy_ normal_ uniform_ add_ mul_ sub_ set_ : init=… of rlx.nn.Parameter, or a changed dict of module.init(seed=0)
dtype : parameter.shape.dtype
ndim dim rank : parameter.shape.rank
to cuda half float double : nothing: rlx.Session(device) compiles for a device, dtype=… of the layer
value get_value get_raw_value : module.init(seed=0)[name]
""")
