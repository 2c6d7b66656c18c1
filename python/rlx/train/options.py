"""`TrainingOptions`: what a training step computes, for `TrainStep` and `JaxStep`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlx.support.errors import Error
from rlx.support.options import described
from rlx.support.short import short_repr
from rlx.targets.options import CompileKeywords, CompileOptions
from rlx.train.groups import Groups, Mask
from rlx.train.loss_scale import DynamicLossScale
from rlx.train.schedules import check_count, check_number, check_share


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(CompileOptions):
    """The options of a training step, for a given graph and optimiser.

    A new option is a field here, and the same name in `TrainingKeywords`.

    Raises:
        Error: A value is not valid.
    """

    wrt: Any = field(
        default=None,
        metadata=described(
            "Names of the parameters to train; all that hold floats when absent. Other parameters do not change."
        ),
    )
    loss: str | None = field(
        default=None, metadata=described("The name of the output that is the loss; the first when absent.")
    )
    loss_scale: DynamicLossScale | float | None = field(
        default=None,
        metadata=described(
            "The factor by which the loss is multiplied and the gradients are divided: a `DynamicLossScale` or a number. With "
            "either, a step whose gradients are not all finite changes neither parameters nor optimiser. When absent, it is "
            "`DynamicLossScale()` for f16, and no scale for other dtypes."
        ),
    )
    accumulate: int = field(
        default=1,
        metadata=described(
            "The parameters are updated once in this many calls, by the mean of the gradients of these calls."
        ),
    )
    clip_norm: float | None = field(
        default=None,
        metadata=described(
            "The largest norm of the gradients, taken together as one vector; longer ones are scaled down to it."
        ),
    )
    groups: Groups | None = field(
        default=None,
        metadata=described(
            "Other options of the optimiser for some parameters, by patterns of their names. The first matching pattern "
            'applies: `{"head.*": {"learning_rate": 1e-3}, "*bias": {"weight_decay": 0.0}}`.'
        ),
    )
    weight_decay_mask: Mask | None = field(
        default=None,
        metadata=described(
            "The parameters that decay, as patterns of names, or a function of a name and a `Shape` that gives True for these: "
            "`lambda name, shape: shape.rank > 1`. All decay when absent."
        ),
    )
    ema: float | None = field(
        default=None,
        metadata=described(
            "The share of the past in an exponential moving average of the parameters, such as 0.999, which `ema_params` "
            "gives; it begins with the values that are set."
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("accumulate", self.accumulate)
        if self.clip_norm is not None and check_number("clip_norm", self.clip_norm) <= 0:
            raise Error(f"clip_norm must be positive, got {short_repr(self.clip_norm)}")
        if self.ema is not None:
            check_share("ema", self.ema)


class TrainingKeywords(CompileKeywords, total=False):
    """The fields of `TrainingOptions` as keywords of a call, for `**options: Unpack[TrainingKeywords]`."""

    wrt: Any
    loss: str | None
    loss_scale: DynamicLossScale | float | None
    accumulate: int
    clip_norm: float | None
    groups: Groups | None
    weight_decay_mask: Mask | None
    ema: float | None
