"""Layers and networks: thin modules whose parameters are a dictionary of names, as in PyTorch's state dicts.

A module is declared once. Called on a tensor of a graph, it declares its parameters in that graph. `init` returns
initial values, `params_from` and `load` return the values of a state dict or a file, and `apply` computes with given
values.
"""

from __future__ import annotations

from typing import NoReturn

from rlx.nn import init
from rlx.nn.activations import GELU, Activation, ReLU, Sigmoid, SiLU, Softmax, Tanh
from rlx.nn.layers import (
    Conv,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    Linear,
    Sequential,
)
from rlx.nn.module import Module
from rlx.nn.norms import BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm, RMSNorm
from rlx.nn.parameter import Buffer, Parameter
from rlx.nn.sequence import GRU, LSTM, MultiHeadAttention
from rlx.support.answers import answers

__all__ = [
    "GELU",
    "GRU",
    "LSTM",
    "Activation",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Buffer",
    "Conv",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "Linear",
    "Module",
    "MultiHeadAttention",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "init",
]


def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        raise AttributeError(f"module 'rlx.nn' has no attribute '{name}'")
    raise answers().module_problem("rlx.nn", name, __all__)
