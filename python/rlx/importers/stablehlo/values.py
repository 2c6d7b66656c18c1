"""Queries on tensors and regions: known values, constants of a dtype, the ops of a region."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.graph.builder import Tensor
from rlx.ir.op import opview
from rlx.support.errors import UnsupportedError


def known(tensor: Tensor | None) -> np.ndarray | None:
    """Return the elements of a constant; None for another tensor."""
    op = getattr(tensor.value.owner, "operation", None) if tensor is not None else None
    if op is None or op.name != "rlx.constant":
        return None
    return opview.attributes_of(op)["value"]


def known_integers(tensor: Tensor, what: str) -> tuple[int, ...]:
    """Return the elements of a tensor that must be a constant.

    Raises:
        UnsupportedError: It is not a constant.
    """
    value = known(tensor)
    if value is None:
        raise UnsupportedError(
            f"with {what} that depend on values cannot be imported", hint="export it with static sizes"
        )
    return tuple(int(v) for v in np.broadcast_to(value, tensor.shape.static).ravel())


def scalar_of(tensor: Tensor) -> Any:
    """Return the value of a constant scalar as a Python number; None for another tensor."""
    value = known(tensor)
    return None if value is None else value.reshape(-1)[0].item()


def defining_op(value: mlir.Value, name: str) -> mlir.Operation | None:
    """Return the op that defines a value, if it has the given name."""
    op = getattr(value.owner, "operation", None)
    return op if op is not None and op.name == name else None


def direction_of(compare: mlir.Operation) -> str:
    """Return the direction of a `stablehlo.compare`, for example `LT`."""
    return str(compare.attributes["comparison_direction"]).split()[-1].rstrip(">")


def ending(block: Any) -> list[mlir.Value]:
    """Return the operands of the terminator of a block."""
    *_, end = block.operations
    return list(end.operation.operands)
