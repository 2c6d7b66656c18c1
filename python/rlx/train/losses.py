"""Losses by name, for `fit` of a module: their ops, and the targets that they accept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rlx import mlir, ops
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Tensor
from rlx.ir.op import opview
from rlx.support.errors import Error, ShapeError
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion
from rlx.train.batch_layout import position_of

Kind = Literal["labels", "probabilities", "binary", "values"]
LossFunction = Callable[[Any, Any], Any]

# The names of PyTorch and Keras for each loss.
_NAMES = {
    "cross_entropy": (
        *("CrossEntropyLoss", "softmax_cross_entropy_with_logits"),
        *("sparse_categorical_crossentropy", "categorical_crossentropy"),
    ),
    "binary_cross_entropy": (
        *("binary_crossentropy", "binary_cross_entropy_with_logits", "BCELoss", "BCEWithLogitsLoss", "bce"),
    ),
    "mse": ("mean_squared_error", "mse_loss", "MSELoss", "MSE"),
    "mae": ("mean_absolute_error", "l1_loss", "L1Loss", "l1", "MAE"),
    "huber": ("huber_loss", "HuberLoss", "smooth_l1_loss", "SmoothL1Loss"),
}
_OTHER_NAMES = {other: name for name, others in _NAMES.items() for other in others}
LOSSES = tuple(_NAMES)
# The last op of a model that ends with probabilities. The loss is computed from the operand, the logits.
_ENDINGS = {"cross_entropy": "softmax", "binary_cross_entropy": "sigmoid"}


@dataclass(frozen=True)
class Task:
    """The meaning of a model's outputs and targets.

    Attributes:
        kind: `labels` are integers for an axis of classes, `probabilities` floats for it, `binary` are numbers of 0 or 1
            for each output, `values` are numbers to predict.
        axis: The axis of the classes in the outputs, for the first two kinds.
        classes: Its size; 2 for `binary`, 0 for `values`.
    """

    kind: Kind
    axis: int = -1
    classes: int = 0


@dataclass(frozen=True)
class Loss:
    """A loss by name, or a function of outputs and targets.

    Attributes:
        name: The name, or that of the function.
        function: The function of the user; None for a name of `LOSSES`.
    """

    name: str
    function: LossFunction | None = None

    @classmethod
    def of(cls, given: Any) -> Loss:
        """Return a loss from a name or a function.

        Raises:
            Error: It is neither; the message lists the names.
        """
        if isinstance(given, str):
            name = _OTHER_NAMES.get(given, given)
            if name in _NAMES:
                return cls(name)
            close = suggestion(given, [*LOSSES, *_OTHER_NAMES])
            raise Error(f"there is no loss {short_repr(given)}{close}; there are {', '.join(LOSSES)}", hint=_FUNCTION)
        if callable(given):
            return cls(str(getattr(given, "__name__", type(given).__name__)), given)
        subject = "loss= is missing" if given is None else f"loss must be a name or a function, got {short_repr(given)}"
        raise Error(f"{subject}; the names are {', '.join(LOSSES)}", hint=_FUNCTION)

    def task(self, outputs: Any, targets: Any) -> Task:
        """Return the meaning of outputs and targets.

        Raises:
            ShapeError: Their shapes or dtypes do not fit the loss.
        """
        if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
            if self.function is not None:
                return Task("values")
            what = "outputs" if not isinstance(outputs, Tensor) else "targets"
            raise ShapeError(f"loss '{self.name}' takes one tensor of {what}, and there are several", hint=_FUNCTION)
        if self.name == "binary_cross_entropy":
            return Task("binary", classes=2)
        if self.name == "cross_entropy" or (self.function is not None and targets.dtype.is_integer):
            return self._classes(outputs, targets)
        return Task("values")

    def _classes(self, outputs: Tensor, targets: Tensor) -> Task:
        """Return the task of outputs with an axis of classes."""
        dims, wanted = outputs.shape.dims, targets.shape.dims
        if targets.dtype.is_float and dims == wanted and outputs.rank > 1:
            axis = -1 if outputs.rank == 2 else 1
            return Task("probabilities", axis, _count(dims[axis]))
        axes = [axis for axis in (-1, 1) if outputs.rank > 1 and _without(dims, axis) == wanted]
        if outputs.rank == 2 and axes:
            axes = [-1]
        if targets.dtype.is_integer and len(axes) == 1:
            return Task("labels", axes[0], _count(dims[axes[0]]))
        if self.function is not None:
            return Task("values")
        shown = f"the outputs are {outputs.shape} and the targets {targets.shape}"
        if targets.dtype.is_integer and len(axes) > 1:
            raise ShapeError(f"cross_entropy: {shown}; the classes may be on axis 1 or the last", hint=_FUNCTION)
        hint = "the last layer needs one output for each class"
        if targets.dtype.is_float and _without(dims, -1) == wanted:
            hint = "labels must be integers: y.astype(np.int32)"
        elif outputs.rank == len(wanted) and targets.dtype.is_integer:
            hint = (
                "one-hot targets must be floats: y.astype(np.float32); for two classes use loss='binary_cross_entropy'"
            )
        expected = "targets are labels, integers in the shape of the outputs without the classes, or probabilities"
        raise ShapeError(f"cross_entropy: {shown}; {expected}", hint=hint)

    def logits(self, outputs: Any, task: Task) -> Any:
        """Return the operand of a softmax or sigmoid at the end of a model, and other outputs unchanged."""
        ending = _ENDINGS.get(self.name) if self.function is None else None
        if ending is None or not isinstance(outputs, Tensor):
            return outputs
        op: Any = outputs.value.owner
        if isinstance(op, mlir.Block) or ending not in (opview.name_of(op), _function(op)):
            return outputs
        if ending == "softmax" and opview.attributes_of(op)["axis"] != task.axis % outputs.rank:
            return outputs
        return Tensor(outputs.builder, op.operands[0])

    def emit(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        """Return the scalar loss of a batch.

        Raises:
            ShapeError: Shapes do not fit, or the function returned something else than a tensor of floats.
        """
        if self.function is not None:
            return self._own(outputs, targets)
        if self.name == "cross_entropy":
            return ops.cross_entropy(outputs, targets, axis=task.axis)
        targets = fitted(outputs, targets, f"loss '{self.name}'")
        return _ELEMENTWISE[self.name](outputs, targets)

    def _own(self, outputs: Any, targets: Any) -> Tensor:
        assert self.function is not None
        value = self.function(outputs, targets)
        if not isinstance(value, Tensor) or not value.dtype.is_float:
            got = value.shape if isinstance(value, Tensor) else type(value).__name__
            raise ShapeError(
                f"the loss function {self.name} must return a tensor of floats, got {got}",
                hint="it is called with tensors of a graph, as lambda outputs, targets: rlx.ops.mse_loss(outputs, targets)",
            )
        return value.mean() if value.rank else value

    def check_labels(self, targets: Any, task: Task, what: str, samples: np.ndarray | None = None) -> None:
        """Check the values of labels.

        Args:
            targets: The array.
            task: The task.
            what: The array, for messages: `y of data`.
            samples: The positions of the samples in the data; None if they are those of the array.

        Raises:
            Error: A label is out of range; the message has its position.
        """
        if self.function is not None or task.kind not in ("labels", "binary") or not targets.size:
            return
        highest = task.classes - 1
        wrong = ~((targets >= 0) & (targets <= highest))
        if not wrong.any():
            return
        index, place = position_of(wrong, samples)
        value = targets[index]
        found = f"{what}: label {value} at {place if len(place) != 1 else place[0]}"
        if task.kind == "binary":
            raise Error(f"{found}; binary_cross_entropy takes labels or probabilities from 0 to 1")
        hint = f"the last layer needs {int(targets.max()) + 1} outputs"
        if value < 0:
            hint = "to ignore labels: loss=lambda o, t: rlx.ops.cross_entropy(o, t, ignore_index=-100, axis=-1)"
        elif targets.min() == 1 and targets.max() == task.classes:
            hint = "labels count from 0: y - 1"
        raise Error(f"{found}; the model has {task.classes} outputs, so labels are 0 to {highest}", hint=hint)


_FUNCTION = "another loss is a function: loss=lambda outputs, targets: rlx.ops.mean(rlx.ops.square(outputs - targets))"
_ELEMENTWISE: dict[str, Callable[[Any, Any], Tensor]] = {
    "binary_cross_entropy": ops.binary_cross_entropy_with_logits,
    "mse": ops.mse_loss,
    "mae": ops.l1_loss,
    "huber": ops.huber_loss,
}


def fitted(outputs: Tensor, targets: Tensor, what: str) -> Tensor:
    """Return the targets in the shape of the outputs, as floats. One of them may have a last axis of size 1.

    Raises:
        ShapeError: They have other sizes. They are never broadcast, because the loss of `[n, 1]` and `[n]` would then
            compare all pairs.
    """
    dims, wanted = outputs.shape.dims, targets.shape.dims
    if dims != wanted:
        if dims != (*wanted, 1) and wanted != (*dims, 1):
            raise ShapeError(
                f"{what}: the outputs are {outputs.shape} and the targets {targets.shape}; they need one shape",
                hint="change the last layer, or reshape the targets",
            )
        targets = targets.reshape(dims)
    return targets if targets.dtype.is_float else ops.cast(targets, outputs.dtype if outputs.dtype.is_float else f32)


def _function(op: Any) -> Any:
    """Return the name of an elementwise function of one op."""
    return opview.attributes_of(op).get("kind") if opview.name_of(op) == "activation" else None


def _without(dims: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    position = axis % len(dims)
    return (*dims[:position], *dims[position + 1 :])


def _count(size: Any) -> int:
    if type(size) is not int:
        raise ShapeError(f"the axis of the classes has the size {size}, which is not fixed", hint="name a fixed size")
    return size
