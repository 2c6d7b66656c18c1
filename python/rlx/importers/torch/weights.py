"""Conversion of PyTorch tensors to arrays that share their memory."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from rlx.ir.arrays import elements_of_torch
from rlx.support.errors import Error


def array_of(torch: ModuleType, tensor: Any, what: str) -> np.ndarray:
    """The elements of a tensor, read-only, without a copy if it is in the memory of the CPU.

    Args:
        torch: The package.
        tensor: The tensor.
        what: A description of the tensor, for messages.

    Raises:
        Error: It has no elements (it is on the device "meta"), or is sparse or quantised.
        UnsupportedError: RLX does not have its dtype, or PyTorch does not expose its storage, as for `torch.int4`.
    """
    if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized:
        kind = "on the device 'meta'" if tensor.is_meta else "quantised" if tensor.is_quantized else "sparse"
        hint = "give its numbers, tensor.dequantize()" if tensor.is_quantized else None
        raise Error(f"{what} is {kind}; expected a dense tensor with elements", hint=hint)
    data = tensor.detach().resolve_conj().resolve_neg().cpu()
    array = elements_of_torch(data, torch, what).view()
    array.flags.writeable = False
    return array


def identity(tensor: Any) -> tuple[Any, ...] | int:
    """Return a key that is equal for tied tensors, which share memory, sizes and strides."""
    if tensor.is_meta or not tensor.numel():
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()
