"""Shared helpers of the array API functions: arguments as tensors, devices, the builder of calls without tensors."""

from __future__ import annotations

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.current import builder_of, current_builder
from rlx.support.caller import caller_place
from rlx.support.errors import Error


def devices_of() -> tuple[str, ...]:
    """Return the devices of tensors. There is one, because a graph has no device."""
    return ("graph",)


def builder(*values: object) -> Builder:
    """Return the builder of the tensors among the values, else the builder that is being traced or is eager.

    Raises:
        Error: There is none.
    """
    found = builder_of(values) or current_builder()
    if found is None:
        raise Error(
            "there is no graph to create a tensor in",
            location=caller_place(),
            hint="call it in a function under rlx.jit, or inside of `with rlx.eager():`",
        )
    return found


def as_tensor(x: object) -> Tensor:
    """Return a tensor unchanged.

    Raises:
        TypeError: The argument is not a tensor.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a tensor, got {type(x).__name__}")
    return x


def check_device(device: object) -> None:
    """Check a `device=` argument. Tensors have a single device.

    Raises:
        ValueError: A different device is requested.
    """
    if device not in (None, *devices_of()):
        raise ValueError(f"tensors belong to no device, and {device!r} was given; rlx.Session(device) compiles a graph")
