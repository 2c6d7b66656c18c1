"""Models: published weights, and the graphs that compute with them.

`load` reads a folder in the format of the Hugging Face hub. Each file for model families has a table `FAMILIES`. An
entry defines how `config.json` is read, and how the graph is built from shared parts. `new_adapter` returns a model with a
LoRA adapter to train.
"""

from __future__ import annotations

import rlx.blocks  # noqa: F401  (whole before its parts: see passes/__init__.py)
from rlx.models.adapter_training import TrainableAdapter, new_adapter
from rlx.models.greedy import greedy_tokens
from rlx.models.model import PretrainedModel, load
from rlx.models.torch_model import TorchModel

__all__ = ["PretrainedModel", "TorchModel", "TrainableAdapter", "greedy_tokens", "load", "new_adapter"]
