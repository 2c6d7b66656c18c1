"""Training: optimisers, a compiled training step, checkpoints and a loop."""

from typing import NoReturn

import rlx.blocks  # noqa: F401  (whole before its parts: see passes/__init__.py)
from rlx.support.answers import answers
from rlx.train.confusion import ConfusionMatrix
from rlx.train.fit import fit
from rlx.train.forces import force_energy_loss
from rlx.train.jax_step import JaxStep
from rlx.train.layout import SharedWeightLayout, TrainingCompileResult, WeightSlot, compile_training
from rlx.train.learning_rates import LearningRateSearch, find_learning_rate
from rlx.train.loggers import CSVLogger, TensorBoardLogger
from rlx.train.loss_scale import DynamicLossScale
from rlx.train.metrics import (
    Accuracy,
    F1Score,
    MeanAbsoluteError,
    MeanSquaredError,
    Metric,
    PrecisionScore,
    R2Score,
    RecallScore,
    TopAccuracy,
)
from rlx.train.optimizers import SGD, Adafactor, Adam, AdamW, Lion, Optimizer
from rlx.train.schedules import constant, cosine, exponential, linear
from rlx.train.step import TrainStep
from rlx.train.trained_model import TrainedModel
from rlx.train.training_history import TrainingHistory

__all__ = [
    "SGD",
    "Accuracy",
    "Adafactor",
    "Adam",
    "AdamW",
    "CSVLogger",
    "ConfusionMatrix",
    "DynamicLossScale",
    "F1Score",
    "JaxStep",
    "LearningRateSearch",
    "Lion",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "Optimizer",
    "PrecisionScore",
    "R2Score",
    "RecallScore",
    "SharedWeightLayout",
    "TensorBoardLogger",
    "TopAccuracy",
    "TrainStep",
    "TrainedModel",
    "TrainingCompileResult",
    "TrainingHistory",
    "WeightSlot",
    "compile_training",
    "constant",
    "cosine",
    "exponential",
    "find_learning_rate",
    "fit",
    "force_energy_loss",
    "linear",
]


def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        raise AttributeError(f"module 'rlx.train' has no attribute '{name}'")
    raise answers().module_problem("rlx.train", name, __all__)
