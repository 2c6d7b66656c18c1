"""The options of `fit`: of its loop, and of the training of a module."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from rlx.support.errors import Error
from rlx.support.files import file_name
from rlx.support.options import described
from rlx.support.short import short_repr
from rlx.train.losses import LOSSES
from rlx.train.metrics import METRICS
from rlx.train.options import TrainingKeywords, TrainingOptions
from rlx.train.schedules import check_count, check_flag

Observer = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, kw_only=True)
class LoopOptions:
    """The options of the loop of `fit`.

    A new option is a field here, and the same name in `FitKeywords`.

    Raises:
        Error: A value is not valid.
    """

    epochs: int | None = field(
        default=None, metadata=described("The number of iterations over all batches; 1 if `steps` is not given either.")
    )
    steps: int | None = field(
        default=None, metadata=described("The number of steps after which to stop, over any number of epochs.")
    )
    validation: Any = field(
        default=None,
        metadata=described(
            "Data that is not used for training, in the same forms as `data`, or for arrays a share of `data` such as 0.1: "
            "random samples, which depend only on the share, `seed` and the number of samples, and are not used for training "
            "(`validation_indices` of the result). Its loss and metrics are added to the history as `val_loss`, "
            "`val_accuracy`, …. A `TrainStep` takes batches, and computes its `evaluation=` graph."
        ),
    )
    validate_every: int | None = field(
        default=None,
        metadata=described("The number of steps between two validations; by default, at the end of each epoch."),
    )
    patience: int | None = field(
        default=None,
        metadata=described(
            "Stop after this number of consecutive validations without a new smallest loss (early stopping). A line is "
            "shown, and `stopped_epoch` and `best_epoch` of the history are set."
        ),
    )
    keep_best: bool = field(
        default=False,
        metadata=described(
            "At the end, restore parameters and states of the validation with the smallest loss. With a checkpoint, they are "
            "stored in a file of its name with the suffix `.best`."
        ),
    )
    checkpoint: str | os.PathLike[str] | None = field(
        default=None,
        metadata=described("The file for parameters, states of the optimiser and the history: see `TrainStep.save`."),
    )
    checkpoint_every: int | None = field(
        default=None,
        metadata=described(
            "The number of steps between two checkpoints. When absent: after each epoch for a module, else at the end."
        ),
    )
    resume: bool = field(
        default=False,
        metadata=described(
            "Continue from `checkpoint` if the file exists, with the batch after its last one. `epochs`, `steps`, numbers of "
            "steps, `patience` and `keep_best` then refer to the whole training."
        ),
    )
    callbacks: Sequence[Observer] = field(
        default=(),
        metadata=described(
            "Called with each entry of the history, one after the other: a `CSVLogger`, `TensorBoardLogger` or function. "
            "For a `TrainStep`, with the entry of each step. If one returns True, training ends."
        ),
    )
    on_step: Observer | None = field(
        default=None,
        metadata=described(
            'Called after each step with its entry, `{"step": 3, "loss": …, …}`. Items that it adds are shown, and for a '
            "`TrainStep` are in the history. If it returns True, training ends."
        ),
    )
    log_every: int = field(
        default=1,
        metadata=described(
            "For a `TrainStep`: every n-th step is in the history. The last step, and steps with a validation, always are."
        ),
    )
    progress: bool = field(
        default=True,
        metadata=described(
            "Show a progress bar on standard error, or plain lines if that is not a terminal. False shows nothing."
        ),
    )

    def __post_init__(self) -> None:
        for name in ("epochs", "steps", "checkpoint_every", "validate_every", "log_every", "patience"):
            value = getattr(self, name)
            if value is not None:
                check_count(name, value)
        for name in ("resume", "keep_best", "progress"):
            check_flag(name, getattr(self, name))
        if self.on_step is not None and not callable(self.on_step):
            raise Error(f"on_step must be a function of what a step gives, got {short_repr(self.on_step)}")
        if not isinstance(self.callbacks, (list, tuple)) or not all(map(callable, self.callbacks)):
            raise Error(f"callbacks must be a list of functions of what a step gives, got {short_repr(self.callbacks)}")
        self._check_files()

    def _check_files(self) -> None:
        if self.checkpoint_every is not None and self.checkpoint is None:
            raise Error("checkpoint_every needs a file: checkpoint=path")
        if self.resume and self.checkpoint is None:
            raise Error("resume needs a file: checkpoint=path")
        if self.checkpoint is not None:  # checked before any results could be lost
            name = file_name(self.checkpoint)
            folder = os.path.dirname(name) or os.curdir
            if not os.path.isdir(folder):
                raise Error(f"checkpoint: there is no folder {folder}")
            if os.path.isdir(name):
                raise Error(f"checkpoint: {name} is a folder", hint="give the path of a file in it")

    @property
    def observers(self) -> list[Observer]:
        """All functions that are called with entries."""
        return [*([self.on_step] if self.on_step is not None else []), *self.callbacks]


@dataclass(frozen=True, kw_only=True)
class FitOptions(TrainingOptions, LoopOptions):
    """The options of `fit` for a module: those of the loop, of `TrainStep`, and its own.

    Raises:
        Error: A value is not valid.
    """

    loss: Any = field(
        default=None,
        metadata=described(
            f"For a module: {', '.join(f'`{n}`' for n in LOSSES)}, or a function of the outputs and targets of a batch that "
            "returns a scalar tensor, or one number for each sample. Cross entropies take logits; if the module ends with "
            "`Softmax` or `Sigmoid`, they take its operand."
        ),
    )
    optimizer: Any = field(
        default="adam",
        metadata=described(
            "For a module: an optimiser such as `rlx.train.AdamW(1e-3)`, or the name of one, with its usual rate."
        ),
    )
    metrics: Any = field(
        default=(),
        metadata=described(
            f"For a module: a list of names ({', '.join(f'`{n}`' for n in METRICS)}), of `Metric`s such as "
            '`rlx.train.F1Score(average="weighted")`, and of functions of outputs and targets; or a dictionary of these.'
        ),
    )
    params: Any = field(
        default=None,
        metadata=described(
            "For a module: its initial parameters, as `Module.params_from` takes them: arrays by name, PyTorch's state dict, "
            "or a file of weights or a checkpoint, of which the parameters are used. By default `model.init(seed)`."
        ),
    )
    batch_size: int = field(
        default=32,
        metadata=described("For arrays: the number of samples of a batch. The last batch of an epoch may be smaller."),
    )
    shuffle: bool = field(
        default=True,
        metadata=described("For arrays: whether each epoch has a new random order."),
    )
    drop_last: bool = field(
        default=False,
        metadata=described("For arrays: leave out a last batch that is smaller."),
    )
    steps_per_epoch: int | None = field(
        default=None,
        metadata=described(
            "The number of batches of an epoch; by default an epoch is one pass over the data. The next epoch continues where "
            "the epoch before stopped, and data that ends is read again. An iterator that ends early is an error, as is a "
            "function that returns fewer batches."
        ),
    )
    seed: int = field(
        default=0,
        metadata=described("For a module: the seed of initial parameters, of the order of samples and of dropout."),
    )
    device: Any = field(
        default="cpu",
        metadata=described("For a module: as in `rlx.Session`."),
    )
    threads: int | None = field(
        default=None,
        metadata=described("For a module: as in `rlx.Session`."),
    )
    cache: Any = field(
        default=True,
        metadata=described("For a module: as in `Session.compile`. Programs are found again by other processes."),
    )

    def __post_init__(self) -> None:
        TrainingOptions.__post_init__(self)
        LoopOptions.__post_init__(self)
        check_count("batch_size", self.batch_size)
        check_flag("shuffle", self.shuffle)
        check_flag("drop_last", self.drop_last)
        if self.steps_per_epoch is not None:
            check_count("steps_per_epoch", self.steps_per_epoch)
        check_count("seed", self.seed, least=0)

    @property
    def of_step(self) -> dict[str, Any]:
        """The options of `TrainStep`, without its loss."""
        names = [option.name for option in fields(TrainingOptions) if option.name != "loss"]
        return {name: getattr(self, name) for name in (*names, "cache")}


LOOP_NAMES = frozenset(option.name for option in fields(LoopOptions))
FIT_NAMES = frozenset(option.name for option in fields(FitOptions))


class FitKeywords(TrainingKeywords, total=False):
    """The fields of `FitOptions` as keywords of a call, for `**options: Unpack[FitKeywords]`."""

    epochs: int | None
    steps: int | None
    validation: Any
    validate_every: int | None
    patience: int | None
    keep_best: bool
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int | None
    resume: bool
    callbacks: Sequence[Observer]
    on_step: Observer | None
    log_every: int
    progress: bool
    loss: Any  # type: ignore[misc]
    optimizer: Any
    metrics: Sequence[Any] | Mapping[str, Any]
    params: Any
    batch_size: int
    shuffle: bool
    drop_last: bool
    steps_per_epoch: int | None
    seed: int
    device: Any
    threads: int | None
    cache: Any
