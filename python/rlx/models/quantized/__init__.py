"""Weights that other tools have quantised, in folders: GPTQ, AWQ, compressed-tensors, FP8 and MLX.

`open_folder` returns the tensors of a folder. Each quantised matrix is one tensor in a packed format of
`rlx.weights.schemes`, which is converted when it is read. The layouts of the files are those of their tools.
"""

from __future__ import annotations

from rlx.models.quantized.folder import open_folder, packed_tensors

__all__ = ["open_folder", "packed_tensors"]
