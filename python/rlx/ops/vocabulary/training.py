"""Names of other libraries: optimisers, schedules and training utilities that `rlx.train` lacks or names differently."""

from __future__ import annotations

from rlx.ops.vocabulary import table

OPTIMISERS = table("""
adam : rlx.train.Adam(1e-3)
adamw : rlx.train.AdamW(1e-3, weight_decay=1e-2)
sgd : rlx.train.SGD(1e-2, momentum=0.9)
lion : rlx.train.Lion(1e-4)
adafactor : rlx.train.Adafactor(1e-3)
RMSprop RMSProp Adagrad Adadelta Adamax NAdam RAdam ASGD Rprop SparseAdam LBFGS Muon : rlx.train.Adam, AdamW, Lion, \
Adafactor or SGD; another one is a subclass of rlx.train.Optimizer
rmsprop adagrad adadelta adamax adamaxw nadam nadamw radam lbfgs rprop muon adabelief adan amsgrad fromage lamb lars \
lookahead noisy_sgd novograd optimistic_gradient_descent polyak_sgd sign_sgd signum sm3 yogi dpsgd : rlx.train.Adam, AdamW, \
Lion, Adafactor or SGD; another one is a subclass of rlx.train.Optimizer
chain GradientTransformation optim : an optimiser and the options of a step: rlx.train.TrainStep(graph, rlx.train.Adam(1e-3))
identity set_to_zero scale scale_by_adam scale_by_rms scale_by_lion scale_by_schedule scale_by_learning_rate trace ema : a \
subclass of rlx.train.Optimizer with update(…)
masked multi_transform partition freeze param_groups add_param_group : rlx.train.TrainStep(…, groups=…), or \
weight_decay_mask=
inject_hyperparams stateless : a schedule as the learning rate: rlx.train.Adam(rlx.train.cosine(1e-3, 1000))
apply_updates incremental_update apply_gradients minimize zero_grad step : step({'x': batch}) of rlx.train.TrainStep
MultiSteps apply_every microbatch : rlx.train.TrainStep(…, accumulate=4)
clip_by_global_norm clip_grad_norm_ clip_grad_norm adaptive_grad_clip clip_by_block_rms clip : rlx.train.TrainStep(…, \
clip_norm=1.0)
per_example_global_norm_clip differentially_private_aggregate : rlx.train.TrainStep(…, clip_norm=1.0), for the whole batch
clip_grad_value_ clip_grad_value : rlx.train.TrainStep(…, clip_norm=1.0), of the norm
global_norm safe_norm per_example_layer_norm_clip : rlx.train.TrainStep(…, clip_norm=1.0) takes the norm of all gradients
add_decayed_weights weight_decay : rlx.train.AdamW(1e-3, weight_decay=1e-2)
add_noise keep_params_nonnegative centralize : a subclass of rlx.train.Optimizer with update(…)
apply_if_finite skip_not_finite skip_large_updates zero_nans GradScaler LossScaler : rlx.train.TrainStep(…, \
loss_scale=rlx.train.DynamicLossScale())
ExponentialMovingAverage AveragedModel swa_utils : rlx.train.TrainStep(…, ema=0.999)
Trainer train Fit train_step training_step train_loop EarlyStopping : rlx.train.fit(step, batches, …)
DataLoader Dataset TensorDataset dataloader : any iterable of dicts of arrays: rlx.train.fit(step, [{'x': a, 'y': b}])
TrainState ModelCheckpoint checkpoint : step.save(path) and step.load(path) of rlx.train.TrainStep
SummaryWriter : rlx.train.TensorBoardLogger(folder)
value_and_grad_from_state tree_map_params : rlx.train.TrainStep(graph, rlx.train.Adam(1e-3)) takes loss and gradients
""")

SCHEDULES = table("""
cosine_decay_schedule CosineAnnealingLR warmup_cosine warmup_cosine_decay_schedule cosine_schedule sgdr_schedule \
CosineAnnealingWarmRestarts OneCycleLR cosine_onecycle_schedule get_cosine_schedule_with_warmup : rlx.train.cosine(\
peak_value, decay_steps, warmup_steps=…)
linear_schedule LinearLR linear_warmup PolynomialLR polynomial_schedule linear_onecycle_schedule warmup_constant_schedule \
get_linear_schedule_with_warmup : rlx.train.linear(init_value, end_value, steps)
exponential_decay ExponentialLR StepLR MultiplicativeLR warmup_exponential_decay_schedule : rlx.train.exponential(\
init_value, transition_steps, decay_rate), with staircase=True in steps
constant_schedule ConstantLR : rlx.train.constant(value), or the number itself
LambdaLR LRScheduler ReduceLROnPlateau MultiStepLR CyclicLR ChainedScheduler SequentialLR join_schedules \
piecewise_constant_schedule piecewise_interpolate_schedule Schedule lr_scheduler schedules : a function of the graph and \
the step: lambda b, step: b.where(step < 100, 1e-3, 1e-4)
""")

# Losses of optax are ops in RLX.
LOSSES = {
    name: f"rlx.ops.{name}"
    for name in ("cosine_similarity", "hinge_loss", "huber_loss", "mse_loss", "l1_loss", "cross_entropy", "kl_div")
}
