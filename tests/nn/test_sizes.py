"""Any value in place of a layer's size raises an RLX error that names the argument."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import rlx
from rlx import nn

LAYERS: dict[str, tuple[Any, ...]] = {
    **{"Linear": (4, 3), "Embedding": (10, 4), "Conv": (3, 8, 3), "ConvTranspose2d": (3, 8, 3), "Conv1d": (3, 8, 3)},
    **{"LayerNorm": (4,), "RMSNorm": (4,), "GroupNorm": (2, 4), "BatchNorm": (4,), "MultiHeadAttention": (8, 2)},
    **{"LSTM": (4, 6), "GRU": (4, 6), "Dropout": (0.5,), "Flatten": (1,)},
}
SIZES = ("in_", "out_", "num_", "size", "kernel", "groups", "_dim", "normalized", "start_axis")


@pytest.mark.parametrize("name", LAYERS)
def test_sizes_are_checked(name: str) -> None:
    layer, given = getattr(nn, name), LAYERS[name]
    for place, parameter in enumerate(inspect.signature(layer).parameters):
        for value in (-1, 2.5, "a", None, [], [-1], float("nan"), 10**30):
            arguments, keywords = list(given), {}
            if place < len(given):
                arguments[place] = value
            else:
                keywords = {parameter: value}
            is_size = any(part in parameter for part in SIZES)
            try:
                layer(*arguments, **keywords)
            except rlx.Error as problem:
                assert not is_size or parameter in str(problem), str(problem)
            else:
                assert not is_size, (parameter, value)
