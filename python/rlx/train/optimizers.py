"""Optimisers as graphs: the states for a parameter, and the next value of the parameter.

Options have the names and meanings of optax's optimisers of the same names, and their results are those of optax.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from rlx.ir.calls import Answered
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.shape import Shape
from rlx.support.answers import answers
from rlx.train.schedules import Schedule, check_count, check_flag, check_number, check_share

Updated = tuple[Tensor, dict[str, Tensor]]


@dataclass(frozen=True)
class Optimizer(Answered, ABC):
    """A rule that updates parameters from their gradients. Subclass it for another optimiser.

    Attributes:
        learning_rate: A number, or a schedule: see `rlx.train.schedules`.
        name: The prefix of the names of the states: `adam_m/<param>`.
    """

    learning_rate: float | Schedule
    name: ClassVar[str] = "optimizer"

    def __post_init__(self) -> None:
        if not callable(self.learning_rate):
            check_number("learning_rate", self.learning_rate, least=0)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        raise answers().attribute_problem(type(self).__name__, name, "optimisers", dir(type(self)))

    @abstractmethod
    def states(self, param: Shape) -> dict[str, Shape]:
        """Return the states for a parameter, by name. Their initial values are zeros.

        Args:
            param: Its shape, in the dtype of the update: f64 for f64, else f32.
        """

    @abstractmethod
    def update(
        self,
        b: Builder,
        gradient: Tensor,
        param: Tensor,
        states: Mapping[str, Tensor],
        step: Tensor,
        learning_rate: Tensor,
    ) -> Updated:
        """Return the parameter's next value, and the next values of its states.

        Args:
            b: The builder that emits the ops.
            gradient: The gradient, in the parameter's shape and dtype.
            param: The parameter.
            states: The states that `states` declares, by name.
            step: The number of updates so far, a scalar of the parameter's dtype: 0 at the first update.
            learning_rate: A scalar of the parameter's dtype.
        """


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent, optionally with momentum (B. T. Polyak, 1964; I. Sutskever et al., 2013).

    `t ← g + momentum·t`, and the parameter moves by `-learning_rate·t`, or with `nesterov` by
    `-learning_rate·(g + momentum·t)`. `g` is the gradient plus `weight_decay` times the parameter.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    name: ClassVar[str] = "sgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("momentum", self.momentum)
        check_flag("nesterov", self.nesterov)
        check_number("weight_decay", self.weight_decay, least=0)

    def states(self, param: Shape) -> dict[str, Shape]:
        return {"trace": param} if self.momentum else {}

    def update(
        self, b: Builder, gradient: Tensor, param: Tensor, states: Any, step: Tensor, learning_rate: Tensor
    ) -> Updated:
        if self.weight_decay:
            gradient = gradient + self.weight_decay * param
        if not self.momentum:
            return param - learning_rate * gradient, {}
        trace = gradient + self.momentum * states["trace"]
        direction = gradient + self.momentum * trace if self.nesterov else trace
        return param - learning_rate * direction, {"trace": trace}


@dataclass(frozen=True)
class Adam(Optimizer):
    """D. P. Kingma, J. Ba: Adam, a method for stochastic optimization, 2015, algorithm 1.

    `m ← b1·m + (1 - b1)·g`, `v ← b2·v + (1 - b2)·g²`, and the parameter moves by
    `-learning_rate · (m / (1 - b1ᵗ)) / (√(v / (1 - b2ᵗ)) + eps)` at update `t`.
    """

    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    name: ClassVar[str] = "adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("b1", self.b1)
        check_share("b2", self.b2)
        check_number("eps", self.eps, least=0)

    def states(self, param: Shape) -> dict[str, Shape]:
        return {"m": param, "v": param}

    def update(
        self, b: Builder, gradient: Tensor, param: Tensor, states: Any, step: Tensor, learning_rate: Tensor
    ) -> Updated:
        m = self.b1 * states["m"] + (1 - self.b1) * gradient
        v = self.b2 * states["v"] + (1 - self.b2) * (gradient * gradient)
        count = step + 1.0
        # The order of operations in the last paragraph of section 2: scalars first, one division per element.
        squares = _weight_of_past(b, self.b2, count)
        root = b.sqrt(squares) if isinstance(squares, Tensor) else squares
        scale = root / _weight_of_past(b, self.b1, count)
        direction = scale * (m / (b.sqrt(v) + self.eps * root))
        return param - learning_rate * self._decayed(direction, param), {"m": m, "v": v}

    def _decayed(self, direction: Tensor, param: Tensor) -> Tensor:
        return direction


@dataclass(frozen=True)
class AdamW(Adam):
    """I. Loshchilov, F. Hutter: Decoupled weight decay regularization, 2019. Adam, and `-learning_rate·weight_decay·param`."""

    weight_decay: float = 1e-4
    name: ClassVar[str] = "adamw"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("weight_decay", self.weight_decay, least=0)

    def _decayed(self, direction: Tensor, param: Tensor) -> Tensor:
        return direction + self.weight_decay * param if self.weight_decay else direction


@dataclass(frozen=True)
class Lion(Optimizer):
    """X. Chen et al.: Symbolic discovery of optimization algorithms, 2023, algorithm 2.

    The parameter moves by `-learning_rate · (sign(b1·m + (1 - b1)·g) + weight_decay·param)`, and then
    `m ← b2·m + (1 - b2)·g`.
    """

    b1: float = 0.9
    b2: float = 0.99
    weight_decay: float = 1e-3
    name: ClassVar[str] = "lion"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("b1", self.b1)
        check_share("b2", self.b2)
        check_number("weight_decay", self.weight_decay, least=0)

    def states(self, param: Shape) -> dict[str, Shape]:
        return {"m": param}

    def update(
        self, b: Builder, gradient: Tensor, param: Tensor, states: Any, step: Tensor, learning_rate: Tensor
    ) -> Updated:
        mixed = self.b1 * states["m"] + (1 - self.b1) * gradient
        direction = b.where(mixed > 0.0, 1.0, b.where(mixed < 0.0, -1.0, mixed))  # the sign; NaN stays NaN
        if self.weight_decay:
            direction = direction + self.weight_decay * param
        return param - learning_rate * direction, {"m": self.b2 * states["m"] + (1 - self.b2) * gradient}


@dataclass(frozen=True)
class Adafactor(Optimizer):
    """N. Shazeer, M. Stern: Adafactor, adaptive learning rates with sublinear memory cost, 2018, algorithms 4 and 5.

    If the two largest dimensions of a parameter are both at least `min_dim_size_to_factor`, the state is the mean
    squares of the gradient along each of these two. Otherwise it is all squares. At update `t` the past has the weight
    `1 - t^-decay_rate` in the new state. The gradient is divided by the root of these squares, scaled down to a root
    mean square of at most `clipping_threshold`, and multiplied by the root mean square of the parameter (at least
    1e-3).

    Attributes:
        decay_rate: See above.
        clipping_threshold: See above; None does not limit the update.
        multiply_by_parameter_scale: Whether the learning rate is relative to the parameter's size.
        momentum: The weight of the past in a mean of the updates; 0 disables the mean.
        weight_decay: The fraction of the parameter that is subtracted at each update, independent of the learning rate.
        eps: Added to the squares of the gradient.
        min_dim_size_to_factor: See above.
    """

    decay_rate: float = 0.8
    clipping_threshold: float | None = 1.0
    multiply_by_parameter_scale: bool = True
    momentum: float = 0.0
    weight_decay: float = 0.0
    eps: float = 1e-30
    min_dim_size_to_factor: int = 128
    name: ClassVar[str] = "adafactor"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("momentum", self.momentum)
        check_number("decay_rate", self.decay_rate, least=0)
        check_number("weight_decay", self.weight_decay, least=0)
        check_number("eps", self.eps, least=0)
        check_flag("multiply_by_parameter_scale", self.multiply_by_parameter_scale)
        check_count("min_dim_size_to_factor", self.min_dim_size_to_factor)
        if self.clipping_threshold is not None:
            check_number("clipping_threshold", self.clipping_threshold, above=0)

    def states(self, param: Shape) -> dict[str, Shape]:
        axes = self._factored_axes(param)
        if axes is None:
            states = {"v": param}
        else:
            rows, columns = (param.with_dims(d for i, d in enumerate(param.dims) if i != axis) for axis in axes)
            states = {"v_row": rows, "v_col": columns}
        return states | ({"m": param} if self.momentum else {})

    def _factored_axes(self, param: Shape) -> tuple[int, int] | None:
        """Return the largest and the second largest axis, if they are large enough."""
        sizes = sorted((size, axis) for axis, size in enumerate(param.static))
        if len(sizes) < 2 or sizes[-2][0] < self.min_dim_size_to_factor:
            return None
        return sizes[-1][1], sizes[-2][1]

    def update(
        self, b: Builder, gradient: Tensor, param: Tensor, states: Any, step: Tensor, learning_rate: Tensor
    ) -> Updated:
        past = 1.0 - b.pow(step + 1.0, -self.decay_rate)
        direction, new = self._normalised(b, gradient, states, past)
        if self.clipping_threshold is not None:
            direction = direction / b.maximum(_root_mean_square(b, direction) / self.clipping_threshold, 1.0)
        if self.multiply_by_parameter_scale:
            direction = direction * b.maximum(_root_mean_square(b, param), 1e-3)
        direction = learning_rate * direction
        if self.momentum:
            direction = new["m"] = self.momentum * states["m"] + (1 - self.momentum) * direction
        if self.weight_decay:
            direction = direction + self.weight_decay * param
        return param - direction, new

    def _normalised(self, b: Builder, gradient: Tensor, states: Any, past: Tensor) -> Updated:
        """Return the gradient divided by the root of its mean squares, and the updated states."""
        squares = gradient * gradient + self.eps
        axes = self._factored_axes(gradient.shape)
        if axes is None:
            v = past * states["v"] + (1.0 - past) * squares
            return gradient / b.sqrt(v), {"v": v}
        largest, second = axes
        rows = past * states["v_row"] + (1.0 - past) * b.mean(squares, largest)
        columns = past * states["v_col"] + (1.0 - past) * b.mean(squares, second)
        relative = rows / b.mean(rows, second - (largest < second), keep_dims=True)
        shape = gradient.shape.dims
        by_row = b.reshape(b.sqrt(relative), [1 if i == largest else d for i, d in enumerate(shape)])
        by_column = b.reshape(b.sqrt(columns), [1 if i == second else d for i, d in enumerate(shape)])
        return gradient / by_row / by_column, {"v_row": rows, "v_col": columns}


def _weight_of_past(b: Builder, decay: float, count: Tensor) -> Tensor | float:
    """Return `1 - decay^count`: the sum of the weights of a running mean that started with zero.

    It is computed with tanh, as `1 - exp(2y) = -2·tanh(y) / (1 - tanh(y))`, to avoid cancellation if the power is close
    to 1.
    """
    if decay == 0:
        return 1.0
    tanh = b.tanh((0.5 * math.log(decay)) * count)
    return -2.0 * tanh / (1.0 - tanh)


def _root_mean_square(b: Builder, x: Tensor) -> Tensor:
    return b.sqrt(b.mean(x * x))
