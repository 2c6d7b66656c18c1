"""Import of PyTorch modules through `torch.export`. Parameters share the memory of the module."""

from __future__ import annotations

from rlx.importers.torch.model import from_torch
from rlx.importers.torch.rules import imports
from rlx.support.submodules import import_all

import_all(__name__)

__all__ = ["from_torch", "imports"]
