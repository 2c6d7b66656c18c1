"""Import of ONNX models from files or bytes. Initialisers become parameters that are read when they are used."""

from __future__ import annotations

from rlx.importers.onnx.model import from_bytes, from_onnx
from rlx.importers.onnx.rules import imports
from rlx.support.submodules import import_all

import_all(__name__)

__all__ = ["from_bytes", "from_onnx", "imports"]
