"""`fit`: training in one call."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Generator
from numbers import Real
from types import FrameType
from typing import Any, Unpack, overload

from rlx.ir.calls import with_call_errors
from rlx.nn.module import Module
from rlx.report.progress import quiet, waiting
from rlx.runtime.session import Session
from rlx.support.errors import Error
from rlx.support.options import takes_options
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion
from rlx.train.batch_layout import BatchLayout
from rlx.train.data import ArrayData, Data, IterableData, data_of, split
from rlx.train.epoch_log import EpochLog
from rlx.train.fit_options import FIT_NAMES, LOOP_NAMES, FitKeywords, FitOptions, LoopOptions
from rlx.train.loop import Batches, FitLoop, begin, fit_step, judge_of
from rlx.train.losses import Loss
from rlx.train.metrics import metrics_of
from rlx.train.model_graphs import build_graphs
from rlx.train.model_step import ModelStep
from rlx.train.optimizers import SGD, Adafactor, Adam, AdamW, Lion, Optimizer
from rlx.train.step import TrainStep
from rlx.train.trained_model import TrainedModel, check_layout
from rlx.train.training_history import TrainingHistory

_OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Adam(1e-3),
    "adamw": AdamW(1e-3),
    "sgd": SGD(1e-2),
    "lion": Lion(1e-4),
    "adafactor": Adafactor(1e-2),
}


@overload
def fit(model: TrainStep, data: Batches, **options: Unpack[FitKeywords]) -> TrainingHistory: ...
@overload
def fit(model: Module, data: Any, **options: Unpack[FitKeywords]) -> TrainedModel: ...
@with_call_errors
@takes_options(FitOptions)
def fit(model: Any, data: Any, **options: Unpack[FitKeywords]) -> Any:
    """Train a module, or call a `TrainStep` for each batch.

    For a module, the graphs of the step, of evaluation and of prediction are made from it, and trained parameters,
    history and graphs are returned. Losses and metrics of an epoch are exact: each sample has the same weight. Ctrl-C
    ends the training after the step, with the same result; a second one interrupts at once.

    Args:
        model: A module of `rlx.nn`, or a `TrainStep`.
        data: For a module: a tuple of arrays `(x, y)`, or a dictionary of arrays, named as the parameters of `forward`
            and `y`, `label` or `target`. Or batches of these forms: a list, a `DataLoader` of PyTorch, a data set of
            `grain` or `tf.data`, another iterable, or a function that returns the batches of an epoch. f64 becomes f32,
            and i64 becomes i32. For a `TrainStep`: dictionaries of its inputs, in the same iterables or functions. A
            function with a parameter gets the number of the epoch, from 0.
        options: The options, by name.

    Returns:
        A `TrainedModel`; for a `TrainStep`, its `TrainingHistory`: `{"step": n, "loss": …, …}` with the metrics, for
        each logged step. Steps and epochs are counted from 1.

    Raises:
        Error: An option is wrong; the data is empty, or does not fit the model or the loss; a label is out of range; or
            the loss is not finite. If steps were made before, the error has them as `error.trained`.
    """
    unknown = options.keys() - FIT_NAMES
    if unknown:
        raise TypeError(f"got an unexpected keyword argument '{min(unknown)}'")
    if isinstance(model, TrainStep):
        return _fit_step(model, data, options)
    if not isinstance(model, Module):
        got = short_repr(model) if not isinstance(model, type) else f"the class {model.__name__}"
        hint = f"call the class: {model.__name__}()" if isinstance(model, type) else "a graph is trained by a TrainStep"
        raise Error(f"model must be a module of rlx.nn or a TrainStep, got {got}", hint=hint)
    return _fit_module(model, data, FitOptions(**options))


def _fit_step(step: TrainStep, batches: Any, options: Any) -> TrainingHistory:
    wrong = [name for name in options if name not in LOOP_NAMES]
    if wrong:
        raise Error(f"{wrong[0]}= is for a module; a TrainStep has its loss, optimiser, options and batches")
    own = LoopOptions(**options)
    return fit_step(step, batches, own.validation, own)


# --- a module -------------------------------------------------------------------------------------


def _fit_module(model: Module, data: Any, options: FitOptions) -> TrainedModel:
    train, validation, layout = training_data(model, data, options)
    session = Session(options.device, threads=options.threads)
    optimizer = optimizer_of(options.optimizer)
    with _shown(f"compiling the training step of {type(model).__name__}", options.progress):
        step = model_step(model, train, layout, optimizer, session, options)
    for part in (train, validation):
        if isinstance(part, ArrayData):
            for name in layout.targets:
                step.check_labels(part.arrays[name], f"{name} of {part.what}")
    if validation is not None:  # before the first epoch
        step.graphs.with_targets_as_trained(validation.first(), "validation")
    loop_options: Any = options
    judge = judge_of(step, None if validation is None else validation, loop_options)
    begin(step, options)
    log = EpochLog(step, train, _epochs(options), optimizer, options.progress)
    trained = TrainedModel(model, step, session, log.history, options.batch_size)
    trained.validation_indices = validation.chosen if isinstance(validation, ArrayData) else None
    with _shown("", options.progress), _interrupts(options.progress) as interrupted:
        loop = FitLoop(step, train, judge, log, loop_options, by_epoch=True, is_interrupted=interrupted.is_set)
        try:
            log.begin()
            loop.run()
        except KeyboardInterrupt:
            interrupted.set()
            log.finish({})
        except Exception as problem:  # those of the user's data as well
            log.finish({})
            if step.position[0]:
                problem.trained = trained  # type: ignore[attr-defined]
            raise
    trained.interrupted = interrupted.is_set()
    return trained


def _epochs(options: FitOptions) -> int | None:
    return options.epochs if options.epochs is not None or options.steps is not None else 1


def training_data(model: Module, data: Any, options: FitOptions) -> tuple[Data, Data | None, BatchLayout]:
    """Return the batches for training and for validation, and their layout."""
    own: dict[str, Any] = {name: getattr(options, name) for name in ("shuffle", "seed", "drop_last", "steps_per_epoch")}
    train, layout = data_of(data, model, "data", options.batch_size, **own)
    given = options.validation
    if given is None:
        return train, None, layout
    if isinstance(given, Real):
        if not isinstance(train, ArrayData):
            raise Error(f"validation={given} is a share of arrays, and data is an iterable", hint="give batches")
        if not 0 < float(given) < 1:
            raise Error(f"validation must be data, or a share between 0 and 1, got {given}")
        kept, held = split(train, float(given), options.seed)
        validation = ArrayData(train.arrays, options.batch_size, chosen=held)
        return ArrayData(train.arrays, options.batch_size, chosen=kept, **own), validation, layout
    validation, theirs = data_of(given, model, "validation", options.batch_size)
    check_layout(layout, theirs, "validation")
    if isinstance(validation, IterableData) and validation.is_iterator and options.epochs not in (None, 1):
        hint = "give a list, a DataLoader, or a function that returns the batches"
        raise Error("validation is an iterator, which ends for good after the first epoch", hint=hint)
    return train, validation, layout


def model_step(
    model: Module, data: Data, layout: BatchLayout, optimizer: Optimizer, session: Session, options: FitOptions
) -> ModelStep:
    """Return the compiled step of a module.

    Raises:
        Error: Shapes do not fit the module, the loss or a metric, or parameters do not fit.
    """
    loss, metrics = Loss.of(options.loss), metrics_of(options.metrics)
    first = data.first()
    params = model.init(options.seed) if options.params is None else model.params_from(options.params)
    graphs = build_graphs(model, layout, first, loss, metrics, options.seed)
    return ModelStep(graphs, optimizer, data.batch_size, loss, metrics, session, {**options.of_step, "params": params})


def optimizer_of(given: Any) -> Optimizer:
    """Return an optimiser from its name or itself.

    Raises:
        Error: It is neither.
    """
    if isinstance(given, str):
        if given.lower() in _OPTIMIZERS:
            return _OPTIMIZERS[given.lower()]
        close = suggestion(given, _OPTIMIZERS)
        raise Error(f"there is no optimiser {short_repr(given)}{close}; there are {', '.join(_OPTIMIZERS)}")
    if not isinstance(given, Optimizer):
        raise Error(f"optimizer must be one of rlx.train's, such as rlx.train.Adam(1e-3), got {short_repr(given)}")
    return given


@contextlib.contextmanager
def _shown(what: str, progress: bool) -> Generator[None]:
    """Show the time of compiling after a second, or nothing at all without progress."""
    with quiet() if not progress else waiting(what, plain=True) if what else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _interrupts(progress: bool) -> Generator[threading.Event]:
    """Return an event that the first Ctrl-C sets instead of raising `KeyboardInterrupt`."""
    event = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()
        if progress and sys.stderr is not None:
            sys.stderr.write("\nending after this step; Ctrl-C again interrupts it\n")

    before = signal.getsignal(signal.SIGINT)
    is_ours = before is signal.default_int_handler  # else another library handles it, or Ctrl-C is off
    if is_ours:
        try:
            signal.signal(signal.SIGINT, handle)
        except ValueError:  # not the main thread
            is_ours = False
    try:  # without `except`: an exception of the training is thrown into this generator
        yield event
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)
