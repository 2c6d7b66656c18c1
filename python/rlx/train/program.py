"""Conversion of a loss graph to a graph of one training step, whose parameters are states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlx.ir.dtype import DType, f32, f64
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.op.signature import sign_function
from rlx.ir.shape import Shape
from rlx.ir.sharding import Sharding
from rlx.passes import run
from rlx.passes.dtypes.precision_policies import precision_policy
from rlx.support.errors import Error
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion
from rlx.targets import stages
from rlx.targets.options import CompileOptions
from rlx.train import loss_scale as scales
from rlx.train.groups import optimizers_of
from rlx.train.loss_scale import DynamicLossScale
from rlx.train.optimizers import Optimizer
from rlx.train.options import TrainingOptions
from rlx.train.schedules import learning_rate_at
from rlx.transforms.base import arguments_of, names_of, tensor_graph
from rlx.transforms.grad import grad_with_loss

STEP, ACCUMULATED = "train/step", "train/accumulated"
AVERAGE = "ema/"  # the prefix of a parameter's exponential moving average


@dataclass(frozen=True)
class TrainingGraph:
    """One training step as a graph. It takes a batch and returns the loss and metrics. All other values are states.

    Attributes:
        graph: The graph, whose first output is the loss.
        trained: Names of the parameters that have become states.
        frozen: Names of the other parameters.
        options: The options for compiling it; it is in its precision already.
    """

    graph: Graph
    trained: tuple[str, ...]
    frozen: tuple[str, ...]
    options: CompileOptions

    @property
    def results(self) -> tuple[str, ...]:
        """The user-visible names of its outputs: the first is `loss`."""
        return ("loss", *(o.name for o in self.graph.outputs[1:]))


def training_graph(graph: Any, optimizer: Optimizer, options: TrainingOptions | None = None) -> TrainingGraph:
    """The graph of one training step. See `TrainStep` for the arguments.

    Raises:
        Error: An option does not fit, the loss is not a scalar, a parameter's size is not known, or an op has no derivative.
    """
    if not isinstance(optimizer, Optimizer):
        raise Error(f"optimizer must be one of rlx.train's, such as rlx.train.Adam(1e-3), got {short_repr(optimizer)}")
    options = options or TrainingOptions()
    dtypes = precision_policy(options.precision)
    scale = scales.chosen(options.loss_scale, by_default=dtypes.computes_in("f16"))

    source = stages.prepare_graph(tensor_graph(graph), options)
    trained = _trained(source, options.wrt)
    names = [a.name for a in trained]
    outputs = [o.name for o in source.outputs]
    loss = options.loss
    if loss is None:
        loss = outputs[0] if outputs else ""  # the transform reports a missing output
    if outputs and loss not in outputs:
        close = suggestion(loss, outputs)
        raise Error(
            f"the graph has no output {short_repr(loss)} for the loss{close}; its outputs are: {', '.join(outputs[:20])}"
        )
    for output in outputs:
        if output != loss and output in ("loss", "step"):
            raise Error(f"output '{output}' is not the loss, so it needs another name", hint=f"the loss is '{loss}'")

    derived = _with_gradients(source, names, loss, scale)
    if dtypes.passes:
        derived = run(derived, dtypes.passes)
    step = _with_states(derived, names)
    # The differentiated output, the gradients, then the other outputs: by position, because names may have a number
    # appended.
    first, *gradients_and_metrics = step.output_tensors
    gradients, metrics = gradients_and_metrics[: len(names)], gradients_and_metrics[len(names) :]
    outputs_by_name = dict(zip([o for o in outputs if scale is not None or o != loss], metrics, strict=True))
    step.set_outputs({loss: outputs_by_name.pop(loss, first), **outputs_by_name})
    optimizers = optimizers_of(optimizer, trained, options.groups, options.weight_decay_mask)
    _Update(step, optimizers, trained, gradients, scale, options).emit()
    step.verify()
    frozen = tuple(a.name for a in step.params)
    return TrainingGraph(step, tuple(names), frozen, replace(options.compilation.prepared, precision=None))


def _trained(graph: Graph, wrt: Any) -> list[Argument]:
    """Return the parameters to train."""
    if wrt is None:
        names = tuple(a.name for a in graph.params if a.shape.dtype.is_float and a.trainable)
        if not names:
            hint = "declare weights with g.param(…), or name those to train by wrt="
            raise Error(f"graph '{graph.name}' has no trainable parameters of floats", hint=hint)
    else:
        names = names_of(wrt, "wrt")
        if not names:
            raise Error("wrt names no parameter", hint="leave it out to train all")
    trained = arguments_of(graph, names, "wrt")
    for a in trained:
        if a.kind != "param" or not a.shape.dtype.is_float:
            raise Error(f"wrt: '{a.name}' is {a.kind} {a.shape}; only parameters of floats are trained")
        layout = a.shape.dtype.float_format
        if layout is not None and not layout.signed:
            raise Error(
                f"parameter '{a.name}' is {a.shape}, a dtype without negative numbers, which gradients have",
                hint="declare it with trainable=False, or name others by wrt=; to train it, declare it as f32",
            )
        if not a.shape.is_static:
            raise Error(f"parameter '{a.name}' is {a.shape}; its size must be known", hint="fix symbols with bind=")
    return trained


def _with_gradients(source: Graph, names: Sequence[str], loss: str, scale: DynamicLossScale | float | None) -> Graph:
    """Return a graph with these outputs: the differentiated one, a gradient for each name, and the others."""
    if scale is None:
        return grad_with_loss(source, names, loss=loss)
    scaled = source.clone()
    outputs = dict(zip([o.name for o in scaled.outputs], scaled.output_tensors, strict=True))
    if loss in outputs and not outputs[loss].rank:
        kind = wide(outputs[loss].dtype)
        factor = scaled.cast(scales.add_scale(scaled, scale), kind)
        outputs["train/scaled_loss"] = scaled.cast(outputs[loss], kind) * factor
        scaled.set_outputs(outputs)
        loss = "train/scaled_loss"
    return grad_with_loss(scaled, names, loss=loss)  # raises if the output does not exist or is not a scalar


def _with_states(graph: Graph, names: Sequence[str]) -> Graph:
    """Return the same function with some parameters as states."""
    arguments = [replace(a, kind="state", trainable=True) if a.name in names else a for a in graph.arguments]
    sign_function(graph.function, arguments, graph.results)
    return Graph.from_module(graph.module, graph.name_symbol).clone()


def wide(kind: DType) -> DType:
    """Return the dtype of the computation of a parameter's update."""
    return f64 if kind is f64 else f32


class _Update:
    """Emits the update of all parameters at the end of a graph."""

    def __init__(
        self,
        graph: Graph,
        optimizers: Mapping[str, Optimizer],
        trained: Sequence[Argument],
        gradients: Sequence[Tensor],
        scale: DynamicLossScale | float | None,
        options: TrainingOptions,
    ):
        self.g, self.optimizers, self.trained, self.scale = graph, optimizers, trained, scale
        self.options = options
        self.gradients = [graph.cast(t, wide(t.dtype)) for t in gradients]

    def emit(self) -> None:
        g = self.g
        count = g.state(STEP, (), "i32")
        if self.scale is not None:
            self._unscale()
        boundary = self._accumulate() if self.options.accumulate > 1 else None
        ready = boundary
        if self.scale is not None:
            finite = scales.all_finite(g, self.gradients)
            ready = finite if boundary is None else boundary & finite
            if isinstance(self.scale, DynamicLossScale):
                self.scale.update(g, finite, boundary)
        if self.options.clip_norm is not None:
            self._clip(self.options.clip_norm)
        kind = f64 if any(t.dtype is f64 for t in self.gradients) else f32
        step = g.cast(count, kind)
        rates: dict[Any, Tensor] = {}  # one for each group
        for argument, gradient in zip(self.trained, self.gradients, strict=True):
            rate = self.optimizers[argument.name].learning_rate
            if rate not in rates:
                rates[rate] = learning_rate_at(g, rate, step)
            self._update(argument, gradient, step, rates[rate], ready)
        g.update(count, count + 1 if ready is None else count + g.cast(ready, "i32"))

    def _unscale(self) -> None:
        g = self.g
        scale: Any = g.argument(scales.SCALE) if isinstance(self.scale, DynamicLossScale) else self.scale
        inverse: Any = 1.0 / scale
        self.gradients = [
            t * (g.cast(inverse, t.dtype) if isinstance(inverse, Tensor) else inverse) for t in self.gradients
        ]

    def _accumulate(self) -> Tensor:
        """Add up the gradients, and replace them by their mean. Return whether the sum is complete."""
        g = self.g
        counter = g.state(ACCUMULATED, (), "i32")
        complete = counter + 1 >= self.options.accumulate
        g.update(counter, g.where(complete, 0, counter + 1))
        means = []
        for argument, gradient in zip(self.trained, self.gradients, strict=True):
            total = g.state(f"gradient_sum/{argument.name}", gradient.shape, sharding=argument.sharding)
            added = total + gradient
            g.update(total, g.where(complete, 0.0, added))
            means.append(added / self.options.accumulate)
        self.gradients = means
        return complete

    def _clip(self, greatest: float) -> None:
        """Scale the gradients down to a norm, all by the same factor (R. Pascanu et al., 2013)."""
        g = self.g
        squares: Any = 0.0
        for gradient in self.gradients:
            squares = squares + g.cast(g.sum(gradient * gradient), f64 if gradient.dtype is f64 else f32)
        share = g.minimum(greatest / g.sqrt(squares), 1.0)
        self.gradients = [t * g.cast(share, t.dtype) for t in self.gradients]

    def _checked(
        self, optimizer: Optimizer, updated: Any, states: Mapping[str, Tensor]
    ) -> tuple[Any, Mapping[str, Any]]:
        """Check the result of an optimiser's update: the new parameter, and the next value of each state."""
        if not isinstance(updated, tuple) or len(updated) != 2 or not isinstance(updated[1], Mapping):
            expected = "expected the new parameter and a dictionary of the next states"
            raise Error(f"{optimizer.name}: update gives {type(updated).__name__}; {expected}")
        if updated[1].keys() != states.keys():
            names = ", ".join(updated[1]) or "none"
            expected = ", ".join(states) or "none"
            raise Error(f"{optimizer.name}: update gives the states {names}; expected {expected}")
        return updated

    def _update(self, argument: Argument, gradient: Tensor, step: Tensor, rate: Tensor, ready: Tensor | None) -> None:
        g, kind, optimizer = self.g, gradient.dtype, self.optimizers[argument.name]
        old = g.argument(argument.name)
        shape = Shape(argument.shape.dims, kind)
        slots = optimizer.states(shape)
        if not isinstance(slots, Mapping):
            raise Error(f"{optimizer.name}: states must give a dictionary of shapes by name, got {short_repr(slots)}")
        states = {
            slot: g.state(
                f"{optimizer.name}_{slot}/{argument.name}", slot_shape, sharding=_sharding(argument, slot_shape)
            )
            for slot, slot_shape in slots.items()
        }
        with g.named(f"update/{argument.name}"):
            updated = optimizer.update(g, gradient, g.cast(old, kind), states, g.cast(step, kind), g.cast(rate, kind))
            new, following = self._checked(optimizer, updated, states)
            pairs = [(old, g.cast(new, old.dtype)), *((states[slot], following[slot]) for slot in states)]
            if self.options.ema is not None:
                mean = g.state(f"{AVERAGE}{argument.name}", shape, sharding=argument.sharding)
                pairs.append((mean, self.options.ema * mean + (1 - self.options.ema) * new))
            for state, value in pairs:
                g.update(state, value if ready is None else g.where(ready, value, state))


def _sharding(argument: Argument, slot: Any) -> Sharding | None:
    """Return the sharding of an optimiser state: that of the parameter if it has its shape."""
    return argument.sharding if Shape(slot).dims == argument.shape.dims else None
